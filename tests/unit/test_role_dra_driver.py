# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role dra_driver's file of values, which may have secrets: what Helm reads in it, and that none stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

TASKS = Path(__file__).resolve().parents[2] / "roles/dra_driver/tasks"


@pytest.mark.core
def test_a_text_in_the_values_has_its_own_characters() -> None:
    """For Helm, which reads YAML, two escapes of a character beyond 16 bits are two wrong ones."""
    tasks = DataLoader().load_from_file(str(TASKS / "preflight.yml"), trusted_as_template=True)
    content = next(task["ansible.builtin.copy"]["content"] for task in tasks if "ansible.builtin.copy" in task)
    values = {"podAnnotations": {"team": "\N{ROCKET}"}}
    written = Templar(DataLoader(), variables={"item": {"values": values}}).template(content)
    assert json.loads(written) == values
    assert "\N{ROCKET}" in written


@pytest.mark.parametrize("name", ["imex", "main"])
def test_chart_and_values_are_removed_at_every_end(name: str) -> None:
    """A play that follows imex.yml may be left out by its tags, or have no tray left."""
    block = next(task for task in DataLoader().load_from_file(str(TASKS / f"{name}.yml")) if "always" in task)
    (clean,) = block["always"]
    assert (clean["ansible.builtin.import_tasks"], clean.get("when")) == ("clean.yml", None)
