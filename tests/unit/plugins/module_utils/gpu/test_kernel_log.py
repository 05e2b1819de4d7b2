# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader of Xids against a journalctl that prints what a test gives it, and against any lines."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import kernel_log
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays
from hypothesis import given
from hypothesis import strategies as st

GPUS = [{"index": gpu["index"], "pci_bus_id": gpu["pci_bus_id"]} for gpu in trays.tray()["gpus"]]
# Lines as in NVIDIA/open-gpu-kernel-modules issue 1150 and leptonai/gpud pull request 1174; the newest first.
LOG = """\
1795237205.600000 r01t01 kernel: usb 1-1: new device
1795237204.500000 r01t01 kernel: NVRM: Xid (PCI:0099:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)
1795237203.400000 r01t01 kernel: NVRM: Xid (PCI:0008:01:00): 45, pid=1, name=python3, Ch 1 caused by previous Xid 149
1795237202.300000 r01t01 kernel: NVRM: Xid (PCI:0009:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8)
1795237201.200000 r01t01 kernel: NVRM: Xid (PCI:0009:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8)
-- Boot 0b7d8b0ee1bb4d61a0fde5c1a8b0a3a1 --
1795237200.100000 r01t01 kernel: NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 14 (0x026001c6 0x0)
"""
FATAL = "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 14 (0x0215c5c6 0x00000000 0x00000000)"


Journal = Callable[..., None]


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """journal(text, script): from then on journalctl is this script, which may print the file `log` with the text."""

    def install(text: str = "", script: str = "cat {log}") -> None:
        (tmp_path / "log").write_text(text)
        (tmp_path / "bin").mkdir(exist_ok=True)
        program = f'echo "$@" > {tmp_path}/arguments; {script.format(log=tmp_path / "log")}'
        trays.script(tmp_path / "bin" / "journalctl", program)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    return install


def line(at: float, text: str) -> str:
    return f"{at:.6f} r01t01 kernel: {text}\n"


def read() -> tuple[Any, Any, list[tuple[str, str]]]:
    """(rows, whether all lines were read, (severity, message) of the findings)."""
    notes: list[Any] = []
    found, complete = kernel_log.gather(GPUS, notes)
    worded_ = map(worded, notes)
    return found, complete, [(note["severity"], note["message"]) for note in worded_]


def test_xids_are_rows_by_gpu_link_and_boot() -> None:
    found = kernel_log.rows(LOG.splitlines(), GPUS)
    keys = ("xid", "gpu", "pci_bus_id", "link", "fatal", "boot", "count")
    assert [tuple(row[key] for key in keys) for row in found] == [
        (149, None, "00000099:01:00.0", None, True, True, 1),
        (145, 1, "00000009:01:00.0", 13, False, True, 2),
        (149, 0, "00000008:01:00.0", 14, True, False, 1),
    ]
    assert (found[1]["first_at"], found[1]["last_at"]) == (1795237201.2, 1795237202.3)


def test_each_row_is_a_finding(journal: Journal, tmp_path: Path) -> None:
    now = int(time.time())
    nonfatal = "NVRM: Xid (PCI:0099:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link -1 (0x0409a0c2 0x8)"
    journal(line(now, FATAL) + line(now - 1, nonfatal) * 2)
    found, complete, notes = read()
    assert (len(found), complete) == (2, True)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    assert notes[0][1].startswith(
        f"The kernel logged Xid 149 of GPU 0 link 14 (NVLink NETIR error, fatal) 1 time, last at {at}; "
    )
    assert notes[1][1].startswith(
        "The kernel logged Xid 145 of the GPU at 00000099:01:00.0 (NVLink RLW error) 2 times, last at "
    )
    assert "_TRANSPORT=kernel" in (tmp_path / "arguments").read_text()


def test_an_old_fatal_xid_is_read_below_any_number_of_other_lines(journal: Journal) -> None:
    """The newest 20,000 lines were all that 1.0.0 read, and a driver may repeat knvlink's two lines every 4 s."""
    now = time.time()
    other = "".join(line(now - at, "audit: type=1400 apparmor=ALLOWED") for at in range(25_000))
    flood = "".join(
        line(now - at, f"NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer{at % 8}'s postRxDetLinkMask failed!")
        for at in range(25_000, 50_000)
    )
    days = 86400 * (kernel_log.DAYS + 30)
    old = line(now - days, FATAL) + line(now - days, FATAL.replace("Fatal", "Nonfatal"))
    journal(other + flood + old)
    found, complete, _notes = read()
    assert [(row["xid"], row["count"], row["fatal"], row["boot"]) for row in found] == [
        (0, 25_000, False, True),
        (149, 1, True, True),
    ]
    assert complete is True


