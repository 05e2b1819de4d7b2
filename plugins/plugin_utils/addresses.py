# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a tray's addresses its IMEX domain uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.model import Address

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


def candidates(
    addresses: Sequence[Address], wanted: Sequence[netaddr.IPNetwork], ansible_host: str | None
) -> list[str]:
    """A tray's usable addresses, the best first.

    With networks: those in the first network that holds any, then those in the next. Without: the one that Ansible
    connects to, then IPv4 before IPv6, each in interface order. Never an address that is not unique beyond its link.
    """
    netaddr = _netaddr()
    texts = [address.address for address in addresses]
    if wanted:
        parsed = [(text, netaddr.IPAddress(text)) for text in texts]
        return list(dict.fromkeys(text for network in wanted for text, address in parsed if address in network))
    usable = [text for text in texts if _beyond_link(netaddr.IPAddress(text))]
    return sorted(usable, key=lambda text: (text != ansible_host, ":" in text))


def within(text: str, wanted: Sequence[netaddr.IPNetwork]) -> bool:
    """Whether an address is one that the networks allow; without networks every address is."""
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
