# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a tray's addresses its IMEX domain uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.model import Observation, Tray

if TYPE_CHECKING:
    import netaddr


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
        # A tray that shows no address at all was not asked for any.
        shows = not claim.addresses or any(row.address == last.get(name) for row in claim.addresses)
        if not (shows and take(name, last.get(name))):
            others.append(name)
    if others:
        shown = Counter(text for claim in claims.values() for text in {row.address for row in claim.addresses})
        for name in others:
            best = [text for text in _candidates(claims[name], wanted) if shown[text] == 1]
            # An interface that is down loses no address, so the last one stands where nothing better is shown.
            if not any(take(name, text) for text in [*best, last.get(name)]):
                chosen[name] = None
    return chosen


def _candidates(claim: Observation, wanted: Sequence[netaddr.IPNetwork]) -> list[str]:
    """A tray's usable addresses, the best first.

    With networks: those in the first network that holds any, then those in the next. Without: the one that Ansible
    connects to, then IPv4 before IPv6, each in interface order. Never an address that is not unique beyond its link.
    """
    parsed = {row.address: _netaddr().IPAddress(row.address) for row in claim.addresses}
    if wanted:
        return list(dict.fromkeys(text for network in wanted for text, address in parsed.items() if address in network))
    usable = [text for text, address in parsed.items() if _beyond_link(address)]
    return sorted(usable, key=lambda text: (text != claim.ansible_host, ":" in text))


def _within(text: str, wanted: Sequence[netaddr.IPNetwork]) -> bool:
    return not wanted or any(_netaddr().IPAddress(text) in network for network in wanted)


def _beyond_link(address: netaddr.IPAddress) -> bool:
    return not (address.is_loopback() or address.is_link_local() or address.is_multicast() or int(address) == 0)


def _netaddr() -> ModuleType:
    """The library, imported when it is first needed: Ansible loads this file on controllers that lack it, too."""
    try:
        import netaddr
    except ImportError:
        raise NetworkError(
            "netaddr: the Python library is missing; install it on the controller (requirements.txt of the collection)"
        ) from None
    return netaddr
