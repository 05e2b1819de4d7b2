# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats

TEXT = """\
# a comment
LOG_LEVEL=4

  SERVER_PORT = 50000
#SERVER_PORT=1
FUTURE_KEY=kept
IMEX_CMD_ENABLED=0
IMEX_CMD_ENABLED=1\r
"""


def test_settings_are_read_with_blanks_and_the_last_of_two_lines() -> None:
    config = formats.Config(TEXT)
    assert config.settings() == {
        "LOG_LEVEL": "4",
        "SERVER_PORT": "50000",
        "FUTURE_KEY": "kept",
        "IMEX_CMD_ENABLED": "1",
    }
    assert (config.get("SERVER_PORT"), config.get("IMEX_CMD_PORT"), config.get("NOBODYS")) == ("50000", "50005", "")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("198.51.100.11\n198.51.100.12\n", []),
        ("198.51.100.11\n\n198.51.100.12\n", [(2, "", "empty")]),
        ("# list\n198.51.100.11", [(1, "# list", "a comment")]),
        ("2001:db8::1\n2001:DB8:0::1\n", [(2, "2001:DB8:0::1", "on line 1 already")]),
        ("10.0.0.1 t1\n", [(1, "10.0.0.1 t1", "neither an address nor a name")]),
    ],
)
def test_invalid_lines_of_a_list_are_reported_by_number(text: str, wrong: list[tuple[int, str, str]]) -> None:
    assert list(formats.parse_nodes(text).wrong) == wrong


def test_a_list_has_an_entry_on_each_line_and_ends_with_a_newline() -> None:
    """Trays compare their lists by the hash of all bytes."""
    assert formats.render_nodes(["198.51.100.1", "t2"]) == "198.51.100.1\nt2\n"
    assert formats.render_nodes([]) == ""


def test_a_host_finds_its_own_id_by_address_or_name() -> None:
    entries = ["198.51.100.9", "t1", "2001:db8::5"]
    assert formats.own_id(entries, ["2001:db8:0::5"], ["t1"]) == 1
    assert formats.own_id(entries, ["2001:db8:0::5"]) == 2
    assert formats.own_id(entries, ["198.51.100.1"], ["t2"]) is None
