# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Applying a plan of tiers and its rollback; with real daemons it is tested in tests/integration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf_folder, daemon, live, programs
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import TIERS_NAME
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import sacctmgr, tier_apply
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.tier_apply import Step
from ansible_collections.rackscale.nvlink.plugins.modules import slurm_topology
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.trays import script

STEPS = [
    {"description": f"qos {name}: new", "do": ["add", "qos", name], "undo": ["delete", "qos", name]}
    for name in ("one", "two", "three")
]


UP = 'echo "Slurmctld(primary) at ctl is UP"'


def programs_that(tmp_path: Path, scontrol: str = UP, sacctmgr: str = "") -> Path:
    """Slurm's programs as scripts that log their arguments; returns the log."""
    log = tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    jobs = f"if [ -e {tmp_path}/jobs ]; then cat {tmp_path}/jobs; fi"
    for name, body in (("scontrol", scontrol), ("sacctmgr", sacctmgr), ("systemctl", "exit 1"), ("squeue", jobs)):
        script(tmp_path / "bin" / name, f'echo "{name} $*" >> {log}\n{body}')
    return log


def changed(**values: Any) -> dict[str, Any]:
    """The option change that has slurmctld run the partition gold."""
    return {
        "columns": "Name",
        "before": [],
        "after": [],
        "partitions": [["gold", [["Nodes", "a1"], ["State", "UP"]]]],
        "removed": [],
        "leaving": [],
        "excludes": [],
        "load": True,
        "override": "",
        **values,
    }


def apply(tmp_path: Path, *steps: Step, file: str | None = "old\n", after: Sequence[Step] = ()) -> None:
    """Replace the file of partitions and have slurmctld run the partition gold."""
    (tmp_path / "slurm.conf").write_text("ClusterName=lab\nInclude nvlink_partitions.conf\n")
    include = tmp_path / TIERS_NAME
    if file is not None:
        include.write_text(file)
    change = changed(before=steps, after=after)
    slurm, stamps = programs.Slurm(str(tmp_path / "bin"), 2.0, str(tmp_path)), conf_folder.checksums(str(tmp_path))
    tier_apply.apply(slurm, str(tmp_path), change, {str(include): b"new\n"}, stamps)


def calls(log: Path, program: str) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    found = [line.partition(" ")[2].replace("-i -Q ", "") for line in lines if line.startswith(program)]
    return [line for line in found if not line.startswith(("-nP show", "-a -o show", "show config"))]


def test_a_failed_step_undoes_the_earlier_ones_in_reverse_order(tmp_path: Path) -> None:
    log = programs_that(tmp_path, sacctmgr='case "$*" in *"add qos three"*) echo no room >&2; exit 1;; esac')
    with pytest.raises(SlurmError) as caught:
        apply(tmp_path, *STEPS)
    assert str(caught.value) == (
        "sacctmgr add qos three failed (no room); no file was changed, and the records in slurmdbd were restored."
    )
    assert calls(log, "sacctmgr") == ["add qos one", "add qos two", "add qos three", "delete qos two", "delete qos one"]
    assert calls(log, "scontrol") == []
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"


def test_an_interrupted_run_undoes_all_started_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = programs_that(tmp_path)
    real = sacctmgr.Sacctmgr.run

    def run(self: sacctmgr.Sacctmgr, arguments: Sequence[str]) -> str:
        error = real(self, arguments)
        if arguments == STEPS[1]["do"]:
            raise SystemExit("ended by signal 15")
        return error

    monkeypatch.setattr(sacctmgr.Sacctmgr, "run", run)
    with pytest.raises(SystemExit):
        apply(tmp_path, *STEPS)
    assert calls(log, "sacctmgr") == ["add qos one", "add qos two", "delete qos two", "delete qos one"]
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"


def test_a_file_that_cannot_be_written_undoes_the_records(tmp_path: Path) -> None:
    log = programs_that(tmp_path)
    (tmp_path / TIERS_NAME).mkdir()
    with pytest.raises(
        SlurmError, match=r"could not be written \(.*; nothing was changed, and the records in slurmdbd were restored"
    ):
        apply(tmp_path, STEPS[0], file=None)
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
        apply(tmp_path, STEPS[0])
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"
    assert calls(log, "scontrol").count("reconfigure") == 2
    assert calls(log, "sacctmgr") == ["add qos one", "delete qos one"]


def test_removals_come_last_and_their_failure_keeps_the_applied_partitions(tmp_path: Path) -> None:
    shown = "PartitionName=gold Nodes=a1 State=UP"
    log = programs_that(tmp_path, scontrol=f"echo '{shown}'", sacctmgr='case "$*" in *delete*) exit 1;; esac')
    after = [{"description": "qos old: removed", "do": ["delete", "qos", "old"], "undo": []}]
    with pytest.raises(SlurmError, match="The partitions are applied, but sacctmgr delete qos old failed"):
        apply(tmp_path, after=after)
    assert (tmp_path / TIERS_NAME).read_text() == "new\n"
    assert [line.split()[0] for line in log.read_text().splitlines()][-1] == "sacctmgr"


def step(tmp_path: Path, name: str, **values: Any) -> dict[str, Any]:
    """A step of the module that is to remove the partition old."""
    (tmp_path / "slurm.conf").write_text("ClusterName=lab\nInclude nvlink_partitions.conf\n")
    include = tmp_path / TIERS_NAME
    include.write_text("old\n")
    change = changed(
        files=[[str(include), "new\n"]], includes="", checksums={}, leaving=["old"], removed=["old"], own=[], **values
    )
    options = {"conf_dir": str(tmp_path), "bin_dir": str(tmp_path / "bin"), "timeout": 2.0, "override": []}
    module: Any = SimpleNamespace(params={**options, "step": name, "change": change}, check_mode=False)
    return slurm_topology.run(module)


@pytest.mark.parametrize("jobs", ["", "17|alice|old\n"])
def test_jobs_in_partitions_that_go_are_named(tmp_path: Path, jobs: str) -> None:
    log = programs_that(tmp_path)
    (tmp_path / "jobs").write_text(jobs)
    answer = step(tmp_path, "rehearse", reloads=False, rehearsed=False)
    assert answer["busy"] == ("job 17 of alice in old" if jobs else "")
    assert calls(log, "squeue") == ["-a -h -p old -o %A|%u|%P"]


def test_jobs_are_asked_last_before_a_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = programs_that(tmp_path)

    def started(*_arguments: object) -> None:
        (tmp_path / "jobs").write_text("17|alice|old\n")

    # It may take minutes.
    monkeypatch.setattr(live, "require_none", started)
    sentence = (
        r"Jobs have started in partitions that go \(job 17 of alice in old\): run again; nothing was changed, and"
    )
    with pytest.raises(SlurmError, match=sentence):
        step(tmp_path, "tiers", override="override", before=STEPS[:1])
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"
    assert (calls(log, "scontrol"), calls(log, "sacctmgr")) == ([], ["add qos one", "delete qos one"])