def test_a_log_that_is_too_long_lacks_its_oldest_lines_and_says_so(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_log, "TIMEOUT", 1.0)
    journal(line(time.time(), FATAL), "cat {log}; exec sleep 60")
    found, complete, notes = read()
    assert ([row["xid"] for row in found], complete) == ([149], False)
    assert notes[0] == (
        "info",
        "The kernel log of this tray was not read to its end in 1 s, so Xids may be missing; run journalctl -k --grep"
        " Xid on the tray.",
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'No journal files were opened' >&2; exit 1", "No journal files were opened"),
        ("exec sleep 60", "no answer in time"),
        ("echo '-- No entries --'", "no messages of the kernel"),
    ],
)
def test_a_kernel_log_that_cannot_be_read_is_unknown(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(kernel_log, "TIMEOUT", 0.5)
    journal(script=script)
    found, complete, [(severity, message)] = read()
    assert (found, complete, severity) == (None, None, "info")
    assert why in message


# The words of Xid 154 by driver: R565 to R595 (_gpuRecoveryActionName), and R610 (issue 1353 and others).
CHANGED = {
    "0x0 (None)": "none",
    "0x1 (GPU Reset Required)": "gpu_reset",
    "0x1 (PF FLR)": "gpu_reset",
    "0x2 (Node Reboot Required)": "node_reboot",
    "0x2 (OS Reboot)": "node_reboot",
    "0x3 (Drain P2P)": "drain_p2p",
    "0x4 (Drain and Reset)": "drain_and_reset",
    "0x5 (Recover IMEX Domain)": "recover_imex_domain",
    "0x63 (Unknown)": None,
}


@pytest.mark.parametrize(("words", "action"), CHANGED.items())
def test_the_newest_recovery_action_of_a_gpu_is_read_by_its_number(words: str, action: str | None) -> None:
    changed = f"NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x7 (x) to {words}"
    older = "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
    [row] = kernel_log.rows([line(20, changed), line(10, older)], GPUS)
    assert (row["action"], row["count"], row["last_at"]) == (action, 2, 20)
    assert kernel_log.is_fatal(row) is (action != "none")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Of a GPU instance of MIG (kern_gpu_error_cont_ga100.c), and a driver before PCI: was written.
        (
            "Xid (PCI:0008:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
            (94, None),
        ),
        ("Xid (0000:03:00): 79, GPU has fallen off the bus.", (79, None)),
        (
            "Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6(0x1)",
            (74, 6),
        ),
        ("Xid (PCI:0008:01:00): 137, RLW_RXPIPE interrupt hit on link 11 on GPU0: PRIV Error", (137, 11)),
        ("GPU0 knvlinkDiscoverPostRxDetLinks_GB100_REV2: Getting peer17 postRxDetLinkMask failed!", (0, None)),
        ("knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!", (0, None)),
        ("Xid (PCI:0008:01:00): 31, pid=1, name=python, MMU Fault", None),
    ],
)
def test_lines_of_other_forms_are_read(text: str, expected: tuple[int, int | None] | None) -> None:
    assert [(row["xid"], row["link"]) for row in kernel_log.rows([line(1, f"NVRM: {text}")])] == [expected] * bool(
        expected
    )


def test_the_documented_table_is_that_of_the_code() -> None:
    page = (trays.TESTS.parent / "docs" / "verify.md").read_text()
    table = page.partition("| Xid | severity | action |\n|---|---|---|\n")[2].partition("\n\n")[0]
    documented = {}
    for line in table.splitlines():
        numbers, *cells = line.strip("| ").split(" | ")
        plain = re.sub(r"\(.*?\)", "", numbers)
        documented.update({int(number): cells for number in re.findall(r"\d+", plain) or [0]})
    expected = {}
    for number, xid in kernel_log.XIDS.items():
        severity = "error if `Fatal`, else warning" if xid.fatal and xid.other else "error" if xid.fatal else "warning"
        expected[number] = [severity, ", else ".join(f"`{word}`" for word in (xid.fatal, xid.other) if word)]
    expected[kernel_log.RECOVERY_ACTION] = ["error but for `None`", "as it says"]
    assert documented == expected


def test_the_rows_that_are_kept_are_the_fatal_ones() -> None:
    fatal = line(1, FATAL)
    links = [line(9, FATAL.replace("Fatal", "Nonfatal").replace("Link 14", f"Link {link}")) for link in range(200)]
    found = kernel_log.rows([*links, fatal])
    assert len(found) == kernel_log.MAX_XIDS
    assert [row["last_at"] for row in found if row["fatal"]] == [1]


@given(
    st.lists(
        st.sampled_from(LOG.splitlines()) | st.text() | st.from_regex(r"1 h k: NVRM: Xid \(PCI:.*", fullmatch=True)
    )
)
def test_any_lines_are_rows_of_the_documented_form(lines: list[str]) -> None:
    for row in kernel_log.rows(lines, GPUS):
        assert row["xid"] in kernel_log.XIDS
        assert row["count"] > 0
        assert row["first_at"] <= row["last_at"]
        assert row["link"] is None or row["link"] >= 0
        assert kernel_log.text(row)
