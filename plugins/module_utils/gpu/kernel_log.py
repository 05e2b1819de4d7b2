# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the NVIDIA driver wrote into the kernel log of this tray: the Xids of one table, and knvlink's lines.

Texts of lines after NVIDIA/open-gpu-kernel-modules 595.45.04 (kernel_rc.c, gpu.c, kernel_nvlink_gh100.c). The numbers
decide, since their words differ by driver: Xid 154 has ``0x1 (GPU Reset Required)`` until R595, and ``0x1 (PF FLR)``
since R610.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import quoted
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, Value, gpu_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, rfc3339


class Xid(NamedTuple):
    """What an Xid means.

    fatal: the action that its GPU needs before a job may run on it, empty where jobs may; with `other`, only where the
    line says Fatal. other: what a person does about the others. Both are words of the repair's actions.
    """

    meaning: str
    fatal: str = ""
    other: str = ""


XIDS: dict[int, Xid] = {
    0: Xid("postRxDetLinkMask failed: the driver cannot tell which NVLinks have trained", other="reboot"),
    48: Xid("uncorrectable memory error", "reset_gpu"),
    63: Xid("memory row marked for remapping", other="watch"),
    64: Xid("memory row could not be remapped", "reset_gpu"),
    74: Xid("NVLink error", "reset_gpu"),
    79: Xid("GPU has fallen off the bus", "reboot"),
    94: Xid("contained memory error, which ended one process", other="watch"),
    95: Xid("uncontained memory error", "reset_gpu"),
    119: Xid("GSP did not answer", "reset_gpu"),
    120: Xid("GSP error", "reset_gpu"),
    137: Xid("NVLink access refused, mostly of a faulty application", other="watch"),
    143: Xid("GPU initialization failed", "reset_gpu"),
    **{
        number: Xid(f"NVLink {unit} error", "reset_gpu", "switch_side")
        for number, unit in enumerate(("SAW", "RLW", "TLW", "TREX", "NVLPW", "NETIR", "MSE"), 144)
    },
    154: Xid("recovery action changed", "as it says", "none"),
}
"""Number of the Xid -> what it means; 0: knvlink's lines, which have none.

The action is the immediate one of NVIDIA's Xid catalogue for GB200 (74: for H100): RESET_GPU, RESTART_BM (a reboot),
and for IGNORE and RESTART_APP to watch. 144 to 150, WORKFLOW_NVLINK5_ERR: the catalogue's decode has RESET_GPU for
those that the line calls Fatal, else the peer or the cable. With each fatal one the driver changes its recovery action
("Xid 154 linkage"; 119: with the third one, kernel_gsp.c), so that of an Xid which is not here the action is known.
knvlink: NVIDIA/open-gpu-kernel-modules, issue 971, where only a reboot helped. docs/verify.md has this table.
"""
RECOVERY_ACTION = 154

DAYS = 7
"""Of lines that are not fatal, and of those of earlier boots."""
TIMEOUT = 10.0
MAX_XIDS = 100
_LINE = re.compile(
    r"([0-9]{1,12}(?:\.[0-9]+)?) .*?NVRM: (?:GPU[0-9]+ )?"
    # ``Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 14 (0x026001c6 ...)``; with MIG also GPU-I:05
    r"(?:Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): ([0-9]{1,4}), (.*)"
    r"|knvlink\w+: .*(?:postRxDetLinkMask failed|Failed to update Rx Detect Link mask))"
)
_LINK = re.compile(r"\b[Ll]ink (-?[0-9]{1,3})\b")
_FATAL = re.compile(r"\bFatal\b")
_CHANGED = re.compile(r"recovery action changed from 0x[0-9a-f]+ \([^)]*\) to 0x([0-9a-f]{1,8}) ")
_BOOT = re.compile(r"-- (?:Boot|Reboot)\b")


class Row(TypedDict):
    """What the kernel logged of one GPU and link in one boot: how often, and when, in seconds since the epoch."""

    xid: int
    gpu: int | None
    pci_bus_id: str | None
    link: int | None
    fatal: bool
    boot: bool
    action: str | None
    count: int
    first_at: float
    last_at: float


def is_fatal(row: Mapping[str, Any]) -> bool:
    """Whether no job may run on the GPU of a row until it was reset."""
    if row["xid"] == RECOVERY_ACTION:
        return row.get("action") != "none"
    xid = XIDS.get(row["xid"], Xid(""))
    return bool(xid.fatal) and (row["fatal"] or not xid.other)


def name(number: int) -> str:
    """``Xid 149 (NVLink NETIR error)``."""
    return f"Xid {number} ({XIDS[number].meaning})" if number else XIDS[number].meaning


def text(row: Mapping[str, Any]) -> str:
    """``Xid 149 of GPU 0 link 14 (NVLink NETIR error, fatal)``."""
    meaning = XIDS[row["xid"]].meaning
    if not row["xid"]:
        return meaning
    if row["xid"] == RECOVERY_ACTION:
        meaning = f"{meaning} to {row.get('action') or 'one that is unknown'}"
    gpu = f"GPU {row['gpu']}" if row["gpu"] is not None else f"the GPU at {row['pci_bus_id']}"
    link = "" if row["link"] is None else f" link {row['link']}"
    return f"Xid {row['xid']} of {gpu}{link} ({meaning}{', fatal' if row['fatal'] else ''})"


