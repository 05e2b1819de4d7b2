# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sick systems of which the kernel log knows, slow drivers, and faults of a whole rack, for test_sick_systems.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import kernel_log, nvml

from .sick_hardware import ALL, LINK_PORTS, REBOOT, RESET, down, facts, gpus
from .sick_system import A, Situation, System

ADDRESS = "0008:01:00"
"""Of GPU 0."""
FATAL = "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 14 (0x0215c5c6 0x00000000 0x00000000)"
KNVLINK = "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!"
NOW = time.time()
CATALOGUE = "NVIDIA's Xid catalogue; "
WATCH = "wait; drain r01t01 if the next run of verify reports it again"


def changed(old: str, new: str) -> str:
    return f"154, GPU recovery action changed from {old} to {new}"


def log(*lines: str) -> str:
    """The kernel log of a tray, the newest line first: Xids of GPU 0, and lines of others."""
    texts = (f"NVRM: Xid (PCI:{ADDRESS}): {line}" if line[:2].isdigit() else line for line in lines)
    return "".join(
        f"{line}\n" if line.startswith("-- ") else f"{NOW - at / 1000:.6f} r01t01 kernel: {line}\n"
        for at, line in enumerate(texts)
    )


def of_all(trays: Iterable[str], *lines: str, **changes: object) -> Callable[[System], None]:
    """All these trays have these lines in their log, and their GPUs these changes."""

    def sicken(system: System) -> None:
        for tray in trays:
            system.read(tray, gpus(ALL, **changes), log=log(*lines))

    return sicken


def slow(system: System) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvml, "PATIENCE", 60)
        system.read(A[0], fault="slow", timeout=4)


# Xid -> a line of it. Where no source is named the line is that of a real log in leptonai/gpud (component xid, its
# tests), of open-gpu-kernel-modules 595.45.04, or of the issue that a row below names.
LINES = {
    48: "48, pid=2187734, name=python, DBE (double bit error) at fbpa 3",  # inferred
    63: "63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "64, Row remapping failure",
    74: "74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0)",
    79: "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    94: "94, pid=7062, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    95: "95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No",
    119: "119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected",
    120: "120, GSP task exception: load access page fault (cause:0xd) @ pc:0x13636b2, partition:2#0, task:3",
    137: "137, RLW_RXPIPE interrupt hit on link 11 on GPU0: PRIV Error",
    143: "143, Error status 0x65 while polling for FSP boot complete, 0x0, 0x0",
    144: "144, SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002 0x00000000)",
    145: "145, RLW_SRC_TRACK Fatal XC0 i0 Link 00 (0x00000007 0x00000001 0x00000000)",
    146: "146, TLW_CTRL Fatal XC0 i0 Link 00 (0x00000009 0x00000004 0x00000000)",
    147: "147, TREX Fatal XC0 i0 Link 00 (0x0000000e 0x00000001 0x00000000)",  # inferred: the catalogue has Nonfatal
    148: "148, NVLPW_CTRL/NVLPW Fatal XC0 i0 Link 00 (0x0000000f 0x80000000)",  # inferred: the catalogue has Nonfatal
    149: FATAL,
    150: "150, MSE Degraded Fatal XC0 i0 Link -1 (0x00000000 0x00000000 0x00000000)",
    154: changed("0x0 (None)", "0x2 (Node Reboot Required)"),
}


def _of_number(number: int, line: str) -> Situation:
    """The first row of a driver that reports no recovery actions (before R565), so that the log alone knows."""
    xid = kernel_log.XIDS[number]
    steps = {"reset_gpu": RESET, "reboot": REBOOT, "as it says": REBOOT}
    return Situation(
        f"xid_{number}",
        f"{CATALOGUE}Xid {number}",
        xid.meaning,
        facts(gpus(ALL, recovery_action=None), log=log(line)),
        "error" if xid.fatal else "warning",
        "nvlink_xid",
        f"r01t01: the kernel logged {'' if xid.fatal else 'GPU errors in the last 7 days: '}Xid {number} of GPU 0",
        steps[xid.fatal] if xid.fatal else WATCH,
    )


