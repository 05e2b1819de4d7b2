# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two racks that a test makes sick at the level of the fault, and what verify prints of them.

A tray's GPUs, links and kernel log are read by fabric_facts' own code: from the NVML stand-in, nvidia-smi documents and
a journalctl; its IMEX is assembled from readings (World.imex). The answer passes the controller's schema.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report, verify
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings import lines
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.tests.lab.nvml import standin_text
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays

from .verify_world import NOW, Row, World

A, B = ["r01t01", "r01t02", "r01t03", "r01t04"], ["r02t01", "r02t02", "r02t03", "r02t04"]
HOME = World()
LOG_FILE = "kernel.log"


class System:
    """The racks A and B of `world`, on which all layers agree until a situation changes them."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.world = copy.deepcopy(HOME)
        self.folder = folder
        self.kept: Row = {}
        """What the last run() kept of the links; a run compares with it."""
        patch.setattr(nvml, "LIBRARY", str(trays.library()))
        patch.setenv("NVLINK_STANDIN_GPUS", str(folder / "gpus"))
        (folder / "bin").mkdir()
        trays.script(folder / "bin" / "journalctl", f"cat {folder}/{LOG_FILE}")
        patch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")

    def read(
        self,
        tray: str,
        change: Callable[[Row], object] = lambda facts: None,
        *,
        fault: str | None = None,
        lost: Iterable[int] = (),
        links: Iterable[Sequence[int]] = (),
        slots: int = standin_text.LINKS,
        smi: bool = False,
        log: str = "",
        timeout: float = 20.0,
    ) -> None:
        """Read a tray anew, whose hardware is as its facts were before, but for `change`.

        fault, lost, links, slots: of standin_text(). smi: whether nvidia-smi is read instead of NVML. log: the lines of
        the kernel log.
        """
        facts = copy.deepcopy(self.world.trays[tray]["gpu"])
        change(facts)
        (self.folder / "gpus").write_text(standin_text.standin_text(facts, fault, lost, links, slots))
        (self.folder / LOG_FILE).write_text(log)
        (self.folder / "smi.xml").write_text(standin_text.smi_text(facts, lost))
        program = trays.script(self.folder / "bin" / "nvidia-smi", f"cat {self.folder}/smi.xml")
        options = subsets.Options(
            gather_subset=["gpu", "links"], backend="nvidia_smi" if smi else "auto", nvidia_smi=program, timeout=timeout
        )
        answer = json.loads(json.dumps(subsets.gather(options)))
        accepted = trust.accepted(tray, answer, tray_report.SCHEMA)
        parts = {subset: accepted["ansible_facts"].get(name) for subset, name in subsets.FACTS.items()}
        row = self.world.trays[tray]
        others = [note for note in row["findings"] if note.get("part") not in ("gpu", "links")]
        row.update(gpu=parts["gpu"], links=parts["links"], findings=[*others, *accepted["findings"]])
        # Those of this machine.
        row["gpu"]["addresses"] = facts["addresses"]

    def run(self, **changes: Any) -> tuple[Row, list[str]]:
        """(verdict, the lines that verify prints of its failures) of one run, which keeps what the next compares."""
        evidence = self.world.evidence(links_before=self.kept, is_found=True, **changes)
        verdict: Any = verify.verify(evidence, NOW)
        self.kept = json.loads(json.dumps(verify.links_check.memory(evidence)))
        return verdict, lines.shown(verdict["failures"], functools.partial(verify.remediation, evidence))


class Situation(NamedTuple):
    """A system that somebody reported as sick, and what an operator must read of it."""

    name: str
    source: str
    """Where it was reported; "inferred" where no thread was read."""
    happened: str
    sicken: Callable[[System], object]
    severity: str
    code: str
    sentence: str
    """How the one line of verify begins after severity, layer and code."""
    step: str
    """What its next step has."""
