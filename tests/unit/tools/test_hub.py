# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate artifact-hub: which lines of the importer are failures."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import hub


def test_a_line_that_is_not_expected_is_a_failure() -> None:
    custom = "The extension type 'eda/rulebooks' listed in 'meta/extensions.yml' is custom and will not be listed"
    lint = "playbooks/a.yml:1: no-changed-when: Commands should not change things if nothing needs doing."
    late = "Timeout on call to ansible-lint"
    assert hub.unexpected([custom, lint, late], set()) == [lint, late]


def test_the_lint_has_all_rules() -> None:
    words = ["ansible-lint", "--profile", "production", "--exclude", "tests/unit/"]
    assert hub.with_all_rules([*words, "-x", "yaml,var-naming", "--offline"]) == [*words, "--offline"]


def test_a_missing_playbook_is_expected_where_it_is_there() -> None:
    lines = [f"ERROR    Failed to find rackscale.nvlink.{name} playbook." for name in ("drain", "drian")]
    assert hub.unexpected(lines, {"drain"}) == lines[1:]
