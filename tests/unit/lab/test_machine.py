# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of the machine: raised with the first lab, restored with the last one, never lowered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nvlab import machine, paths

INOTIFY = "fs/inotify/max_user_instances"
ARP = [f"net/ipv4/neigh/default/gc_thresh{number}" for number in (1, 2, 3)]
OF_LINUX = dict(zip((INOTIFY, *ARP), (128, 128, 512, 1024), strict=True))


@pytest.fixture
def sysctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the limits that Linux has by default."""
    monkeypatch.setattr(machine, "SYSCTL", tmp_path / "sys")
    monkeypatch.setattr(machine, "NETNS", tmp_path / "netns")
    monkeypatch.setattr(paths, "STATE", tmp_path)
    for name, value in OF_LINUX.items():
        (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / name).write_text(f"{value}\n")
    return tmp_path / "sys"


def limits(sysctl: Path) -> dict[str, int]:
    return {name: int((sysctl / name).read_text()) for name in OF_LINUX if (sysctl / name).exists()}


def test_the_first_lab_raises_the_limits_and_the_last_restores_them(sysctl: Path) -> None:
    machine.prepare_machine()
    raised = limits(sysctl)
    assert all(raised[name] > 4 * OF_LINUX[name] for name in OF_LINUX)
    assert raised[ARP[0]] < raised[ARP[1]] < raised[ARP[2]]
    # The second lab, also after a crash of the first.
    machine.prepare_machine()
    machine.restore_machine()
    assert limits(sysctl) == OF_LINUX
    machine.restore_machine()


def test_a_higher_limit_stays_and_so_does_what_a_person_sets_meanwhile(sysctl: Path) -> None:
    (sysctl / ARP[2]).write_text("1000000\n")
    machine.prepare_machine()
    assert limits(sysctl)[ARP[2]] == 1000000
    (sysctl / ARP[0]).write_text("4000\n")
    machine.restore_machine()
    assert limits(sysctl) == {**OF_LINUX, ARP[2]: 1000000, ARP[0]: 4000}


def test_only_the_first_namespace_of_a_machine_has_the_limits_of_arp(sysctl: Path) -> None:
    for name in ARP:
        (sysctl / name).unlink()
    machine.prepare_machine()
    machine.restore_machine()
    assert limits(sysctl) == {INOTIFY: OF_LINUX[INOTIFY]}


def test_a_lab_of_an_older_checkout_noted_fewer_limits(sysctl: Path) -> None:
    (paths.STATE / "machine.json").write_text(json.dumps({"max_user_instances": 100, "netns": True}))
    (sysctl / INOTIFY).write_text("4096\n")
    machine.restore_machine()
    assert limits(sysctl) == {**OF_LINUX, INOTIFY: 100}
