# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of mistakes: what a person types, the exit status and the sentence that answers.

Each module of this package has MISTAKES, a list of rows for its area; test_mistakes.py runs them.
A row runs `ansible-playbook -i cluster.nvlink.yml -i hosts.yml LINE` with Ansible's own defaults in a copy of a site:
two racks of two trays (r01t01, r01t02, r02t01, r02t02; cliques r01, r02) with an accepted fabric.json that is set as
`fabric_file` for all hosts, and the Slurm controller `ctl`. No host answers, so nothing is changed anywhere; with
`answering` the trays are stand-ins on this machine, for the playbooks of READ_ONLY alone. A row may change its copy
before by `prepare`.

The test holds for each row: the exit status; the sentence stands whole in the last lines (line breaks and their
indentation count as one space) and nowhere else but in Ansible's own report of the same failure; the whole output
fits a screen or two; no file of the site has changed but those that match `writes`. A row without `long` shows a way
in which a run could end green for a mistake of its own kind; what names and values of that kind are wrong is tested
without Ansible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

READ_ONLY = ("discover", "doctor", "verify", "render")
INVENTORY = ("cluster.nvlink.yml", "hosts.yml")


@dataclass(frozen=True)
class Mistake:
    """One row; `line` is split as a shell does, and {site} in it is the folder of the copy."""

    line: str
    sentence: str
    status: int = 2
    prepare: Callable[[Path], object] | None = None
    answering: bool = False
    inventory: tuple[str, ...] = INVENTORY
    # Shell patterns of files below the site.
    writes: tuple[str, ...] = ()
    # More lines than this are no answer.
    lines: int = 60
    # With the callback of the sample ansible.cfg: the last line has the whole sentence.
    progress: bool = False
    # The marks of the row's test.
    long: bool = False
    core: bool = False

    @property
    def playbook(self) -> str:
        return self.line.split()[0]

    def __str__(self) -> str:
        return self.line.replace("rackscale.nvlink.", "") + (" (progress)" if self.progress else "")
