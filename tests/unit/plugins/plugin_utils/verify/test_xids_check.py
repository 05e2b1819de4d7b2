# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xids in verify: a fatal one holds until something shows a reset, and all others are news of one run."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import kernel_log
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ACTIONS

from .sick_hardware import ALL, gpus
from .sick_system import A, Row, System
from .sick_xids import FATAL, NOW, changed, log

OTHER = "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


def run(system: System, action: str | None, *lines: str, lost: tuple[int, ...] = ()) -> list[tuple[str, str, str]]:
    """(severity, code, message) of each failure of a run; action: what the driver reports of GPU 0."""
    system.read(A[0], gpus([0], recovery_action=action), log=log(*lines), lost=lost)
    verdict, _lines = system.run()
    return [(row["severity"], row["code"], row["message"]) for row in verdict["failures"]]


def test_a_fatal_xid_holds_in_each_run_until_the_log_or_the_driver_shows_a_reset(system: System) -> None:
    said = (
        "error",
        "nvlink_xid",
        "r01t01: the kernel logged Xid 149 of GPU 0 link 14 (NVLink NETIR error, fatal), and nothing that shows a reset"
        " of the GPU since.",
    )
    # A driver that reports no actions.
    assert run(system, None, FATAL) == [said]
    assert run(system, None, FATAL) == [said]
    # 25,000 lines later.
    assert run(system, None, *[f"audit: {number}" for number in range(25_000)], FATAL) == [said]
    assert run(system, None, changed("0x4 (Drain and Reset)", "0x0 (None)"), FATAL) == []
    assert run(system, None, FATAL, changed("0x4 (Drain and Reset)", "0x0 (None)")) == [said], "a new one after it"
    assert run(system, "none", FATAL) == [], "a reset GPU logs no Xid 154"
    assert run(system, None, "-- Boot 0b7d --", FATAL) == [], "it was before the boot"


def test_what_the_driver_says_of_the_gpu_is_the_failure_and_the_xid_its_cause(system: System) -> None:
    lines = (changed("0x0 (None)", "0x4 (Drain and Reset)"), FATAL)
    for _run in range(2):
        [(severity, code, _message)] = run(system, "drain_and_reset", *lines)
        assert (severity, code) == ("error", "recovery_action")
        assert system.run()[0]["failures"][0]["cause"] == (
            "Xid 149 (NVLink NETIR error), Xid 154 (recovery action changed)"
        )


@pytest.mark.parametrize("lost", [(0,), ()], ids=["lost", "gone"])
def test_a_gpu_that_fell_off_the_bus_is_one_failure(system: System, lost: tuple[int, ...]) -> None:
    def drop(facts: Row) -> None:
        if not lost:
            facts["gpus"].pop(0)

    for row in system.world.kubernetes["slices"]:
        if not lost and row["metadata"]["name"] == f"{A[0]}-gpu.nvidia.com":
            row["spec"]["devices"].pop()
    system.read(A[0], drop, log=log("79, GPU has fallen off the bus."), lost=lost)
    [row] = system.run()[0]["failures"]
    assert row["code"] == ("gpu_lost" if lost else "gpu_missing")
    assert row["cause"] == "Xid 79 (GPU has fallen off the bus)"


def test_an_xid_of_another_gpu_is_no_reset(system: System) -> None:
    other = f"NVRM: Xid (PCI:0009:01:00): {changed('0x1 (GPU Reset Required)', '0x0 (None)')}"
    [(severity, code, _message)] = run(system, None, other, FATAL)
    assert (severity, code) == ("error", "nvlink_xid")


def test_other_xids_are_news_of_one_run_and_fatal_ones_first(system: System) -> None:
    [(severity, _code, message)] = run(system, "none", OTHER)
    assert (severity, message) == (
        "warning",
        "r01t01: the kernel logged GPU errors in the last 7 days: Xid 145 of GPU 0 link 13 (NVLink RLW error).",
    )
    assert run(system, "none", OTHER) == []
    system.kept[A[0]]["xid_at"] = NOW - 60
    elsewhere = FATAL.replace("Link 14", "Link -1")
    [(severity, _code, message)] = run(system, "none", OTHER, elsewhere)
    assert (severity, message) == (
        "warning",
        "r01t01: the kernel logged GPU errors since the last run: Xid 149 of GPU 0 (NVLink NETIR error, fatal), Xid 145"
        " of GPU 0 link 13 (NVLink RLW error).",
    )


def test_a_log_that_was_not_read_to_its_end_is_a_warning(system: System) -> None:
    system.read(A[0])
    system.world.trays[A[0]]["links"]["xids_complete"] = False
    verdict, lines = system.run()
    assert (verdict["ok"], lines[0]) == (
        True,
        "warning hardware nvlink_links_unknown: r01t01: its kernel log was not read to its end in time, so Xids"
        " may be missing.",
    )
    assert lines[1].endswith("next step: ansible r01t01 --become -a 'journalctl -k --grep Xid'")


def test_each_action_of_the_table_has_a_command() -> None:
    words = {word for xid in kernel_log.XIDS.values() for word in (xid.fatal, xid.other)}
    assert words - {"", "as it says", "none"} <= ACTIONS.keys()


def test_a_fatal_xid_of_one_tray_is_not_folded_with_those_that_its_peers_logged_of_it(system: System) -> None:
    """Xid 149 of one tray, 145 of all others of the rack (marin 9086): the first one is to be repaired."""
    for number, tray in enumerate(A):
        system.read(tray, gpus(ALL, recovery_action=None), log=log(FATAL if number == 0 else OTHER))
    failures = [row for row in system.run()[0]["failures"] if row["code"] == "nvlink_xid"]
    shown = {row["tray"]: (row["severity"], row["action"], row.get("gpu"), row.get("link")) for row in failures}
    assert shown == dict.fromkeys(A[1:], ("warning", "switch_side", 0, 13)) | {A[0]: ("error", "reset_gpu", 0, 14)}
