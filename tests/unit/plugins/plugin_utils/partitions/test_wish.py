# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variable nvlink_partitions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import is_met
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.wish import Part, Wish, parse, trays_of
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given
from hypothesis import strategies as st

FABRIC = fabrics.fabric(3, 18, split=(2,))


def test_every_form() -> None:
    named = {
        "r02a": {"trays": "r02t[01-03],r02t05", "resiliency": "adaptive_bandwidth", "multicast_limit": 16},
        "r02c": {"trays": ["r02t07", "r02t[06,08]"]},
        "r02b": {"trays": []},
    }
    assert parse({"r01": "2x9", "r02": named, "r03": "default"}, FABRIC) == {
        "r01": (Part("", 9), Part("", 9)),
        "r02": (
            Part("r02a", 4, ("r02t01", "r02t02", "r02t03", "r02t05"), "adaptive_bandwidth", 16),
            Part("r02c", 3, ("r02t06", "r02t07", "r02t08")),
            Part("r02b", 0),
        ),
        "r03": (),
    }
    assert parse({"r01": [4, 4, 10]}, FABRIC)["r01"] == (Part("", 4), Part("", 4), Part("", 10))


TRAYS = {"trays": "r01t01"}
WRONG = [
    (None, "nvlink_partitions: None is no mapping of NVLink domains"),
    ({}, "nvlink_partitions: {} is no mapping"),
    ("r01: 2x9", "is no mapping"),
    ({"r1": "2x9"}, "nvlink_partitions: 'r1' is no NVLink domain of the fabric file; did you mean r01?"),
    ({"r01": "2x8"}, "nvlink_partitions.r01: '2x8' is 16 trays in all, and the fabric file has 18 there"),
    ({"r01": [18, 1]}, "nvlink_partitions.r01: [18, 1] is 19 trays in all"),
    ({"r01": "0x9"}, "nvlink_partitions.r01: '0x9' is no form of partitions; write a shape as 2x9"),
    ({"r01": [True, 17]}, "is no form"),
    ({"r01": [0, 18]}, "is no form"),
    ({"r01": [-1, 19]}, "is no form"),
    ({"r01": ["9", "9"]}, "is no form"),
    ({"r01": {}}, "is no form"),
    ({"r01": None}, "is no form"),
    ({"r01": 18}, "is no form"),
    ({"r01": {"r01-a": TRAYS}}, "nvlink_partitions.r01: 'r01-a' is no clique name; use letters, digits and _"),
    ({"r01": {"r02a": TRAYS}}, "nvlink_partitions.r01.r02a: it is a clique of NVLink domain r02; use another name"),
    ({"r01": {"r01a": "r01t01"}}, "nvlink_partitions.r01.r01a: 'r01t01' is no mapping; write its trays, as {trays:"),
    ({"r01": {"r01a": {**TRAYS, "limit": 4}}}, "nvlink_partitions.r01.r01a: 'limit' is not known"),
    ({"r01": {"r01a": {}}}, "nvlink_partitions.r01.r01a.trays: None is no hostlist"),
    ({"r01": {"r01a": {"trays": ""}}}, "nvlink_partitions.r01.r01a.trays: '' is no hostlist"),
    ({"r01": {"r01a": {"trays": [1]}}}, "nvlink_partitions.r01.r01a.trays: [1] is no hostlist"),
    ({"r01": {"r01a": {"trays": "r01t[01"}}}, "nvlink_partitions.r01.r01a.trays: The hostlist 'r01t[01' has a bracket"),
    ({"r01": {"r01a": {"trays": "r01t19"}}}, "nvlink_partitions.r01.r01a.trays: 'r01t19' is no tray of the fabric"),
    ({"r01": {"r01a": {"trays": "r02t01"}}}, "nvlink_partitions.r01.r01a.trays: r02t01 is not in NVLink domain r01"),
    ({"r01": {"r01a": TRAYS, "r01b": TRAYS}}, "nvlink_partitions.r01.r01b.trays: r01t01 is in r01a, too; list it once"),
    ({"r01": {"r01a": {**TRAYS, "resiliency": "full"}}}, "nvlink_partitions.r01.r01a.resiliency: 'full' is no"),
    ({"r01": {"r01a": {**TRAYS, "resiliency": None}}}, "nvlink_partitions.r01.r01a.resiliency: None is no"),
    ({"r01": {"r01a": {**TRAYS, "multicast_limit": 1028}}}, "nvlink_partitions.r01.r01a.multicast_limit: 1028 is no"),
    ({"r01": {"r01a": {**TRAYS, "multicast_limit": 2}}}, "use a multiple of 4 from 0 to 1024"),
    ({"r01": {"r01a": {**TRAYS, "multicast_limit": -4}}}, "-4 is no multicast limit"),
    ({"r01": {"r01a": {**TRAYS, "multicast_limit": "16"}}}, "'16' is no multicast limit"),
]


@pytest.mark.parametrize(("value", "message"), WRONG)
def test_a_wrong_value_is_named_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(NvlinkError) as error:
        parse(value, FABRIC)
    assert message in str(error.value)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 20) | st.floats() | st.sampled_from(["2x9", "default", "r01t01", ""]),
    lambda of: (
        st.lists(of, max_size=3) | st.dictionaries(st.sampled_from(["r01", "r01a", "trays", "x"]), of, max_size=3)
    ),
    max_leaves=6,
)


@given(ANYTHING)
def test_any_value_is_a_wish_or_one_sentence(value: Any) -> None:
    message, wish = "", Wish()
    try:
        wish = parse({"r01": value}, FABRIC)["r01"]
    except NvlinkError as error:
        message = str(error)
    assert message == "" or re.fullmatch(r"nvlink_partitions\.r01[ -~]+", message)
    assert not wish or wish[0].name or sum(part.size for part in wish) == 18


def test_whether_the_fabric_file_has_it_already() -> None:
    def met(domain: str, value: Any) -> bool:
        return is_met(parse({domain: value}, FABRIC)[domain], domain, FABRIC)

    assert met("r01", "default")
    assert not met("r01", "1x18"), "the default partition ends empty with a shape"
    assert not met("r01", "2x9")
    assert met("r02", "2x9")
    assert not met("r02", [10, 8])
    assert not met("r02", "default")
    assert met("r02", {"r02a": {"trays": "r02t[02-03]"}})
    assert not met("r02", {"r02b": {"trays": "r02t[02-03]"}})
    assert not met("r02", {"r02c": {"trays": "r02t18"}})


def test_trays_are_in_the_order_of_the_rack() -> None:
    fabric = fabrics.fabric(1, 4)
    fabric.trays["r01t01"]["tray_index"] = 9
    fabric.trays["r01t02"]["tray_index"] = None
    assert trays_of(fabric, "r01") == ["r01t03", "r01t04", "r01t01", "r01t02"]
    assert trays_of(FABRIC, "r02") == expand("r02t[01-18]")
