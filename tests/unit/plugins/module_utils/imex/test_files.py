# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files
from hypothesis import given
from hypothesis import strategies as st

TEXT = """\
# a comment
LOG_LEVEL=4

  SERVER_PORT = 50000
#SERVER_PORT=1
FUTURE_KEY=kept
IMEX_CMD_ENABLED=0
IMEX_CMD_ENABLED=1
"""


def test_settings_are_read_with_blanks_and_the_last_of_two_lines() -> None:
    config = files.Config(TEXT)
    assert config.settings() == {
        "LOG_LEVEL": "4",
        "SERVER_PORT": "50000",
        "FUTURE_KEY": "kept",
        "IMEX_CMD_ENABLED": "1",
    }
    assert (config.get("SERVER_PORT"), config.get("IMEX_CMD_PORT"), config.get("NOBODYS")) == ("50000", "50005", "")


def test_a_change_keeps_comments_order_and_unknown_keys() -> None:
    changed = files.Config(TEXT).changed({"SERVER_PORT": "51000", "IMEX_CMD_ENABLED": "1", "IMEX_CMD_PORT": "51005"})
    assert changed.text == TEXT.replace("  SERVER_PORT = 50000", "SERVER_PORT=51000").replace(
        "IMEX_CMD_ENABLED=0", "IMEX_CMD_ENABLED=1"
    ) + ("IMEX_CMD_PORT=51005\n")


def test_a_key_of_another_release_is_written_only_where_present() -> None:
    assert files.Config("LOG_LEVEL=4\n").changed({"IMEX_CONN_WAIT_TIMEOUT": "90"}).text == "LOG_LEVEL=4\n"
    old = files.Config("IMEX_CONN_WAIT_TIMEOUT=70\n")
    assert old.changed({"IMEX_CONN_WAIT_TIMEOUT": "90"}).text == "IMEX_CONN_WAIT_TIMEOUT=90\n"


def test_windows_line_endings_stay() -> None:
    config = files.Config("A=1\r\nB=2\r\n")
    assert config.settings() == {"A": "1", "B": "2"}
    assert config.changed({"B": "3"}).text == "A=1\r\nB=3\r\n"


LINES = st.one_of(
    st.text(st.characters(exclude_characters="\n"), max_size=20),
    st.builds("{}={}".format, st.sampled_from(["LOG_LEVEL", "A", "B_C"]), st.text("ab01 /#=", max_size=6)),
)
VALUES = st.dictionaries(st.sampled_from(["LOG_LEVEL", "A", "NEW"]), st.from_regex(r"[a-z0-9/=]{0,8}", fullmatch=True))


@given(st.lists(LINES).map("\n".join), VALUES)
def test_a_change_is_read_back_and_a_second_one_changes_nothing(text: str, values: dict[str, str]) -> None:
    before, after = files.Config(text), files.Config(text).changed(values)
    assert before.text == text
    expected = {**before.settings(), **values}
    assert files.Config(after.text).settings() == expected
    assert after.changed(values).text == after.text
    foreign = [line for line in text.split("\n") if not any(line.strip().startswith(key) for key in values)]
    kept = after.text.split("\n")
    assert [line for line in kept if line in foreign][: len(foreign)] == [line for line in foreign if line in kept]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"LOG_LEVEL": 5}, "from 0 to 4"),
        ({"SERVER_PORT": 0}, "from 1 to 65535"),
        ({"IMEX_WAIT_FOR_QUORUM": "SOME"}, "NONE, RECOVERY, FULL"),
        ({"IMEX_NODE_CONFIG_FILE": "nodes.cfg"}, "absolute"),
        ({"BIND_INTERFACE_IP": "eth0"}, "an address"),
        ({"FUTURE": "a\nB=1"}, "one line"),
        ({"not a key": 1}, "not a key"),
    ],
)
def test_a_wrong_setting_fails_with_one_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(files.ImexError, match=sentence) as caught:
        files.check_settings(settings)
    assert str(caught.value).startswith("option settings: ")
    assert "\n" not in str(caught.value)


def test_good_settings_become_text() -> None:
    given_settings = {"IMEX_CMD_ENABLED": True, "SERVER_PORT": 51000, "BIND_INTERFACE_IP": None, "NEW_KEY": "x y"}
    expected = {"IMEX_CMD_ENABLED": "1", "SERVER_PORT": "51000", "BIND_INTERFACE_IP": "", "NEW_KEY": "x y"}
    assert files.check_settings(given_settings) == expected


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
    assert list(files.parse_nodes(text).wrong) == wrong


def test_a_list_has_an_entry_on_each_line_and_ends_with_a_newline() -> None:
    """Trays compare their lists by the hash of all bytes."""
    assert files.render_nodes(["198.51.100.1", "t2"]) == "198.51.100.1\nt2\n"
    assert files.render_nodes([]) == ""


def test_a_host_finds_its_own_id_by_address_or_name() -> None:
    entries = ["198.51.100.9", "t1", "2001:db8::5"]
    assert files.own_id(entries, ["2001:db8:0::5"], ["t1"]) == 1
    assert files.own_id(entries, ["2001:db8:0::5"]) == 2
    assert files.own_id(entries, ["198.51.100.1"], ["t2"]) is None