SITUATIONS = [
    *(_of_number(number, line) for number, line in LINES.items()),
    Situation(
        "nvlink_nonfatal",
        f"{CATALOGUE}decode of 144 to 150",
        "NVLink errors of each unit, which are not fatal: jobs run",
        facts(log=log(*(LINES[number].replace("Fatal", "Nonfatal") for number in range(144, 151)))),
        "warning",
        "nvlink_xid",
        "r01t01: the kernel logged GPU errors in the last 7 days: Xid 144 of GPU 0 link 0 (NVLink SAW error), Xid 145",
        LINK_PORTS,
    ),
    Situation(
        "post_rx_det",
        "NVIDIA/open-gpu-kernel-modules, issue 971; leptonai/gpud, pull request 1271",
        "the driver repeats knvlink's line before nvidia-smi hangs",
        facts(log=log(*[KNVLINK] * 2000)),
        "warning",
        "nvlink_xid",
        "r01t01: the kernel logged GPU errors in the last 7 days: postRxDetLinkMask failed",
        REBOOT,
    ),
    Situation(
        "post_rx_det_and_hang",
        "NVIDIA/open-gpu-kernel-modules, issue 971",
        "and when nvidia-smi hangs, the line is the cause",
        facts(fault="hang_fabric", timeout=0.5, log=log(*[KNVLINK] * 2000)),
        "error",
        "driver_timeout",
        "r01t01: NVML did not return from",
        REBOOT,
    ),
    Situation(
        "gsp_timeouts_and_pf_flr",
        "NVIDIA/open-gpu-kernel-modules, issue 1353 (R610)",
        "three GSP timeouts, after which the driver asks for a reset in the words of R610",
        facts(gpus([0], recovery_action=None), log=log(changed("0x0 (None)", "0x1 (PF FLR)"), *[LINES[119]] * 3)),
        "error",
        "nvlink_xid",
        "r01t01: the kernel logged Xid 154 of GPU 0 (recovery action changed to gpu_reset), Xid 119 of GPU 0 (GSP did"
        " not answer), and nothing that shows a reset",
        RESET,
    ),
    Situation(
        "fell_off_and_os_reboot",
        "NVIDIA/open-gpu-kernel-modules, issue 1151, and R610 (OS Reboot)",
        "a GPU fell off the bus, and the driver asks for a reboot",
        facts(gpus([0], recovery_action=None), log=log(changed("0x0 (None)", "0x2 (OS Reboot)"), LINES[79])),
        "error",
        "nvlink_xid",
        "r01t01: the kernel logged Xid 154 of GPU 0 (recovery action changed to node_reboot), Xid 79 of GPU 0",
        REBOOT,
    ),
    Situation(
        "link_down_of_one_gpu",
        "marin-community/marin, issue 9086: s9jvxs64; NVIDIA/open-gpu-kernel-modules, issue 1150",
        "link 14 went down for good, and the driver asks for drain and reset",
        facts(
            gpus([0], recovery_action="drain_and_reset"),
            log=log(changed("0x0 (None)", "0x4 (Drain and Reset)"), FATAL),
        ),
        "error",
        "recovery_action",
        "r01t01: GPU 0 needs the recovery action drain_and_reset",
        RESET,
    ),
    Situation(
        "errors_of_the_whole_rack",
        "marin-community/marin, issue 9086: the other 63 GPUs of the rack; nccl, issue 2241",
        "all trays of a rack log Xid 145 while the fault is on one link or on the switch side",
        of_all(A, "145, RLW_RXPIPE Nonfatal XC0 i0 Link 11 (0x0409a0c2 0x00000008)"),
        "warning",
        "nvlink_xid",
        "All 4 trays (r01t[01-04]) of NVLink domain r01 that answer report this: the kernel logged GPU errors in the"
        " last 7 days: Xid 145 of GPU 0 link 11",
        LINK_PORTS,
    ),
    Situation(
        "contained_error_of_the_whole_rack",
        "marin-community/marin, issue 8934 (counters unmoved; that its log has Xid 94 is inferred)",
        "a fault on the switch side ends the job on all trays, and no counter of a GPU moves",
        of_all(A, LINES[94], "145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001)"),
        "warning",
        "nvlink_xid",
        "All 4 trays (r01t[01-04]) of NVLink domain r01 that answer report this: the kernel logged",
        LINK_PORTS,
    ),
    Situation(
        "faults_of_an_application",
        "NVIDIA/nccl, issue 2241",
        "Xids 145 and 137 of one host",
        facts(log=log(LINES[145].replace("Fatal", "Nonfatal"), LINES[137])),
        "warning",
        "nvlink_xid",
        "r01t01: the kernel logged GPU errors in the last 7 days: Xid 145 of GPU 0 link 0 (NVLink RLW error), Xid 137",
        LINK_PORTS,
    ),
    Situation(
        "reset_and_back",
        "inferred: gpu.c, _gpuRefreshRecoveryActionInLock",
        "an uncontained error, after which the GPU was reset and the driver reports no action",
        facts(log=log(LINES[95])),
        "warning",
        "nvlink_xid",
        "r01t01: the kernel logged GPU errors in the last 7 days: Xid 95 of GPU 0 (uncontained memory error)",
        WATCH,
    ),
    Situation(
        "registration_of_a_rack",
        "dstackai/dstack, issue 1167; here of all trays, inferred",
        "the NMX controller does not answer, so that no GPU of the rack is registered",
        of_all(A, state="in_progress"),
        "error",
        "fabric_in_progress",
        "All 4 trays (r01t[01-04]) of NVLink domain r01 that answer report this: each of GPUs [0-3] waits for the",
        "on the NVLink switch: nv show sdn partition",
    ),
    Situation(
        "controller_of_a_rack",
        "nvml.h of CUDA 13.5, GFM_STATE",
        "all GPUs of a rack are disconnected from the NMX controller",
        of_all(A, fabric_manager_connected=False),
        "warning",
        "fabric_manager_disconnected",
        "All 4 trays (r01t[01-04]) of NVLink domain r01 that answer report this: each of GPUs [0-3] is disconnected",
        "on the NVLink switch: nv show cluster apps",
    ),
    Situation(
        "a_switch_of_the_rack",
        "inferred: a switch tray without power, of which each GPU of the rack has two links",
        "links 0 and 1 of all GPUs of the rack are down",
        lambda system: [system.read(tray, links=down(ALL, [0, 1])) for tray in A],
        "warning",
        "nvlink_links_degraded",
        "All 4 trays (r01t[01-04]) of NVLink domain r01 that answer report this: each of GPUs [0-3]: 16 of 18",
        LINK_PORTS,
    ),
    Situation(
        "slow_driver",
        "inferred: a driver that initializes its GPUs for each reader",
        "each call of NVML returns, and all of them take longer than the time limit",
        slow,
        "warning",
        "driver_slow",
        "r01t01: Reading the GPUs took",
        "ansible r01t01 --become -a 'systemctl restart nvidia-persistenced'",
    ),
]
