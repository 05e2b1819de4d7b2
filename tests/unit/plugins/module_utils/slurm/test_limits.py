# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release of Slurm is a finding only where the site uses what that release does with limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import limits, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rules import Partition
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import ShownBlock
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_fake

ON = {"slurmctldparameters": "enable_configless,enable_expedited_requeue"}
WRONG = {"schedulerparameters": "bf_interval=1,Enable_Expedited_Requeue"}
CHANNELS = {"switchtype": "switch/nvidia_imex"}
SPARES = ({"ReservationName": "nvlink_spare_r01", "Flags": "IGNORE_JOBS,SPEC_NODES"},)
REPLACED = ({"ReservationName": "spares", "Flags": "REPLACE_DOWN"},)
MAINT = ({"ReservationName": "maint", "Flags": "MAINT"},)
EACH, ALL = ("r01", "r02"), ("r01,r02",)


def cases(version: str, config: Any = (), reservations: Any = (), partitions: Any = ALL) -> list[str]:
    shown = [ShownBlock(name, (f"{name}t1", f"{name}t2"), 2, False) for name in ("r01", "r02")]
    shown.append(ShownBlock("r[01-02]", ("r01t1", "r01t2", "r02t1", "r02t2"), 4, True))
    parts = [Partition(p, tuple(f"{block}t{at}" for block in p.split(",") for at in (1, 2))) for p in partitions]
    return limits.cases(rules.parse_version(version), dict(config), [*parts, Partition("empty")], shown, reservations)


@pytest.mark.parametrize(
    ("version", "used", "expected"),
    [
        ("24.11.5", {}, []),
        ("24.11.5", {"config": CHANNELS, "reservations": MAINT}, []),
        ("26.05.5", {"config": {**ON, **CHANNELS}, "reservations": SPARES, "partitions": EACH}, []),
        ("26.05.5", {"config": WRONG}, ["expedite"]),
        ("26.05.5", {"config": {**WRONG, **ON}}, []),
        ("25.11.4", {"config": ON}, ["timeout"]),
        ("24.11.5", {"reservations": SPARES}, ["timeout", "reservation"]),
        ("25.11.4", {"reservations": REPLACED}, ["timeout", "reservation"]),
        ("24.11.5", {"partitions": EACH}, ["partitions"]),
        ("25.11.0", {"partitions": EACH}, ["partitions"]),
        ("25.11.1", {"partitions": EACH}, []),
        ("24.11.5", {"partitions": EACH[:1]}, []),
        ("25.11.3", {"config": CHANNELS}, ["channels"]),
        ("25.11.4", {"config": CHANNELS}, []),
    ],
)
def test_what_the_site_uses_decides(version: str, used: dict[str, Any], expected: list[str]) -> None:
    assert cases(version, **used) == expected


def test_each_case_is_a_sentence_and_another_one_of_a_host_is_dropped() -> None:
    found = limits.findings(["channels", "root", "expedite", "timeout", "reservation", "partitions"], "25.11.0")
    messages = [worded(row)["message"] for row in found]
    assert len(set(messages)) == 5
    assert messages[0].startswith("enable_expedited_requeue is in SchedulerParameters")
    assert all("25.11.0" in message for message in messages[1:])


def test_the_reservations_are_read(tmp_path: Path) -> None:
    slurm = slurm_fake.programs(tmp_path, scontrol="echo ReservationName=nvlink_spare_r01 Nodes=n1 Flags=IGNORE_JOBS")
    assert limits.read(slurm, (25, 11, 4), {}, [], []) == ["timeout", "reservation"]
