# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rulebook; tests/integration/test_events.py runs it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT / "extensions" / "eda" / "rulebooks"
TEXT = (FOLDER / "repair.yml").read_text()
RULES = [rule for ruleset in yaml.safe_load(TEXT) for rule in ruleset["rules"]]


def test_the_rulebook_starts_verify_then_repair_and_nothing_else() -> None:
    accepted, started = RULES
    assert accepted["action"] == {"post_event": {"event": {"nvlink_alerts": "firing"}}}
    # An event of a sender is below payload, so it cannot start the playbooks, and its text is no variable of theirs.
    assert started["condition"] == 'event.nvlink_alerts == "firing"'
    names = [(action, options["name"]) for row in started["actions"] for action, options in row.items()]
    assert names == [("run_playbook", "rackscale.nvlink.verify"), ("run_playbook", "rackscale.nvlink.repair")]
    assert all((CHECKOUT / "playbooks" / f"{name.rpartition('.')[2]}.yml").is_file() for _action, name in names)


def test_a_template_of_the_rulebook_reads_a_documented_variable() -> None:
    read = set(re.findall(r"{{ (\w+)", TEXT))
    page = (CHECKOUT / "docs" / "monitoring.md").read_text()
    assert read == set(re.findall(r"`(nvlink_events_\w+)`", page))


def test_the_folder_is_named_for_galaxy() -> None:
    named = yaml.safe_load((CHECKOUT / "meta" / "extensions.yml").read_text())["extensions"]
    assert [CHECKOUT / "extensions" / row["args"]["ext_dir"] for row in named] == [FOLDER]
