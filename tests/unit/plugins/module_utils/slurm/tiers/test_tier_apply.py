# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Applying a plan of tiers and its rollback; with real daemons it is tested in tests/integration."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import daemon, programs
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import TIERS_NAME, SlurmConf
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import (
    accounting,
    tier_apply,
    tier_plan,
    tiers,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.accounting import Step
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import surveying

STEPS = [Step(f"qos {name}: new", ("add", "qos", name), ("delete", "qos", name)) for name in ("one", "two", "three")]


UP = 'echo "Slurmctld(primary) at ctl is UP"'


def programs_that(tmp_path: Path, scontrol: str = UP, sacctmgr: str = "") -> Path:
    """Slurm's programs as scripts that log their arguments; returns the log."""
    log = tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    for name, body in (("scontrol", scontrol), ("sacctmgr", sacctmgr), ("systemctl", "exit 1")):
        path = tmp_path / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n{body}\n')
        path.chmod(0o755)
    return log


def plan(tmp_path: Path, *steps: Step, file: str | None = "old\n", reconfigure: bool = True) -> tier_plan.TierPlan:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=lab\nInclude nvlink_partitions.conf\n")
    include = tmp_path / TIERS_NAME
    if file is not None:
        include.write_text(file)
    observed = surveying.Survey(
        slurm=programs.Slurm(str(tmp_path / "bin"), 2.0, str(tmp_path)),
        conf_dir=str(tmp_path),
        version=(24, 11, 5),
        style="conf",
        conf=SlurmConf(str(conf), includes_tiers=True),
        config={"clustername": "lab"},
        running=[],
        shown=[],
    )
    survey = tier_plan.TierSurvey(observed, [], frozenset(), None if file is None else file.encode())
    desired = tiers.build([{"name": "gold", "blocks": ["a"]}], [Block("a", ("a1",), "a1")], {}, (24, 11, 5))
    made = tier_plan.TierPlan(survey, desired, [], list(steps), {survey.path: b"new\n"}, reconfigure)
    return made


def calls(log: Path, program: str) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.partition(" ")[2].replace("-i -Q ", "") for line in lines if line.startswith(program)]


def test_a_failed_step_undoes_the_earlier_ones_in_reverse_order(tmp_path: Path) -> None:
    log = programs_that(tmp_path, sacctmgr='case "$*" in *"add qos three"*) echo no room >&2; exit 1;; esac')
    with pytest.raises(SlurmError) as caught:
        tier_apply.apply(plan(tmp_path, *STEPS), "")
    assert str(caught.value) == (
        "sacctmgr add qos three failed (no room); no file was changed, and the records in slurmdbd were restored."
    )
    assert calls(log, "sacctmgr") == ["add qos one", "add qos two", "add qos three", "delete qos two", "delete qos one"]
    assert calls(log, "scontrol") == []
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"


def test_an_interrupted_run_undoes_all_started_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = programs_that(tmp_path)
    real = accounting.Sacctmgr.run

    def run(self: accounting.Sacctmgr, arguments: tuple[str, ...]) -> str:
        error = real(self, arguments)
        if arguments == STEPS[1].do:
            raise SystemExit("ended by signal 15")
        return error

    monkeypatch.setattr(accounting.Sacctmgr, "run", run)
    with pytest.raises(SystemExit):
        tier_apply.apply(plan(tmp_path, *STEPS), "")
    assert calls(log, "sacctmgr") == ["add qos one", "add qos two", "delete qos two", "delete qos one"]
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"


def test_a_file_that_cannot_be_written_undoes_the_records(tmp_path: Path) -> None:
    log = programs_that(tmp_path)
    made = plan(tmp_path, STEPS[0], file=None)
    (tmp_path / TIERS_NAME).mkdir()
    with pytest.raises(
        SlurmError, match=r"could not be written \(.*; nothing was changed, and the records in slurmdbd were restored"
    ):
        tier_apply.apply(made, "")
    assert calls(log, "sacctmgr") == ["add qos one", "delete qos one"]
    assert calls(log, "scontrol") == []


def test_a_slurmctld_that_does_not_run_the_new_partitions_gets_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "RUNNING_SECONDS", 0.1)
    monkeypatch.setattr(daemon, "CALM", 0.1)
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + ":/usr/bin:/bin")
    log = programs_that(tmp_path)
    with pytest.raises(
        SlurmError,
        match=r"gold is missing.*the old files were restored, and slurmctld runs as before, and the records",
    ):
        tier_apply.apply(plan(tmp_path, STEPS[0]), "")
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"
    assert calls(log, "scontrol").count("reconfigure") == 2
    assert calls(log, "sacctmgr") == ["add qos one", "delete qos one"]


def test_removals_come_last_and_their_failure_keeps_the_applied_partitions(tmp_path: Path) -> None:
    shown = "PartitionName=gold Nodes=a1 State=UP"
    log = programs_that(tmp_path, scontrol=f"echo '{shown}'", sacctmgr='case "$*" in *delete*) exit 1;; esac')
    made = plan(tmp_path)
    made.after = accounting.delete_steps(["old"])
    with pytest.raises(SlurmError, match="The partitions are applied, but sacctmgr delete qos old failed"):
        tier_apply.apply(made, "")
    assert (tmp_path / TIERS_NAME).read_text() == "new\n"
    assert [line.split()[0] for line in log.read_text().splitlines()][-1] == "sacctmgr"
