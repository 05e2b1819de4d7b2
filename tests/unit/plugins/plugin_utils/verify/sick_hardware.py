# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sick GPUs, links and fabrics, for test_sick_systems.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.links import SPEED, STATE

from .sick_system import A, Row, Situation, System

ALL = (0, 1, 2, 3)
MEMORY = "NVIDIA GPU Memory Error Management, Error Recovery and Response Flags"
HEADER = "nvml.h of CUDA 13.5"


def gpus(numbers: Iterable[int], **changes: Any) -> Callable[[Row], None]:
    """A change of these GPUs' facts: of a GPU, of its fabric (state, status, ...) or of its health."""

    def change(facts: Row) -> None:
        for gpu in (facts["gpus"][number] for number in numbers):
            for name, value in changes.items():
                fabric = gpu["fabric"]
                of = gpu if name in gpu else fabric if name in fabric else fabric["health"]
                of[name] = value

    return change


def facts(*changes: Callable[[Row], None], tray: str = A[0], **options: Any) -> Callable[[System], None]:
    def sicken(system: System) -> None:
        system.read(tray, lambda row: [change(row) for change in changes], **options)

    return sicken


def down(numbers: Iterable[int], links: Iterable[int]) -> list[tuple[int, int, int, int]]:
    """Links of these GPUs that are not active, as the driver reports them."""
    return [(gpu, link, field, 0) for gpu in numbers for link in links for field in (STATE, SPEED)]


def recovery(action: str, sentence: str, step: str, source: str = MEMORY) -> Situation:
    """Uncontained ECC and the like: counters 0, fabric healthy, and the driver says what the GPU needs."""
    return Situation(
        f"recovery_{action}",
        source,
        "the driver reports that a GPU needs an action, and the fabric is healthy",
        facts(gpus([1], recovery_action=action)),
        "error",
        "recovery_action",
        f"r01t01: GPU 1 needs the recovery action {action}, as its driver reports{sentence}",
        step,
    )


def without_gpu(system: System) -> None:
    """The tray was placed when one of its GPUs had been missing."""
    system.read(A[0], lambda row: row["gpus"].pop())
    system.world.fabric.trays[A[0]]["gpu_uuids"].pop()
    gpus_of = {row["metadata"]["name"]: row["spec"]["devices"] for row in system.world.kubernetes["slices"]}
    gpus_of[f"{A[0]}-gpu.nvidia.com"].pop()


def hgx(system: System) -> None:
    """A host that is in no rack, in a run for all hosts; its IMEX is that of a tray."""

    def change(row: Row) -> None:
        row.update(dict.fromkeys(("chassis_serial", "slot_number", "tray_index", "host_id")))
        gpus(ALL, cluster_uuid=None, clique_id=0, name="NVIDIA H100 80GB HBM3")(row)

    system.world.trays["h01"] = dict(system.world.trays[A[0]])
    system.read("h01", change)


REBOOT = (
    "ansible-playbook rackscale.nvlink.drain -e drain_trays=r01t01 -e drain_reason=recovery, then ansible r01t01"
    " --become -m ansible.builtin.reboot, then ansible-playbook rackscale.nvlink.resume -e resume_trays=r01t01"
)
RESET = (
    "ansible-playbook rackscale.nvlink.drain -e drain_trays=r01t01 -e drain_reason=recovery, then ansible r01t01"
    " --become -a 'nvidia-smi --gpu-reset', then ansible-playbook rackscale.nvlink.resume -e resume_trays=r01t01"
)
RESTART_IMEX = (
    "when no job runs on clique r01: ansible nvlink_clique_r01 --become -a 'systemctl stop nvidia-imex', then"
)
LINK_PORTS = "on the NVLink switch: nv show interface --view link-diagnostics"
PARTITION = "nv show sdn partition"

