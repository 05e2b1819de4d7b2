# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fifth step of a placement: the address that each tray uses in its IMEX domain. Pure."""

from __future__ import annotations

import socket
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation, Tray

if TYPE_CHECKING:
    import netaddr


Number = tuple[int, int]
"""An address as (IP version, integer value): an object for each would cost more than the rest of a placement."""

# Unspecified, loopback, link-local and multicast addresses, which do not identify a host beyond its link. The first
# value of each range and the one after its last, in ascending order.
_ON_LINK_ONLY = {
    4: (0, 1, 127 << 24, 128 << 24, 0xA9FE << 16, 0xA9FF << 16, 224 << 24, 240 << 24),
    6: (0, 2, 0xFE80 << 112, 0xFEC0 << 112, 0xFF << 120, 1 << 128),
}


class NetworkError(NvlinkError):
    """An option names an invalid network, or the library netaddr is missing."""


def networks(texts: Iterable[str]) -> tuple[netaddr.IPNetwork, ...]:
    """Parse networks in CIDR notation; host bits may be set, as `ip address` prints them."""
    netaddr = _netaddr()
    found = []
    for text in texts:
        try:
            if "/" not in text:
                raise ValueError
            found.append(netaddr.IPNetwork(text))
        except (netaddr.AddrFormatError, ValueError):
            raise NetworkError(
                f"imex_network: {text!r} is not a network; write it in CIDR notation, such as 198.51.100.0/24"
            ) from None
    return tuple(found)


def imex_addresses(
    claims: Mapping[str, Observation],
    places: Mapping[str, str],
    trays: Mapping[str, Tray],
    allowed: Sequence[netaddr.IPNetwork],
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


def _best_first(texts: Iterable[str], connects_to: str | None, allowed: Sequence[netaddr.IPNetwork]) -> list[str]:
    """Order the usable addresses of a tray.

    With networks: those in the first network, then those in the next. Without: the one that Ansible connects to, then
    IPv4 before IPv6, each in interface order. Addresses that are valid on their link only are left out.
    """
    if allowed:
        numbers = {text: _number(text) for text in texts}
        ranges = map(_range, allowed)
        return list(
            dict.fromkeys(text for low, high in ranges for text, number in numbers.items() if low <= number <= high)
        )
    usable = [text for text in texts if _beyond_link(*_number(text))]
    return sorted(usable, key=lambda text: (text != connects_to, ":" in text)) if len(usable) > 1 else usable


def _within(text: str, allowed: Sequence[netaddr.IPNetwork]) -> bool:
    if not allowed:
        return True
    number = _number(text)
    return any(low <= number <= high for low, high in map(_range, allowed))


def _beyond_link(version: int, value: int) -> bool:
    return bisect_right(_ON_LINK_ONLY[version], value) % 2 == 0


def _number(text: str) -> Number:
    """The number of a valid address: every source and the fabric file check addresses when they read them."""
    if ":" in text:
        return 6, int.from_bytes(socket.inet_pton(socket.AF_INET6, text), "big")
    return 4, int.from_bytes(socket.inet_pton(socket.AF_INET, text), "big")


def _range(network: netaddr.IPNetwork) -> tuple[Number, Number]:
    """The first and the last address of a network, as numbers."""
    return (network.version, network.first), (network.version, network.last)


def _netaddr() -> ModuleType:
    """Import netaddr when it is first needed: Ansible loads this file on controllers without it, too."""
    try:
        import netaddr
    except ImportError:
        raise NetworkError(
            "netaddr: the Python library is missing; install it on the controller (requirements.txt of the collection)"
        ) from None
    return netaddr
