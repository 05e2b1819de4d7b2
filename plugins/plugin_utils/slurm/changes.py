# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the plans of topology and tiers, and their removal, have in common. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import (
    MAIN,
    POLICY_NAME,
    SCRIPT_HEADER,
    SCRIPT_NAME,
    TIERS_HEADER,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import HEADER, Topology, documents
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE, ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed

# An error that lets an apply continue: a topology.conf that no plugin reads yet is harmless, and must exist before the
# plugin is set.
NOT_READ_YET = "slurm_plugin_missing"


def stopping(findings: Iterable[HostFinding]) -> list[HostFinding]:
    """The findings that stop an apply of topology or tiers: errors."""
    return [row for row in findings if row["code"] != NOT_READ_YET and CATALOGUE[row["code"]].severity == ERROR]


@dataclass(kw_only=True)
class Change:
    """A planned change of a Slurm.

    writes: path -> new text of each file, in the order of writing. includes: the file for which slurm.conf gets an
    Include line, empty for none. unset: the setting whose line in slurm.conf becomes a comment, empty for none.
    reconfigure: whether slurmctld loads its files. difference: the change in lines.
    """

    observed: Observed
    findings: list[HostFinding] = field(default_factory=list)
    writes: dict[str, str] = field(default_factory=dict)
    includes: str = ""
    unset: str = ""
    reconfigure: bool = False
    difference: list[str] = field(default_factory=list)

    @property
    def written(self) -> list[str]:
        """The paths of the files that change."""
        return sorted([*self.writes, *([self.observed.main] if self.includes or self.unset else [])])

    @property
    def changed(self) -> bool:
        return bool(self.written) or self.reconfigure

    def stopped_by(self) -> list[HostFinding]:
        """The findings that stop the apply."""
        return stopping(self.findings)

    def files(self) -> dict[str, Any]:
        """The part of the option ``change`` of each step that transact.writes() reads."""
        return {"files": [*self.writes.items()], "includes": self.includes, "unset": self.unset, "excludes": []}

    @property
    def leaving(self) -> list[str]:
        """The partitions that go and that run, in which no job may be."""
        return []

    @property
    def own(self) -> list[str]:
        """The partitions whose settings the change writes."""
        return []

    def to_rehearse(self, topology: Topology | None, rehearsal: Arguments | None) -> dict[str, Any]:
        """The option ``change`` of the step rehearse. topology: the blocks that are to run, None where there are none.

        rehearsal: None for a look at jobs in partitions that go, and at live changes, alone.
        """
        return {
            **self.files(),
            "topology": documents([topology] if topology else []),
            "style": self.observed.style,
            "reloads": self.reconfigure,
            "rehearsal": rehearsal,
            "leaving": self.leaving,
            "own": self.own,
        }

    def result(self, stopped: bool) -> dict[str, Any]:
        """What the results of the modules have in common; stopped: nothing was changed."""
        return {
            "changed": self.changed and not stopped,
            "version": self.observed.version_text,
            "changes": self.difference,
            "written": [] if stopped else self.written,
            "reconfigured": self.reconfigure and not stopped,
            "findings": [worded(found) for found in self.findings],
        }


def removed_files(
    texts: Mapping[str, str], names: Sequence[str], kept: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """The part of the option ``change`` that removes those of these files that this collection has written.

    names: the file that slurm.conf includes first. kept: name -> the text of a file that stays with less.
    """
    ours = [name for name in names if str(texts.get(name, "")).startswith((HEADER, TIERS_HEADER, SCRIPT_HEADER))]
    # A job_submit.lua of the site calls it (surveying.texts).
    ours = [name for name in ours if name != POLICY_NAME or texts.get(SCRIPT_NAME) != POLICY_NAME]
    return {"files": [[name, (kept or {}).get(name)] for name in ours], "includes": "", "excludes": list(names)}


def removal_lines(written: Sequence[str], change: Mapping[str, Any]) -> list[str]:
    """A line of the diff for each file; change: as of removed_files()."""
    stay = {MAIN, *(name for name, text in change["files"] if text is not None)}
    return [
        f"{path}: {'lines of rackscale.nvlink removed' if os.path.basename(path) in stay else 'removed'}"
        for path in written
    ]