def gather(gpus: Sequence[Any], notes: list[HostFinding]) -> tuple[list[Row] | None, bool | None]:
    """The rows of this boot and of DAYS, and whether the log was read to its end; None where it could not be read.

    gpus: as for rows(). Adds findings to ``notes``.
    """
    reply = child.call(_read, TIMEOUT + child.GRACE, gpus)
    found, read, complete, status = reply.value or ([], 0, True, None)
    why = ""
    if status != 0:
        why = reply.result._replace(rc=status).reason
    elif not read and complete:
        why = "this user may not read it" if os.geteuid() else "the journal has no messages of the kernel"
    elif not read:
        why = "no answer in time"
    if why:
        notes.append(gpu_finding("nvlink_links_unknown", "log", why=quoted(why)))
        return None, None
    if not complete:
        notes.append(gpu_finding("nvlink_links_unknown", "log_cut", seconds=TIMEOUT))
    for row in found:
        last = rfc3339(row["last_at"])
        values: dict[str, Value] = {"xid": text(row), "times": count(row["count"], "time"), "last": last}
        notes.append(gpu_finding("nvlink_xid", "", row["gpu"], **values))
    return found, complete


def _read(gpus: Sequence[Any]) -> tuple[list[Row], int, bool, int]:
    """(rows, the number of lines that were read, whether all were, journalctl's exit status). Runs in a child.

    The newest line first, so that a log too long for TIMEOUT lacks its oldest lines. Not --grep, which a journalctl
    without PCRE2 refuses.
    """
    # The clock may have been set since the boot.
    seconds = max(DAYS * 86400, time.clock_gettime(time.CLOCK_BOOTTIME) + 86400)
    command = ["journalctl", "--no-pager", "--all", "--reverse", "--output=short-unix", f"--since=-{seconds:.0f}s"]
    read = 0

    def lines(output: Iterable[bytes]) -> Iterator[str]:
        nonlocal read
        for line in output:
            read += not line.startswith(b"-- ")
            # The last line of a journalctl that was killed is cut off.
            if (b"NVRM: " in line or line.startswith(b"-- ")) and line.endswith(b"\n"):
                yield line.decode("utf-8", "replace")

    env = {**os.environ, "LC_ALL": "C"}
    with subprocess.Popen(  # pylint: disable=ansible-bad-function  # its output is filtered while it runs
        [*command, "_TRANSPORT=kernel"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env
    ) as process:
        timer = threading.Timer(TIMEOUT, process.kill)
        timer.start()
        found = rows(lines(process.stdout or ()), gpus, time.time() - DAYS * 86400)
        timer.cancel()
    complete = process.returncode != -signal.SIGKILL
    return found, read, complete, process.returncode if complete else 0


def rows(lines: Iterable[str], gpus: Iterable[Any] = (), since: float = 0) -> list[Row]:
    """The rows of lines of ``journalctl --reverse -o short-unix``, one a GPU, Xid, link, boot and fatality.

    The newest first, at most MAX_XIDS, of which fatal ones are the last to go. ``gpus``: the facts' GPUs, which give a
    PCI address its index. ``since``: lines of before, in seconds since the epoch, count where they are fatal.
    """
    index_of = {address(gpu["pci_bus_id"]): gpu["index"] for gpu in gpus if gpu["pci_bus_id"]}
    found: dict[tuple[Any, ...], Row] = {}
    boot = True
    for line in lines:
        boot = boot and not _BOOT.match(line)
        match = _LINE.match(line)
        # An Xid 45 "caused by previous Xid 149" is number 45.
        if match is None or int(match[3] or 0) not in XIDS:
            continue
        row = _row(match, boot, index_of)
        key = (row["pci_bus_id"], row["xid"], row["link"], row["fatal"], boot)
        if row["first_at"] < since and not is_fatal(row):
            continue
        row = found.setdefault(key, row)
        row["count"] += 1
        row["first_at"] = min(row["first_at"], float(match[1]))
    kept = sorted(
        found.values(), key=lambda row: (row["xid"] != RECOVERY_ACTION and not is_fatal(row), -row["last_at"])
    )
    return sorted(kept[:MAX_XIDS], key=lambda row: -row["last_at"])


def _row(match: re.Match[str], boot: bool, index_of: Mapping[str, int]) -> Row:
    stamp, where, text = float(match[1]), address(match[2]) if match[2] else None, match[4] or ""
    link, changed = _LINK.search(text), _CHANGED.search(text)
    return {
        "xid": int(match[3] or 0),
        "gpu": index_of.get(where or ""),
        "pci_bus_id": f"{where}.0" if where else None,
        # Link -1 is no single one.
        "link": int(link[1]) if link and int(link[1]) >= 0 else None,
        "fatal": _FATAL.search(text) is not None,
        "boot": boot,
        "action": constants.RECOVERY_ACTIONS.get(int(changed[1], 16), (None,))[0] if changed else None,
        "count": 0,
        "first_at": stamp,
        "last_at": stamp,
    }


def address(pci_bus_id: str) -> str:
    """A PCI address without its function, with the long domain, in upper case: how the kernel and NVML compare."""
    return pci_bus_id.partition(".")[0].upper().rjust(len("00000000:00:00"), "0")
