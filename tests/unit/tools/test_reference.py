# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generated reference is current, and its reader of comments and of Ansible's markup is right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(CHECKOUT / "tests" / "tools"))
import docs_site  # noqa: E402
import reference  # noqa: E402

PAGES = reference.pages()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_generated_page_is_current(page: Path) -> None:
    expected = PAGES[page]
    assert page.read_text(encoding="utf-8") == expected, f"{page}: is out of date; run `make reference`."


def test_markup_becomes_markdown() -> None:
    text = "V(a|b) of O(rackscale.nvlink.x#module:y) in M(rackscale.nvlink.x), P(rackscale.nvlink.z#role): a < b | c."
    assert reference.markdown(text) == ("`a\\|b` of `y` in `rackscale.nvlink.x`, `rackscale.nvlink.z`: a &lt; b \\| c.")


def test_a_playbook_is_described_by_its_header_and_its_variables() -> None:
    found = reference.playbook(CHECKOUT / "playbooks" / "slurm_bringup.yml")
    assert found.description.startswith("Installs and configures Slurm on bare hosts, with backup")
    assert found.required == {"fabric_file": "path of the fabric file on the controller"}
    assert found.optional["slurm_tray_hosts"] == "pattern of the trays; nvlink"
    assert found.more == "the variables of the roles slurm, slurm_tiers and slurm_topology"


def test_a_default_that_is_a_list_or_an_expression_is_one_cell() -> None:
    table = reference.variables(
        {
            "a": {"description": "A.", "type": "list", "elements": "str", "default": ["x", "y"]},
            "b": {"description": ["B."], "default": "{{ c | default('') }}", "choices": ["p", "q"]},
            "c": {"description": "C.", "required": True, "type": "dict", "options": {"k": {"description": "K."}}},
        }
    )
    assert table.splitlines()[3:6] == [
        "| `a` | list of str | `[x, y]` | A. |",
        "| `b` | str | `{{ c \\| default('') }}` | B. One of `p`, `q`. |",
        "| `c` | dict | **required** | C. Keys: `k` (str, none): K. |",
    ]


def test_the_index_of_the_site_leaves_internal_modules_out() -> None:
    index = (
        "* :ansplugin:`a module <rackscale.nvlink.a#module>` -- A\n"
        "* :ansplugin:`ab module <rackscale.nvlink.ab#module>` -- AB\n\n    a_module\n    ab_module\n    a_role\n"
    )
    assert docs_site.without(index, {"a"}) == (
        "* :ansplugin:`ab module <rackscale.nvlink.ab#module>` -- AB\n\n    ab_module\n    a_role\n"
    )
    assert docs_site.without(index, set()) == index
