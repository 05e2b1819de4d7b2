# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's own addresses, from the C library's getifaddrs(3).

Layouts after ifaddrs.h and the sockaddr structs of Linux.
"""

from __future__ import annotations

import ctypes
import ipaddress
import re
from typing import TypedDict

AF_INET, AF_INET6 = 2, 10
_NAME = re.compile(r"[A-Za-z0-9_.:@-]{1,64}")


class Address(TypedDict):
    interface: str
    address: str
    prefix: int


class Ifaddrs(ctypes.Structure):
    _fields_ = (
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("flags", ctypes.c_uint),
        ("address", ctypes.c_void_p),
        ("mask", ctypes.c_void_p),
        ("broadcast", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    )


def read() -> list[Address]:
    """Interface, address and prefix of each address that other hosts can reach; OSError if they cannot be read.

    Grouped by interface, in the kernel's order, IPv4 before IPv6.
    """
    library = ctypes.CDLL(None, use_errno=True)
    first = ctypes.c_void_p()
    if library.getifaddrs(ctypes.byref(first)):
        raise OSError(ctypes.get_errno(), "getifaddrs failed")
    rows: dict[str, list[Address]] = {}
    try:
        at = first.value
        while at:
            entry = Ifaddrs.from_address(at)
            # An alias of an address, as in eth0:1, is not an interface.
            name = entry.name.decode("ascii", "replace").partition(":")[0]
            of_interface = rows.setdefault(name, [])
            for family, offset, size in ((AF_INET, 4, 4), (AF_INET6, 8, 16)):
                if entry.address and ctypes.c_ushort.from_address(entry.address).value == family:
                    raw = _bytes(entry.address + offset, size)
                    mask = _bytes(entry.mask + offset, size) if entry.mask else b"\xff" * size
                    of_interface += usable(name, raw, bin(int.from_bytes(mask, "big")).count("1"))
            at = entry.next
    finally:
        library.freeifaddrs(first)
    return [row for of_interface in rows.values() for row in of_interface]


def _bytes(address: int, size: int) -> bytes:
    return bytes((ctypes.c_uint8 * size).from_address(address))


def parse(text: str) -> list[Address]:
    """The same from the output of ``ip -j address show``; empty where it cannot be parsed."""
    import json  # reading through the C library does not need it

    found = []
    try:
        for link in json.loads(text):
            for entry in link.get("addr_info", ()):
                raw = ipaddress.ip_address(str(entry["local"])).packed
                prefix = int(entry["prefixlen"])
                found += usable(link["ifname"], raw, prefix) if 0 <= prefix <= len(raw) * 8 else []
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return []
    return found


def usable(interface: str, raw: bytes, prefix: int) -> list[Address]:
    """The address, of 4 or 16 bytes, as a list; empty for a loopback, link-local, multicast or unspecified one."""
    address = ipaddress.ip_address(raw)
    if not _NAME.fullmatch(interface) or is_local(address):
        return []
    return [{"interface": interface, "address": str(address), "prefix": prefix}]


def is_local(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address identifies no host beyond its link."""
    return address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
