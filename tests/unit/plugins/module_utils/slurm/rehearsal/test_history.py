# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs of the last weeks from sacct."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import history
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.history import Shape
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import programs

START = "2026-11-20T10:00:00"
LOGS = 'echo "$*" >> ${0%/*}/calls\n'
CONFIG = {"accountingstoragetype": "accounting_storage/slurmdbd"}


def test_jobs_of_one_shape_are_one_and_those_that_never_started_none() -> None:
    lines = [
        f"gpu|12|{START}|4",
        f"gpu|12|{START}|4",
        f"gpu|8|{START}|",
        f"gpu|8|{START}|0",
        # The command line, which 24.11 has instead.
        f"gpu|8|{START}|sbatch job.sh",
        f"gpu|8|{START}|sbatch --segment=4 -N 8 x|y",
        "gpu|9|Unknown|3",
        "gpu|9|None|3",
        f"a,b|9|{START}|3",
        f"|9|{START}|3",
        "gpu",
        "",
    ]
    assert history.shapes(lines) == [Shape("gpu", 8, 0), Shape("gpu", 8, 4), Shape("gpu", 12, 4)]


def test_a_release_without_the_field_is_asked_for_the_command_line(tmp_path: Path) -> None:
    refuses = (
        'case "$*" in *SegmentSize*) echo \'sacct: fatal: Invalid field requested: "SegmentSize"\' >&2; exit 1;; esac'
    )
    script = f"{LOGS}{refuses}\necho 'gpu|8|{START}|sbatch --segment=4'"
    assert history.read(programs(tmp_path, sacct=script), CONFIG) == ([Shape("gpu", 8, 4)], "")
    assert "--starttime=now-14days" in (tmp_path / "calls").read_text()


def test_a_site_without_history_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert history.read(Slurm(str(tmp_path)), {}) == ([], "")
    assert history.read(Slurm(str(tmp_path)), CONFIG)[1].startswith("There is no sacct in ")
    assert history.read(programs(tmp_path, sacct="echo no connection >&2; exit 1"), CONFIG)[1].startswith(
        "sacct failed ("
    )
    monkeypatch.setattr(history, "SECONDS", 1)
    assert history.read(programs(tmp_path, sacct=f"{LOGS}exec sleep 60"), CONFIG)[0] == []
    assert len((tmp_path / "calls").read_text().splitlines()) == 1, "one that does not answer is asked once"
