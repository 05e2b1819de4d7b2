# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any value from outside, taken as the plain type that is wanted."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

One = TypeVar("One", bound=Hashable)

Object = Mapping[str, Any]
"""An object of a JSON document from outside, as of the Kubernetes API: any key may be missing, or have any type."""


def as_list(value: Any) -> list[Any]:
    """A list; an empty one for any other value."""
    return value if isinstance(value, list) else []


def only(values: Iterable[One]) -> One | None:
    """The one value that all of these have; None for several or none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def mapped(value: Any) -> Object:
    """A mapping; an empty one for any other value."""
    # Of a large cluster there are millions, nearly all of them of the type that is tested first.
    return value if isinstance(value, (dict, Mapping)) else {}


def whole(value: Any) -> int | None:
    """A count, index or ID: an unsigned integer of 32 bits; None for any other value."""
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32
    return int(value) if valid else None
