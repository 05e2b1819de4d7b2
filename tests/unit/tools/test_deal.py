# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests dealt out among the releases of ansible-core: all of them together, and each file in every share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).resolve().parents[2] / "tools" / "deal.py"
_spec = importlib.util.spec_from_file_location("deal", FILE)
assert _spec is not None
assert _spec.loader is not None
deal = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(deal)

FILES = st.lists(st.sampled_from([None, *map(Path, "abc")]))


@given(files=FILES, of=st.integers(1, 4))
def test_every_test_is_in_a_share_and_every_file_and_story_in_each(files: list[Path | None], of: int) -> None:
    shares = [deal.share(files, number, of) for number in range(of)]
    assert set().union(*shares) == set(range(len(files)))
    for kept in shares:
        assert {files[position] for position in kept} == set(files)
        assert [position for position in kept if files[position] is None] == [
            position for position, file in enumerate(files) if file is None
        ]


@given(files=st.lists(st.just(Path("a")), min_size=4), of=st.integers(1, 4))
def test_no_test_of_a_long_file_is_in_two_shares(files: list[Path], of: int) -> None:
    dealt = [position for number in range(of) for position in deal.share(files, number, of)]
    assert sorted(dealt) == list(range(len(files)))
