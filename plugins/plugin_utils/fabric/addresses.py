# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fifth step of a placement: the address that each tray uses in its IMEX domain. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ansible_collections.rackscale.nvlink.plugins.module_utils import interfaces
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation, Tray

if TYPE_CHECKING:
    from netaddr import IPNetwork


def imex_addresses(
    claims: Mapping[str, Observation],
    places: Mapping[str, str],
    trays: Mapping[str, Tray],
    allowed: Sequence[IPNetwork],
) -> dict[str, str | None]:
    """Choose an address for every claim, unique in its clique: the current one while it is valid, else the best.

    claims and places (the clique) by tray name; trays: those of the previous fabric; allowed: networks to choose from.
    An address that several trays report, such as that of a container bridge, is never chosen.
    """
    last = {name: tray["imex_address"] for name, tray in trays.items()}
    taken = {(tray["clique"], last[name]) for name, tray in trays.items() if name not in claims}
    chosen: dict[str, str | None] = {}

    def take(name: str, address: str | None) -> bool:
        if address is None or (places[name], address) in taken or not _within(address, allowed):
            return False
        taken.add((places[name], address))
        chosen[name] = address
        return True

    others = []
    for name, claim in claims.items():
        known = last.get(name)
        # A source without addresses, such as the file's node names, does not contradict the current address.
        confirmed = known is not None and (not claim.addresses or known in [row.address for row in claim.addresses])
        if not (confirmed and take(name, known)):
            others.append(name)
    if others:
        reports = Counter([text for claim in claims.values() for text in {row.address for row in claim.addresses}])
        for name in others:
            own = [row.address for row in claims[name].addresses if reports[row.address] == 1]
            chosen[name] = None
            # An interface that is down keeps its address, so the last one is kept where no better one is reported.
            for text in (*_best_first(own, claims[name].ansible_host, allowed), last.get(name)):
                if take(name, text):
                    break
    return chosen


def _best_first(texts: Iterable[str], connects_to: str | None, allowed: Sequence[IPNetwork]) -> list[str]:
    """Order the usable addresses of a tray.

    With networks: those in the first network, then those in the next. Without: the one that Ansible connects to, then
    IPv4 before IPv6, each in interface order. Addresses that do not identify a host beyond its link are left out.
    """
    if allowed:
        return [text for network in allowed for text in texts if _within(text, [network])]
    usable = (text for text in dict.fromkeys(texts) if not interfaces.is_local(ipaddress.ip_address(text)))
    return sorted(usable, key=lambda text: (text != connects_to, ":" in text))


def _within(text: str, allowed: Sequence[IPNetwork]) -> bool:
    """Whether an address is in one of the networks; every source and the fabric file check addresses on reading."""
    return not allowed or any(text in network for network in allowed)
