# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of fields in a support bundle, each a method that maps a value by what the field means. Pure.

Equal identifiers have equal substitutes, and relations between them stay:

- A name keeps its structure: each run of letters becomes another word, everywhere the same. So r07 remains the prefix
  of r07t03, and rack[01-02]-t[01-18] becomes the hostlist of the substitutes.
- Addresses of one /24 network (IPv6: /64) stay in one, and IPv4 addresses keep the last number.

What has not the form of its kind, and what has no kind, is reduced to its shape: letters and digits are masked.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import string
from collections.abc import Iterator

REMOVED = "(removed)"
# Serial numbers of fewer characters, such as 0 or N/A, are no identifiers.
MIN_SERIAL = 5
MAX_SHAPE = 200
"""Characters of a masked value."""
# A GUID below is a mask of bits or a scrubbed value, not an ID of a device.
_MIN_GUID = 1 << 32

_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Words that tools print in any field where they have no value.
_ABSENT = frozenset(
    {"", "n/a", "[n/a]", "none", "null", "(null)", "unknown", "localhost", "yes", "no", "true", "false"}
    | {"enabled", "disabled", "active", "not active", "not supported", "gpu is lost", "unknown error"}
)
# Not a path.
_PLAIN = re.compile(r"(?!(?:.*[^0-9A-Za-z])?/)[A-Za-z0-9 _.,:;%/()\[\]+'-]{0,100}")
_VERSION = re.compile(r"[0-9]{1,6}(?:[.:-][0-9]{1,6}){0,7}")
_ITEM = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")
_STRUCTURED = re.compile(r"[A-Za-z0-9._\[\],-]+")
_LETTERS = re.compile("[A-Za-z]+")
# The first three numbers of an address within a name, such as ip-10-1-2-3.
_NETWORK = re.compile(r"(?<![0-9])([0-9]{1,3})([._-])([0-9]{1,3})\2([0-9]{1,3})(?=\2[0-9\[])")

Table = dict[str, dict[str, str]]
"""Kind of identifier -> original -> substitute."""


KINDS = ("UUIDs", "GUIDs", "serial numbers", "addresses", "names")


class Substitutes:
    """The substitutes of a site's identifiers.

    At first each identifier stands for itself, and is collected. After assign() each has its substitute, which is
    none of the originals.
    """

    def __init__(self) -> None:
        self.table: Table = {kind: {} for kind in KINDS}
        self._networks: dict[str, str] = {}
        self._words: dict[str, str] = {}

    def assign(self) -> None:
        """Give each identifier that was collected its substitute; the same ones give the same substitutes."""
        _number(self.table["UUIDs"], (f"{n:08x}-0000-4000-8000-{n:012x}" for n in itertools.count(1)))
        _number(self.table["GUIDs"], (f"0x{(1 << 60) + n:016x}" for n in itertools.count(1)))
        _number(self._words, _words())
        numbers, serials = itertools.count(1), self.table["serial numbers"]
        for serial in sorted(serials):
            padded = (f"{number:0{len(serial)}d}" for number in numbers)
            serials[serial] = next(text for text in padded if text not in serials)
        # 10.0.0.0/8 first. An answer has less than the 16 million networks after which a number would pass 255.
        _number(self._networks, (f"{10 + (n >> 16)}.{n >> 8 & 255}.{n & 255}" for n in itertools.count()))
        self._assign_addresses(self.table["addresses"])
        self.table["names"].clear()

    def _assign_addresses(self, addresses: dict[str, str]) -> None:
        wide: dict[int, int] = {}
        for at, text in enumerate(sorted(addresses), 1):
            address = ipaddress.ip_address(text)
            if address.version == 4:
                network, _dot, last = text.rpartition(".")
                addresses[text] = f"{self._networks[network]}.{last}"
            else:
                number = wide.setdefault(int(address) >> 64, len(wide) + 1)
                addresses[text] = str(ipaddress.IPv6Address((0xFD00 << 112) + (number << 64) + at))

    # ----------------------------------------------------------------------------------------------------------- kinds

    def uuid(self, text: str) -> str:
        """A UUID, with a prefix such as GPU-; the zero UUID stays."""
        prefix, bare = (text[:4], text[4:]) if text[3:4] == "-" else ("", text)
        if not _UUID.fullmatch(bare.lower()):
            return self.masked(text)
        return text if set(bare) == {"0", "-"} else prefix + self._of("UUIDs", bare.lower())

    def guid(self, text: str) -> str:
        """A number of 64 bits in hexadecimal."""
        if not re.fullmatch("0[xX][0-9A-Fa-f]{1,16}", text):
            return self.masked(text)
        number = int(text, 16)
        return text if number < _MIN_GUID else self._of("GUIDs", f"0x{number:016x}")

    def serial(self, text: str) -> str:
        """A serial number; one of equal characters is none."""
        is_serial = MIN_SERIAL <= len(text) <= MAX_SHAPE and len(set(text)) > 1 and any(map(str.isdigit, text))
        return self._of("serial numbers", text) if is_serial else text if set(text) <= {"0"} else self.masked(text)

    def name(self, text: str) -> str:
        """A name, an address, or a hostlist of them, whatever its length: no hostlist is expanded."""
        return _ITEM.sub(lambda item: self._name(item[0]), text)

    def plain(self, text: str) -> str:
        """What identifies nothing: a word, number, version or state of a tool."""
        return text if _PLAIN.fullmatch(text) else self.masked(text)

    def version(self, text: str) -> str:
        """The numbers of a version; what a site or distribution adds is masked."""
        numbers = _VERSION.match(text)
        end = numbers.end() if numbers else 0
        return text[:end] + self.masked(text[end:])

    def masked(self, text: str) -> str:
        """A value of unknown meaning: its letters and digits are masked; words for an absent value stay."""
        if text.lower() in _ABSENT:
            return text
        shape = re.sub("[0-9]", "0", re.sub("[A-Z]", "X", re.sub("[a-z]", "x", text[:MAX_SHAPE])))
        return re.sub(r"[^ -~\s]", "x", shape)

    def removed(self, text: str) -> str:
        """Free text."""
        return REMOVED if text else ""

    def _of(self, kind: str, original: str) -> str:
        return self.table[kind].setdefault(original, original)

    def _name(self, text: str) -> str:
        if text.lower() in _ABSENT:
            return text
        if _UUID.fullmatch(text.lower()):
            return self.uuid(text)
        address = _address(text)
        if address:
            return self._address(address)
        replaced, networks = _NETWORK.subn(self._network_in_name, text)
        replaced, words = _LETTERS.subn(lambda run: self._words.setdefault(run[0], run[0]), replaced)
        if not _STRUCTURED.fullmatch(text) or not networks + words:
            replaced = self._words.setdefault(text, text)
        return self.table["names"].setdefault(text, replaced)

    def _address(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
        if address.is_loopback or address.is_unspecified:
            return str(address)
        if address.version == 4:
            network = str(address).rpartition(".")[0]
            self._networks.setdefault(network, network)
        return self._of("addresses", str(address))

    def _network_in_name(self, found: re.Match[str]) -> str:
        network = ".".join(str(min(int(found[at]), 255)) for at in (1, 3, 4))
        return self._networks.setdefault(network, network).replace(".", found[2])


def _number(originals: dict[str, str], candidates: Iterator[str]) -> None:
    free = (text for text in candidates if text not in originals)
    originals.update(zip(sorted(originals), free, strict=False))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _words() -> Iterator[str]:
    """a, b, ..., z, aa, ab, ..."""
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            yield "".join(letters)
