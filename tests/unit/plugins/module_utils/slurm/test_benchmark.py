# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs of the benchmark, with programs in place of Slurm's."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import benchmark
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import programs
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.trays import script

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
    jobs = benchmark.run_jobs(programs(tmp_path, srun=SRUN), "reservation", [(["n1"], command)], seconds)
    assert [(job["rc"], job["tasks"]) for job in jobs] == [(rc, {"0": printed} if printed else {})]
    assert rc is None or jobs[0]["stderr"] == ",C"


def test_srun_is_not_killed_with_the_exit_status_of_a_killed_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """timeout exits with 137, too, where it kills the program, as it does with an option."""
    monkeypatch.setattr(benchmark, "GRACE", 1)
    slurm = programs(tmp_path, srun="trap '' TERM\nsleep 30\nsleep 30")
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
    slurm = programs(tmp_path, timeout, scontrol=f'echo "$1" >> {tmp_path}/calls\n{scontrol}')
    if srun:
        programs(tmp_path, srun=srun)
    try:
        benchmark.run_on_block(slurm, "r01", ["n1", "n2"], [])
    except SlurmError:
        assert srun is None
    assert (tmp_path / "calls").read_text().split() == calls
