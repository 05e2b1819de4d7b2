# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX domains, prologs and channels that are sick, for test_sick_systems.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex.imex_fleet import (
    answer,
    domain_json,
    process,
    unit,
)

from .sick_system import A, Situation, System

FAILED = {"processes": [], "answers": {}, "unit": unit(active="failed", main_pid=None)}
HUNG = answer("")._replace(rc=None, timed_out=True)
NO_DEVICE: dict[str, Any] = {"major": 234, "devices": []}
ALL = "All 4 trays (r01t[01-04]) of NVLink domain r01 that answer report this: "
OF_BEFORE = {"major": 234, "devices": [{"name": "channel0", "major": 236, "minor": 0, "mode": "0666"}]}


def reads(trays: Sequence[str] = A, **changes: Any) -> Callable[[System], None]:
    """Let these trays of rack A read this of their IMEX."""

    def sicken(system: System) -> None:
        for tray in trays:
            row = system.world.trays[tray]
            row["imex"] = system.world.imex(tray, system.world.entries("r01"), **changes)
            row["channels"].update(row["imex"]["channels"])

    return sicken


def deaf(system: System) -> None:
    text = domain_json(system.world.entries("r01"), states={2: "UNAVAILABLE"}, status="DEGRADED")
    reads([A[0], A[1], A[3]], answers={"state": answer("READY\n"), "domain": answer(text)})(system)


SITUATIONS = [
    Situation(
        "prolog_of_cyclecloud",
        "Azure/cyclecloud-slurm, azure-slurm-install/imex_prolog.sh",
        "the prolog of each job truncates the node list and restarts nvidia-imex beside the enabled service",
        reads(prolog_files=["/sched/alps/prolog.d/90-imex_prolog.sh"]),
        "error",
        "imex_two_owners",
        f"{ALL}one of them: r01t01: IMEX has more than one owner here: prolog (/sched/alps/prolog.d/90-imex_prolog.sh",
        "stop the owner that is not imex_owner",
    ),
    Situation(
        "no_channel",
        "nvbandwidth issues 39 and 46",
        "cuMemCreate fails with CUDA_ERROR_NOT_PERMITTED while all daemons are ready",
        reads(channels=NO_DEVICE),
        "error",
        "imex_channel_missing",
        f"{ALL}There is no channel device",
        "-e imex_channels=0",
    ),
    Situation(
        "driver_without_channels",
        "mscclpp issue 467, tokenspeed PR 925",
        "the driver advertises fabric handles without /dev/nvidia-caps-imex-channels, and a rendezvous hangs",
        reads(channels={"major": None, "devices": []}),
        "error",
        "imex_channels_off",
        f"{ALL}The driver has no IMEX channels",
        "set imex_channel_count: 2048",
    ),
    Situation(
        "channel_on_some_trays",
        "flashinfer PR 3990 (inferred)",
        "one rank of a group gets no fabric handle",
        reads(A[1:2], channels=NO_DEVICE),
        "error",
        "imex_channel_missing",
        "r01t02 lacks channel0, which most trays of its clique have",
        "-e imex_channels=0",
    ),
    Situation(
        "channel_of_an_earlier_boot",
        "nccl issue 2241 (inferred)",
        "NCCL says to check the IMEX channel configuration after a reboot: the driver has another major",
        reads(A[1:2], channels=OF_BEFORE),
        "error",
        "imex_channel_stale",
        "r01t02: A channel device (channel0) has another major number than 234",
        "-e imex_channels=0",
    ),
    Situation(
        "silent_member",
        "ai-cloud-validation, scripts/network/imex_departure_test.py",
        "members are connected both ways while one is UNAVAILABLE and the domain DEGRADED",
        deaf,
        "error",
        "imex_not_ready",
        "All members of clique r01 are ready and connected, but its IMEX domain is degraded on r01t01, r01t02, r01t04,"
        " where r01t03 does not answer (UNAVAILABLE); open port 50005 there",
        "rackscale.nvlink.imex",
    ),
    Situation(
        "hanging_daemon",
        "dra-driver-nvidia-gpu issue 1417, PR 1441 (inferred)",
        "imports fail and nvidia-imex-ctl hangs while the probes are green",
        reads(A[1:2], answers={"state": HUNG}),
        "error",
        "imex_timeout",
        "r01t02: nvidia-imex-ctl -q did not respond in time",
        "r01t02",
    ),
    Situation(
        "two_daemons",
        "dra-driver-nvidia-gpu issue 524",
        "the host's service and the daemon of a ComputeDomain run on one tray",
        reads(A[1:2], processes=[process(), process(9, "compute-domain-", cgroup="/kubepods.slice/x")]),
        "error",
        "imex_two_owners",
        "r01t02: IMEX has more than one owner here: driver (process 9",
        "stop the owner that is not imex_owner",
    ),
    Situation(
        "session_in_use",
        "aicr PR 2520",
        "the service fails because a container has the driver's one IMEX session",
        reads(A[1:2], **FAILED, log="Failed to allocate Imex session with the driver: NV_ERR_IN_USE\n"),
        "error",
        "imex_in_use",
        "r01t02: The driver's one IMEX session belongs to another daemon",
        "stop the owner that is not imex_owner",
    ),
    Situation(
        "package_of_another_driver",
        "linux-system-roles/hpc PR 85 (inferred)",
        "an image installs nvidia-imex without the version of its driver, and the daemon exits",
        reads(A[1:2], **FAILED, version="595.58.03"),
        "error",
        "imex_version_mismatch",
        "r01t02: nvidia-imex 595.58.03 does not start with driver",
        "rackscale.nvlink.imex",
    ),
]
