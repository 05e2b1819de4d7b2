# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks that slurm_benchmark receives, its jobs, and how their output becomes failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.module_utils.testing import patch_module_args
from ansible_collections.rackscale.nvlink.plugins.action.slurm_benchmark import ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import benchmark
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.modules import slurm_benchmark
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import programs
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.trays import script
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

REFUSED = {"refused_reason": "Requested nodes \x1b[31mare busy", "placement": [], "programs": []}


@pytest.fixture
def fabric(tmp_path: Path) -> str:
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(fabrics.fabric(racks=2, trays=2, split=()).as_dict()))
    return str(path)


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of the module, which reports that Slurm refuses every reservation."""
    arguments: dict[str, Any] = {}

    def execute(self: Any, **options: Any) -> dict[str, Any]:
        arguments.update(options["module_args"])
        return {"changed": False, "results": [{"block": row["name"], **REFUSED} for row in arguments["blocks"]]}

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    return arguments


def test_the_blocks_of_the_named_cliques_are_benchmarked(
    run_action: Any, fabric: str, received: dict[str, Any]
) -> None:
    result = run_action(ActionModule, fabric_file=fabric, cliques=["r02"], channel_isolation="own", timeout=5)
    assert received == {"timeout": 5, "blocks": [{"name": "r02", "nodes": ["r02t01", "r02t02"]}]}
    assert result["ok"], "a refused reservation is a warning"
    assert [(row["code"], row["clique"], row["trays"]) for row in result["failures"]] == [
        ("slurm_jobs_unanswered", "r02", ["r02t01", "r02t02"])
    ]
    assert [row["code"] for row in result["findings"]] == ["slurm_jobs_unanswered"]
    assert result["text"][0] == "1 block was benchmarked: r02."
    assert not any("\x1b" in line for line in result["text"])
    checked = run_action(ActionModule, fabric_file=fabric, check=True)
    assert checked["text"][0] == "2 blocks would be benchmarked: r01, r02."
    # As -e benchmark_cliques=r02 gives it.
    assert run_action(ActionModule, fabric_file=fabric, cliques="r02")["text"][0] == "1 block was benchmarked: r02."


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fabric_file": None}, "fabric_file"),
        ({"cliques": ["r03"]}, "has no clique 'r03'; did you mean r0"),
        ({"cluster": "alpha"}, "has no Slurm clusters; leave slurm_topology_cluster"),
        ({"blocks": []}, "blocks"),
        ({"channel_isolation": "mine"}, "is 'mine'; use one of own, any, none"),
    ],
)
def test_a_bad_option_is_one_sentence(run_action: Any, fabric: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleError, match=sentence):
        run_action(ActionModule, **{"fabric_file": fabric, **options})


def test_a_slurm_without_blocks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = "echo slurm-wlm 23.11.4"
    programs(tmp_path, slurmctld=old, scontrol=old, srun=old)
    given = {"bin_dir": str(tmp_path), "blocks": [{"name": "r01", "nodes": ["n1"]}]}
    with patch_module_args(given), pytest.raises(SystemExit):
        slurm_benchmark.main()
    assert json.loads(capsys.readouterr().out)["msg"].startswith("Slurm 23.11.4 is too old: topology/block")


# Runs the command as a tray does, whose environment is another than the Slurm controller's.
SRUN = """exec bash -c '
while [ "$1" != bash ]; do shift; done
echo "$SLURM_SITE,$LC_ALL" >&2
HOME=/tray "$@" | sed "s/^/0: /"
exit ${PIPESTATUS[0]}' srun "$@"
"""


@pytest.mark.parametrize(
    ("command", "seconds", "rc", "printed"),
    [
        ("echo $HOME", 60, 0, "/tray\n"),
        # As srun ends where a task was killed for its memory.
        ("kill -KILL $$", 60, 137, None),
        ("sleep 30", 1, None, None),
        ("yes | head -c 3000000", 60, 0, "y\n" * (benchmark.MAX_OUTPUT // 5)),
    ],
)
def test_a_job_is_run_by_its_tray_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, seconds: int, rc: int | None, printed: str | None
) -> None:
    monkeypatch.setenv("SLURM_SITE", "site")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    jobs = benchmark.run_jobs(programs(tmp_path, srun=SRUN, scontrol=""), "reservation", [(["n1"], command)], seconds)
    assert [(job["rc"], job["tasks"]) for job in jobs] == [(rc, {"0": printed} if printed else {})]
    assert rc is None or jobs[0]["stderr"] == ",C"


def test_srun_is_not_killed_with_the_exit_status_of_a_killed_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """timeout exits with 137, too, where it kills the program, as it does with an option."""
    monkeypatch.setattr(benchmark, "GRACE", 1)
    slurm = programs(tmp_path, srun="trap '' TERM\nsleep 30\nsleep 30", scontrol="")
    script(tmp_path / "timeout", 'echo "$1" > "$0.of"; exec /usr/bin/timeout "$@"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    [job] = benchmark.run_jobs(slurm, "reservation", [(["n1"], "true")], 1)
    assert (job["rc"], (tmp_path / "timeout.of").read_text()) == (None, "1\n")


@pytest.mark.parametrize(
    ("scontrol", "srun", "timeout", "calls"),
    [
        ("", "exit 1", 60, ["create", "delete"]),
        ("", None, 60, ["create", "delete"]),
        # slurmctld may have created it.
        ("[ $1 = delete ] || sleep 60", "exit 1", 1, ["create", "delete"]),
        ("exit 1", "exit 1", 60, ["create"]),
    ],
)
def test_a_reservation_is_deleted_whatever_happens(
    tmp_path: Path, scontrol: str, srun: str | None, timeout: float, calls: list[str]
) -> None:
    slurm = programs(tmp_path, timeout, scontrol=f'[ "$1" = -a ] || echo "$1" >> {tmp_path}/calls\n{scontrol}')
    if srun:
        programs(tmp_path, srun=srun)
    try:
        benchmark.run_on_block(slurm, "r01", ["n1", "n2"], [])
    except SlurmError:
        assert srun is None
    assert (tmp_path / "calls").read_text().split() == calls
