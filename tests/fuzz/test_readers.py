# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each reader of something that others wrote raises its own errors alone, and answers in time.

`make test` tries a few inputs a target, `make test-all` more, always the same; `make fuzz` searches new ones.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .targets import LIMIT, TARGETS


class TooSlow(BaseException):
    """Not an Exception: no reader catches it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", TARGETS)
@given(random=st.data())
def test_only_its_own_errors_escape(name: str, random: st.DataObject) -> None:
    target = TARGETS[name]
    given_input: Any = random.draw(target.inputs, label=name)
    with limited(LIMIT):
        try:
            target.read(given_input)
        except target.errors as error:
            if not str(error):
                pytest.fail("an error is a sentence")
