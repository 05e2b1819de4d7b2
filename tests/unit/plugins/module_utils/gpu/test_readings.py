# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms of values, compared with the equivalent regular expressions, which would load slower on a tray."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import readings
from hypothesis import given
from hypothesis import strategies as st

FORMS = [
    (readings._is_plain_text, r"[A-Za-z0-9 ._:+/@#,()-]{1,256}"),
    (readings._is_serial, r"[A-Za-z0-9._-]{1,64}"),
    (readings._is_version, r"[0-9]{1,6}(\.[0-9A-Za-z]{1,16}){0,5}"),
    (readings._is_uuid, r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    (readings._is_pci, r"[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]"),
    (readings._is_guid, r"(0x)?[0-9a-f]{1,16}"),
    (readings._is_number, r"[0-9]{1,10}"),
]


def test_cliques_are_counted_up_to_five_of_them() -> None:
    assert (
        readings.tally_cliques("tray", [{5, 2}, {1}, set(), {2, 5}]) == "1 tray in none; 1 tray in 1; 2 trays in 2, 5"
    )
    assert readings.tally_cliques("GPU", [[each] for each in range(9)]).endswith("; 1 GPU in 4; 4 more")


@pytest.mark.parametrize(("is_one", "form"), FORMS)
@given(data=st.data())
def test_a_form_accepts_what_its_regular_expression_accepts(
    is_one: Callable[[str], bool], form: str, data: st.DataObject
) -> None:
    right = st.from_regex(form, fullmatch=True)
    # One letter taken out, put in or replaced, and texts out of nearly the right letters.
    nearly = st.tuples(right, st.integers(0, 40), st.integers(0, 1), st.text(max_size=1)).map(
        lambda drawn: drawn[0][: drawn[1]] + drawn[3] + drawn[0][drawn[1] + drawn[2] :]
    )
    text = data.draw(right | nearly | st.text("0123456789abcdefABCDEFxz-.: ", max_size=40))
    assert is_one(text) is bool(re.fullmatch(form, text))


@given(st.text() | st.text("a{}' \0\n", max_size=500))
def test_a_quoted_value_is_short_and_has_no_template_syntax(value: str) -> None:
    plain = re.sub(r"[^A-Za-z0-9 ._:+/@#,()'=-]+", "?", value[:400]).strip()
    assert readings.quoted(value) == (f'"{plain}"' if len(plain) <= 160 else f'"{plain[:157]}..."')