SITUATIONS = [
    recovery(
        "gpu_reset",
        "; drain the tray, end all processes on its GPUs and run nvidia-smi --gpu-reset",
        RESET,
        f"scitix/sichek, pull request 121 (uncontained ECC error, and every counter is 0); {MEMORY}",
    ),
    recovery("node_reboot", "; drain the tray and reboot it", REBOOT),
    recovery("system_reboot", "; drain the tray and reboot it", REBOOT, HEADER),
    recovery("bus_reset", "; drain the tray and reboot it", REBOOT, HEADER),
    recovery("drain_and_reset", "; drain the tray, and when its jobs have ended run nvidia-smi --gpu-reset", RESET),
    recovery(
        "drain_p2p", "; drain the tray, end all processes that use P2P, then read", "-a 'nvidia-smi -q', which prints"
    ),
    recovery(
        "recover_imex_domain",
        ": nvidia-imex ended while other trays used its memory",
        RESTART_IMEX,
        "NVIDIA/open-gpu-kernel-modules, imex_session_api.c and gpu.c (fabric allocations are disabled)",
    ),
    Situation(
        "xid_with_an_action",
        "kubernetes-sigs/dra-driver-nvidia-gpu, pull request 1441",
        "an Xid is fatal where the driver reports an action with it, whatever its number",
        facts(gpus([2], recovery_action="gpu_reset"), smi=True),
        "error",
        "recovery_action",
        "r01t01: GPU 2 needs the recovery action gpu_reset",
        RESET,
    ),
    Situation(
        "two_actions",
        "inferred: NVML's actions differ by GPU",
        "GPU 0 and 1 need a reset and GPU 3 a reboot, which does for all",
        facts(gpus([0, 1], recovery_action="gpu_reset"), gpus([3], recovery_action="node_reboot")),
        "error",
        "recovery_action",
        "r01t01: GPU 3 needs the recovery action node_reboot, as its driver reports and each of GPUs [0-1] needs the"
        " recovery action gpu_reset, as its driver reports; drain the tray and reboot it.",
        REBOOT,
    ),
    Situation(
        "driver_hangs",
        "NVIDIA/open-gpu-kernel-modules, issue 971",
        "nvidia-smi and every call of NVML hang after 66 days",
        facts(fault="hang_fabric", timeout=0.5),
        "error",
        "driver_timeout",
        "r01t01: NVML did not return from",
        REBOOT,
    ),
    Situation(
        "fell_off_the_bus",
        "NVIDIA/open-gpu-kernel-modules, issue 1151",
        "a GPU fell off the bus (Xid 79)",
        facts(lost=[2]),
        "error",
        "gpu_lost",
        "r01t01: GPU 2 is lost, it has fallen off the bus",
        REBOOT,
    ),
    Situation(
        "no_link_of_a_gpu",
        "NVIDIA/open-gpu-kernel-modules, issue 1150; leptonai/gpud, issue 1085",
        "all links of one GPU are inactive, and a reboot helps",
        facts(links=down([2], range(18))),
        "error",
        "nvlink_links_down",
        "r01t01: GPU 2 has no active NVLink (18 are expected), so it reaches no other GPU",
        f"drain r01t01, then {LINK_PORTS}",
    ),
    Situation(
        "no_link_of_a_tray",
        "NVIDIA/DCGM, issue 198 (all links down, and every test passes)",
        "no link of a GB200 tray is active",
        facts(gpus(ALL, summary="unhealthy", degraded_bandwidth=True), links=down(ALL, range(18))),
        "error",
        "nvlink_links_down",
        "r01t01: each of GPUs [0-3] has no active NVLink (18 are expected)",
        f"drain r01t01, then {LINK_PORTS}",
    ),
    Situation(
        "one_link_down",
        "marin-community/marin, issue 9086",
        "GPU 0 link 14 fails after five days of recoveries",
        facts(links=down([0], [14])),
        "warning",
        "nvlink_links_degraded",
        "r01t01: GPU 0: 17 of 18 NVLinks are active at 53125 MB/s, link 14 is not; ",
        LINK_PORTS,
    ),
    Situation(
        "one_link_of_36_slots",
        "flashinfer-ai/flashinfer, pull request 3990; NVIDIA/TensorRT-LLM, pull request 19210",
        "the driver counts 36 slots of which 18 have a link, and one of these is down",
        facts(links=down([3], [17]), slots=36),
        "warning",
        "nvlink_links_degraded",
        "r01t01: GPU 3: 17 of 18 NVLinks are active at 53125 MB/s, link 17 is not; ",
        LINK_PORTS,
    ),
    Situation(
        "links_of_all_gpus",
        "inferred: one cable cartridge",
        "each GPU lacks the same link",
        facts(links=down(ALL, [5])),
        "warning",
        "nvlink_links_degraded",
        "r01t01: each of GPUs [0-3]: 17 of 18 NVLinks are active at 53125 MB/s, link 5 is not; ",
        LINK_PORTS,
    ),
    Situation(
        "gpu_went_away",
        "NVIDIA/gpu-operator, issue 2511 (7 of 8 GPUs)",
        "a GPU no longer enumerates",
        facts(lambda row: row["gpus"].pop()),
        "error",
        "gpu_missing",
        "r01t01 reports 3 of its 4 GPUs",
        REBOOT,
    ),
    Situation(
        "placed_without_a_gpu",
        "NVIDIA/gpu-operator, issue 2511 (7 of 8 GPUs)",
        "a GPU was missing when the tray was discovered",
        without_gpu,
        "warning",
        "gpu_missing",
        "r01t01: 3 GPUs, and a tray with NVIDIA GB200 has 4",
        REBOOT,
    ),
    Situation(
        "never_registered",
        "NVIDIA/gpu-operator, issue 2511",
        "nvidia-smi prints State: In Progress and N/A for all else, and CUDA fails with error 802",
        facts(gpus(ALL, state="in_progress"), smi=True),
        "error",
        "fabric_in_progress",
        "r01t01: each of GPUs [0-3] waits for the fabric manager to register it, and CUDA calls hang until then",
        PARTITION,
    ),
    Situation(
        "fabric_never_comes_up",
        "Dstack-TEE/dstack, pull request 1167",
        "all 18 links are active at full speed, the log of the fabric manager is fine, and NVLink P2P is dead",
        facts(gpus([1, 3], state="in_progress")),
        "error",
        "fabric_in_progress",
        "r01t01: each of GPUs [1,3] waits for the fabric manager",
        PARTITION,
    ),
    Situation(
        "persistenced_is_off",
        "NVIDIA/open-gpu-kernel-modules, ctrl2080gpu.h (no probe was sent yet)",
        "the GPUs have not started to register",
        facts(gpus(ALL, state="not_started")),
        "error",
        "fabric_not_started",
        "r01t01: each of GPUs [0-3] has not started to register with the fabric manager",
        "systemctl restart nvidia-persistenced",
    ),
    Situation(
        "rejected",
        "Azure/azhpc-images, pull request 506",
        "the GPUs' GUIDs are in no NVLink partition: Completed, Insufficient Resources, zero UUID",
        facts(gpus(ALL, status="insufficient_resources", cluster_uuid=None, clique_id=0)),
        "error",
        "fabric_refused",
        "r01t01: each of GPUs [0-3] was rejected by the fabric manager with insufficient_resources",
        PARTITION,
    ),
    Situation(
        "mixed_status",
        "NVIDIA/NVSentinel, issue 883",
        "Success and Unknown Error on one host",
        facts(gpus([1, 2], status="unknown_error", cluster_uuid=None, clique_id=0)),
        "error",
        "fabric_refused",
        "r01t01: each of GPUs [1-2] was rejected by the fabric manager with unknown_error",
        PARTITION,
    ),
    Situation(
        "unhealthy",
        "kubernetes-sigs/dra-driver-nvidia-gpu, issue 626",
        "Completed and Success, and the summary is Unhealthy",
        facts(gpus([0], summary="unhealthy"), gpus([2], summary="unhealthy", route_unhealthy=True)),
        "error",
        "fabric_unhealthy",
        "r01t01: GPU 0 has an unhealthy NVLink fabric and GPU 2 has NVLink routes that could not be recovered; drain",
        LINK_PORTS,
    ),
    Situation(
        "limited_capacity",
        HEADER,
        "the fabric has lost a part of its bandwidth",
        facts(gpus([0], degraded_bandwidth=True), gpus([1], summary="limited_capacity")),
        "warning",
        "fabric_degraded",
        "r01t01: GPU 0 has degraded NVLink bandwidth and GPU 1 has an NVLink fabric of limited capacity; check",
        LINK_PORTS,
    ),
    Situation(
        "recovering",
        HEADER,
        "routes are being recovered",
        facts(gpus(ALL, route_recovery=True)),
        "warning",
        "fabric_recovering",
        "r01t01: each of GPUs [0-3] is recovering its NVLink routes or accesses",
        "nvidia-smi -q",
    ),
    Situation(
        "controller_is_off",
        "nvml.h of CUDA 13.5 (GFM_STATE)",
        "the global fabric manager is disconnected",
        facts(gpus(ALL, fabric_manager_connected=False)),
        "warning",
        "fabric_manager_disconnected",
        "r01t01: each of GPUs [0-3] is disconnected from the fabric manager",
        "nv show cluster apps",
    ),
    Situation(
        "mig",
        HEADER,
        "MIG mode is on",
        facts(gpus([0], mig_enabled=True)),
        "warning",
        "mig_enabled",
        "r01t01: GPU 0 has MIG mode on, which disables NVLink between GPUs",
        "disable MIG for multi-node jobs",
    ),
    Situation(
        "two_cliques",
        "kubernetes-sigs/dra-driver-nvidia-gpu, nvlib.go; NVIDIA/k8s-device-plugin, imex.go",
        "the GPUs of a tray are in different partitions",
        facts(gpus([3], clique_id=7)),
        "error",
        "gpus_disagree",
        "r01t01: The GPUs of this tray are in different cliques",
        PARTITION,
    ),
    Situation(
        "uuid_is_lost",
        "inferred: the reading of an HGX baseboard, on a tray with a chassis",
        "Completed and Success with a zero UUID",
        facts(gpus(ALL, cluster_uuid=None, clique_id=0)),
        "error",
        "fabric_uuid_zero",
        "r01t01: The GPUs of this tray report a chassis, as those of a rack do, but the cluster UUID",
        "nv show cluster apps",
    ),
    Situation(
        "fabric_of_a_rack_ends_at_the_host",
        "inferred: the tray lost its chassis serial with its UUID",
        "a placed tray reads as an HGX baseboard",
        facts(lambda row: row.update(chassis_serial=None), gpus(ALL, cluster_uuid=None, clique_id=0)),
        "error",
        "tray_not_attached",
        "The GPUs of r01t01 report no common clique, and the fabric file places it in r01",
        "nvidia-smi -q",
    ),
    Situation(
        "hgx_with_imex",
        "NVIDIA/NVSentinel, issue 1471; pytorch/torchcomms, issue 1385 (zero UUID on HGX H100)",
        "IMEX runs on a host whose fabric ends at the host",
        hgx,
        "info",
        "fabric_not_supported",
        "h01: The NVLink fabric of this host ends at the host (its cluster UUID is zero, as on HGX), so it has no"
        " multi-node NVLink",
        "no action for PCIe cards and HGX",
    ),
]
