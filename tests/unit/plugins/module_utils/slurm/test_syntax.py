# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of Slurm's files that a host may have made to cost time."""

from __future__ import annotations

import re
import time

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import syntax
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.lists(st.sampled_from(["a", "b1", "1", "_", "é", "=", " ", "'", '"', "-", "\t"]), max_size=14).map("".join)


@given(WORDS)
def test_a_key_is_what_stands_before_an_equals_sign(line: str) -> None:
    """As the plain expression has it, which tries each character of a word."""
    plain = re.findall(r"""([A-Za-z_]\w*)\s*=\s*("[^"]*"|'[^']*'|\S*)""", line)
    assert [key for key, _value in syntax.key_values(line)] == [key for key, _value in plain]


@pytest.mark.parametrize("part", ["a", "a1", "1", "é", "a ", "a =", 'a="', "a='\"", " ", "=", "a=b"])
def test_the_time_is_linear_in_the_length_of_a_line(part: str) -> None:
    def seconds(length: int) -> float:
        line, begin = part * length, time.process_time()
        syntax.key_values(line)
        syntax.shown_values(line)
        return time.process_time() - begin

    # Quadratic time is 400 times as much.
    assert seconds(400_000) < 100 * max(seconds(20_000), 0.002)
