# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a tray's addresses its IMEX domain uses."""

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
"""An address as (4 or 6, its value), since an object for each would cost more than all the rest of a placement."""

# No address, loopback, link-local and multicast: what means nothing, or another host, beyond its link. Of each range
# the first value and the one after its last, in order.
_ON_LINK_ONLY = {
    4: (0, 1, 127 << 24, 128 << 24, 0xA9FE << 16, 0xA9FF << 16, 224 << 24, 240 << 24),
    6: (0, 2, 0xFE80 << 112, 0xFEC0 << 112, 0xFF << 120, 1 << 128),
}


class NetworkError(NvlinkError):
    """A network that a person wrote is none, or networks cannot be read here."""


def networks(texts: Iterable[str]) -> tuple[netaddr.IPNetwork, ...]:
    """The networks that texts in CIDR notation name; host bits may be set, as `ip address` prints them."""
    netaddr = _netaddr()
    found = []
    for text in texts:
        try:
            if "/" not in text:
                raise ValueError
            found.append(netaddr.IPNetwork(text))
        except (netaddr.AddrFormatError, ValueError):
            raise NetworkError(
                f"imex_network: {text!r} is no network; write it in CIDR notation, such as 198.51.100.0/24"
            ) from None
    return tuple(found)


def imex_addresses(
    claims: Mapping[str, Observation],
    places: Mapping[str, str],
    trays: Mapping[str, Tray],
    wanted: Sequence[netaddr.IPNetwork],
) -> dict[str, str | None]:
    """An address for every claim, unique in its clique: the one it has while that still serves, else the best.

    claims and places (its clique) by tray name; trays as the fabric has them; wanted: networks to choose from. An
    address that several trays show, as a container bridge has it, is no tray's own.
    """
    last = {name: tray["imex_address"] for name, tray in trays.items()}
    taken = {(tray["clique"], last[name]) for name, tray in trays.items() if name not in claims}
    chosen: dict[str, str | None] = {}

    def take(name: str, address: str | None) -> bool:
        if address is None or (places[name], address) in taken or not _within(address, wanted):
            return False
        taken.add((places[name], address))
        chosen[name] = address
        return True

    others = []
    for name, claim in claims.items():
        known = last.get(name)
        # A tray that shows no address at all was not asked for any.
        shows = known is not None and (not claim.addresses or known in [row.address for row in claim.addresses])
        if not (shows and take(name, known)):
            others.append(name)
    if others:
        shown = Counter([text for claim in claims.values() for text in {row.address for row in claim.addresses}])
        for name in others:
            own = [row.address for row in claims[name].addresses if shown[row.address] == 1]
            chosen[name] = None
            # An interface that is down loses no address, so the last one stands where nothing better is shown.
            for text in (*_best_first(own, claims[name].ansible_host, wanted), last.get(name)):
                if take(name, text):
                    break
    return chosen


def _best_first(texts: Iterable[str], connects_to: str | None, wanted: Sequence[netaddr.IPNetwork]) -> list[str]:
    """The usable ones of a tray's addresses.

    With networks: those in the first network that holds any, then those in the next. Without: the one that Ansible
    connects to, then IPv4 before IPv6, each in interface order. Never an address that is not unique beyond its link.
    """
    if wanted:
        numbers = {text: _number(text) for text in texts}
        ranges = map(_range, wanted)
        return list(
            dict.fromkeys(text for low, high in ranges for text, number in numbers.items() if low <= number <= high)
        )
    usable = [text for text in texts if _beyond_link(*_number(text))]
    return sorted(usable, key=lambda text: (text != connects_to, ":" in text)) if len(usable) > 1 else usable


def _within(text: str, wanted: Sequence[netaddr.IPNetwork]) -> bool:
    if not wanted:
        return True
    number = _number(text)
    return any(low <= number <= high for low, high in map(_range, wanted))


def _beyond_link(version: int, value: int) -> bool:
    return bisect_right(_ON_LINK_ONLY[version], value) % 2 == 0


def _number(text: str) -> Number:
    """Of an address that was checked when it was read: every source and the fabric file see to that."""
    if ":" in text:
        return 6, int.from_bytes(socket.inet_pton(socket.AF_INET6, text), "big")
    return 4, int.from_bytes(socket.inet_pton(socket.AF_INET, text), "big")


def _range(network: netaddr.IPNetwork) -> tuple[Number, Number]:
    """The first and the last number of a network."""
    return (network.version, network.first), (network.version, network.last)


def _netaddr() -> ModuleType:
    """The library, imported when it is first needed: Ansible loads this file on controllers that lack it, too."""
    try:
        import netaddr
    except ImportError:
        raise NetworkError(
            "netaddr: the Python library is missing; install it on the controller (requirements.txt of the collection)"
        ) from None
    return netaddr
