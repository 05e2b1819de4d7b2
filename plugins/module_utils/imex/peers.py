# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether one member of an IMEX domain is connected to its peers: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.formats import normal_address
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts

# Why a connection is refused -> the finding's code.
MISMATCHES = {
    "map_mismatch": "imex_list_differs",
    "version_mismatch": "imex_peer_version",
    "authentication_error": "imex_peer_authentication",
}


def disconnected(facts: Facts, expected: Iterable[str]) -> list[str]:
    """The peers that one member is not connected to, of the ``expected`` lines of the node list."""
    keys = {key(entry) for entry in expected}
    return [peer["host"] for peer in facts["peers"] if key(peer["host"]) in keys and peer["connection"] != "connected"]


def is_up(facts: Facts, members: int, expected: Collection[str]) -> bool:
    """Whether one member is ready and connected to the ``expected`` peers.

    ``members``: the number of lines in the node list. Where fewer are expected, the domain cannot be up as a whole.
    """
    whole = facts["ready"] and not disconnected(facts, expected) and (facts["peers"] or members < 2)
    return bool(whole) and (len(set(map(key, expected))) + 1 < members or facts["domain_state"] == "up")


def key(entry: str) -> str:
    """A line of the node list as lines compare."""
    return normal_address(entry) or entry.lower()
