# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace what identifies a site in texts, each identifier by the same substitute everywhere. Pure.

UUIDs, addresses, MAC addresses and GUIDs are found by their form; names of hosts, domains, clusters and blocks, and
serial numbers, are given. What stays as it is: versions, numbers, clique IDs, the zero UUID, and in names the digits,
so that hostlists and the order of names stay. Relations between identifiers stay, too:

- A name keeps its structure: each run of letters becomes another word, everywhere the same. So r07 remains the prefix
  of r07t03, and rack[01-02]-t[01-18] becomes the hostlist of the substitutes.
- Addresses of one /24 network (IPv6: /64) stay in one, and IPv4 addresses keep the last number.

`leftovers` searches what was written for what must not be there, and shares no code with the replacement.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

ZERO_UUID = "00000000-0000-0000-0000-000000000000"
# Serial numbers of fewer characters, such as 0 or N/A, are no identifiers.
MIN_SERIAL = 5
# Of a text that is replaced, until all other forms are: characters for private use, which no tool prints.
_OPEN, _CLOSE = "\ue000", "\ue001"

_HEX = "[0-9A-Fa-f]"
_UUID = re.compile(rf"(?<!{_HEX})({_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})(?!{_HEX})")
_MAC = re.compile(
    rf"(?<![0-9A-Fa-f:.])(?<!{_HEX}-)({_HEX}{{2}}([:-]){_HEX}{{2}}(?:\2{_HEX}{{2}}){{4,}})(?![0-9A-Fa-f:-])"
)
_GUID = re.compile(rf"(?<![0-9A-Za-z])(0[xX]{_HEX}{{9,16}})(?![0-9A-Za-z])")
_IPV6 = re.compile(rf"(?<![0-9A-Za-z:.])((?:{_HEX}{{0,4}}:){{2,7}}{_HEX}{{0,4}})(?![0-9A-Za-z:])(?!\.[0-9])")
_IPV4 = re.compile(r"(?<![0-9.])((?:[0-9]{1,3}\.){3}[0-9]{1,3})(?![0-9])(?!\.[0-9])")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]|\[[0-9,-]+\])*")
# A path that has the name of a user.
_HOME = re.compile(r"/(?:home|users)/[^\s\"'<>:;,)]+", re.IGNORECASE)
_DASHED_NETWORK = re.compile(r"(?<![0-9])([0-9]{1,3})-([0-9]{1,3})-([0-9]{1,3})-(?=[0-9\[])")
_LETTERS = re.compile(r"[A-Za-z]+")
_NUMBERS = re.compile(r"(?:\[[0-9,-]*\]|[0-9])+")

Table = dict[str, dict[str, str]]
"""Kind of identifier -> original -> substitute."""


class CaptureError(NvlinkError):
    """A bundle cannot be made."""


class Anonymiser:
    """The substitutes of a site, and the rewriting of its texts with them.

    texts: everything that will be rewritten, in which identifiers are found by their form. names: of hosts, domains,
    clusters and blocks. serials: serial numbers.
    """

    def __init__(self, texts: Iterable[str], names: Iterable[str], serials: Iterable[str]) -> None:
        self.table: Table = {kind: {} for kind in ("UUIDs", "GUIDs", "serial numbers", "MAC addresses", "addresses")}
        names = [str(name) for name in names]
        found = _found([*texts, *names])
        given = {text for text in map(str.strip, serials) if _is_serial(text)}
        self._numbered("UUIDs", found["uuid"], lambda n: f"{n:08x}-0000-4000-8000-{n:012x}", given)
        self._numbered("GUIDs", found["guid"], lambda n: f"0x{(1 << 60) + n:016x}")
        self._numbered("MAC addresses", found["mac"], lambda n: ":".join(_pairs(f"02{n:010x}")))
        dashed = {int(match[2]) for name in names for match in _DASHED_NETWORK.finditer(name) if match[1] == "10"}
        self._addresses(found["address"], dashed)
        self._serials(given)
        self._names(names)

    def _numbered(
        self, kind: str, found: Collection[str], make: Callable[[int], str], serials: Collection[str] = ()
    ) -> None:
        """No substitute is one of the site's own, or has a serial number of the site, such as 00000001, as a group."""
        made = map(make, itertools.count(1))
        free = (text for text in made if text not in found and not {*text.split("-")} & {*serials})
        self.table[kind] = dict(zip(sorted(found), free))

    def _addresses(self, found: Collection[str], taken: set[int]) -> None:
        """IPv4 in networks of 10.0.0.0/8, IPv6 in fd00::/8; never one that the site has itself.

        taken: second numbers of networks of 10.0.0.0/8 that names hold.
        """
        mapping = self.table["addresses"] = {}
        parsed = sorted(map(ipaddress.ip_address, found), key=lambda one: (one.version, int(one)))
        self._firsts = _Numbers(range(256), taken | {int(a) >> 16 & 255 for a in parsed if int(a) >> 24 == 10})
        self._seconds: dict[int, _Numbers] = {}
        networks = _Numbers(range(1, 1 << 16), set())
        hosts = _Numbers(range(1, 1 << 32), set())
        for address in parsed:
            number = int(address)
            if address.version == 4:
                mapping[str(address)] = f"{self._network(str(address).rpartition('.')[0])}.{number & 255}"
            else:
                network = "fe80" if address.is_link_local else f"fd00:0:0:{networks.of(number >> 64):x}"
                mapping[str(address)] = str(ipaddress.ip_address(f"{network}::{hosts.of(number):x}"))

    def _network(self, text: str) -> str:
        """The substitute of the first three numbers of an IPv4 address; 10.A.B, where A stands for the first two."""
        first, _dot, last = text.rpartition(".")
        number = self._firsts.of(first)
        return f"10.{number}.{self._seconds.setdefault(number, _Numbers(range(256), set())).of(last)}"

    def _serials(self, found: Collection[str]) -> None:
        """Of the same length and with letters and digits where the original has them."""
        used = set(found)
        mapping = self.table["serial numbers"]
        for serial in sorted(found):
            for number in itertools.count(1):
                substitute = _shaped(serial, number)
                if substitute not in used:
                    break
            used.add(substitute)
            mapping[serial] = substitute
        parts = "|".join(map(re.escape, sorted(found, key=len, reverse=True)))
        self._serial = re.compile(rf"(?<![0-9A-Za-z])({parts})(?![0-9A-Za-z])") if parts else None

    def _names(self, names: Iterable[str]) -> None:
        self.table["names"] = {}
        self._known: set[str] = set()
        self._domains: set[str] = set()
        self._exact: set[str] = set()
        runs: set[str] = set()
        for name in sorted({name.strip(".") for name in names}):
            # A number is no name: it could stand anywhere.
            if name.lower() in COMMON or _is_address(name) or not _LETTERS.search(name):
                continue
            parts = name.split(".")
            domains = [".".join(parts[at:]) for at in range(1, len(parts) - 1)]
            words = [word for word in (name, parts[0], *domains) if word.lower() not in COMMON]
            self._known.update(map(_skeleton, words))
            self._domains.update(map(_skeleton, domains))
            # A word of letters alone is too common to be replaced within others: ctl in nvidia-imex-ctl.
            self._exact.update(word.lower() for word in words if not word.isalpha())
            runs.update(run for run in _LETTERS.findall(name))
        free = (word for word in _words() if word not in runs)
        self._word = dict(zip(sorted(runs), free))

    # ------------------------------------------------------------------------------------------------------ rewriting

    def rewrite(self, text: str) -> str:
        """The text with substitutes; what has the form of an identifier and was in no text of the site stays."""
        kept: list[str] = []

        def keep(substitute: str) -> str:
            kept.append(substitute)
            return f"{_OPEN}{len(kept) - 1}{_CLOSE}"

        def by(kind: str, normal: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
            def replace(match: re.Match[str]) -> str:
                substitute = self.table[kind].get(normal(match[1]))
                return match[0] if substitute is None else keep(substitute)

            return replace

        text = _HOME.sub("/home/removed", text.replace(_OPEN, "").replace(_CLOSE, ""))
        for pattern, kind, normal in _FORMS:
            text = pattern.sub(by(kind, normal), text)
        if self._serial is not None:
            text = self._serial.sub(lambda match: keep(self.table["serial numbers"][match[1]]), text)
        text = _NAME.sub(lambda match: self._name(match[0]), text)
        return re.sub(f"{_OPEN}([0-9]+){_CLOSE}", lambda match: kept[int(match[1])], text)

    def uuid(self, raw: bytes) -> bytes:
        """The substitute of a UUID of 16 bytes."""
        text = raw.hex()
        dashed = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        return bytes.fromhex(self.table["UUIDs"].get(dashed, dashed).replace("-", ""))

    def _name(self, token: str) -> str:
        """A name or hostlist with its words replaced, or a longer name with those that are parts of it: n01-ib0."""
        name = token.rstrip(".-_")
        if self._is_known(name):
            return self._renamed(name) + token[len(name) :]
        parts = re.split(r"([._-])", name)
        for length in range(len(parts) - 2, 0, -2):
            for at in range(0, len(parts) - length + 1, 2):
                part = "".join(parts[at : at + length])
                if part.lower() in self._exact or ("[" in part and self._is_known(part)):
                    before, after = "".join(parts[:at]), "".join(parts[at + length :])
                    return self._name(before) + self._renamed(part) + self._name(after) + token[len(name) :]
        return token

    def _is_known(self, name: str) -> bool:
        skeleton = _skeleton(name)
        return skeleton in self._known or any(skeleton.endswith(f".{domain}") for domain in self._domains)

    def _renamed(self, name: str) -> str:
        dashed = _DASHED_NETWORK.sub(self._dashed, name)
        renamed = _LETTERS.sub(lambda run: self._word.get(run[0], run[0]), dashed)
        self.table["names"][name] = renamed
        return renamed

    def _dashed(self, found: re.Match[str]) -> str:
        """Names such as ip-10-1-2-3 hold an address."""
        if any(int(number) > 255 for number in found.groups()):
            return found[0]
        return self._network(".".join(str(int(number)) for number in found.groups())).replace(".", "-") + "-"


class _Numbers:
    """A number for each key, in the order in which they are asked for, without the numbers that are taken."""

    def __init__(self, numbers: Iterable[int], taken: Collection[int]) -> None:
        self._free = (number for number in numbers if number not in taken)
        self._of: dict[object, int] = {}

    def of(self, key: object) -> int:
        if key not in self._of:
            try:
                self._of[key] = next(self._free)
            except StopIteration:
                raise CaptureError("the hosts have addresses of more than 256 networks; capture fewer hosts") from None
        return self._of[key]


# Neither the site's own nor of any use to know: words of the tools and of the bundle's own paths, and products. They
# stand in any bundle, so they are no names, also where a host or a cluster has one of them.
COMMON = frozenset(
    {
        *("localhost", "n/a", "none", "(null)", "null", "unknown"),
        *("backup", "block", "cluster", "config", "controller", "default", "domain", "down", "gpu", "host", "imex"),
        *("linux", "node", "nodes", "nvidia", "nvlink", "primary", "ready", "slurm", "slurmctld", "state", "status"),
        *("switch", "topology", "tray", "trays", "up", "version"),
        *("b200", "b300", "gb200", "gb300", "gh200", "h100", "h200", "vr200"),
    }
)


def _lower(text: str) -> str:
    return text.lower()


def _of_guid(text: str) -> str:
    return f"0x{int(text, 16):016x}"


def _of_mac(text: str) -> str:
    return text.lower().replace("-", ":")


def _of_address(text: str) -> str:
    """The usual form of an address; of what is none, and of those that each host has, the text itself."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


_FORMS = (
    (_UUID, "UUIDs", _lower),
    (_MAC, "MAC addresses", _of_mac),
    (_GUID, "GUIDs", _of_guid),
    (_IPV6, "addresses", _of_address),
    (_IPV4, "addresses", _of_address),
)


def _found(texts: Iterable[str]) -> dict[str, set[str]]:
    """The identifiers in texts by their form, in their usual form."""
    found: dict[str, set[str]] = {"uuid": set(), "guid": set(), "mac": set(), "address": set()}
    for text in texts:
        found["uuid"].update(match[1].lower() for match in _UUID.finditer(text))
        found["mac"].update(_of_mac(match[1]) for match in _MAC.finditer(text))
        found["guid"].update(_of_guid(match[1]) for match in _GUID.finditer(text))
        for pattern in (_IPV6, _IPV4):
            found["address"].update(match[1] for match in pattern.finditer(text) if _is_address(match[1]))
    found["uuid"].discard(ZERO_UUID)
    # A mask of bits, not an ID of a device.
    found["guid"] = {text for text in found["guid"] if int(text, 16) >= 1 << 32}
    found["address"] = {_of_address(text) for text in found["address"]}
    found["address"] = {text for text in found["address"] if not _is_everywhere(text)}
    return found


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_everywhere(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return address.is_loopback or address.is_unspecified or text == "255.255.255.255"


def _is_serial(text: str) -> bool:
    return len(text) >= MIN_SERIAL and len(set(text)) > 1 and any(char.isdigit() for char in text) and text.isascii()


def _shaped(serial: str, number: int) -> str:
    """The serial's form with a number: digits for digits and letters for letters, the last ones first."""
    result = []
    for char in reversed(serial):
        alphabet = string.digits if char.isdigit() else string.ascii_uppercase if char.isalpha() else char
        number, digit = divmod(number, len(alphabet)) if len(alphabet) > 1 else (number, 0)
        result.append(alphabet[digit])
    if number:
        raise CaptureError(f"there are more serial numbers of {len(serial)} characters than can be replaced")
    return "".join(reversed(result))


def _skeleton(name: str) -> str:
    return _NUMBERS.sub("#", name)


def _pairs(text: str) -> Iterator[str]:
    return (text[at : at + 2] for at in range(0, len(text), 2))


def _words() -> Iterator[str]:
    """a, b, ..., z, aa, ab, ..."""
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            yield "".join(letters)


# ------------------------------------------------------------------------------------------------------------ leftovers


def leftovers(files: Mapping[str, str], originals: Iterable[str]) -> list[tuple[str, str]]:
    """(path, original) for each original that stands in a file or its path, in any case, as a word of its own.

    A word of letters alone, as which a host may be named, counts only where it is no part of a longer name
    (nvidia-imex-ctl), no key of JSON and no element of XML. A text is compared run by run of letters and digits, each
    with the lengths of the originals that begin so, so that the time hardly grows with the number of originals.
    """
    words = {text.lower() for text in originals}
    lengths: dict[str, set[tuple[int, int]]] = {}
    for word in words:
        head = _RUN.search(word)
        if head:
            lengths.setdefault(head[0], set()).add((head.start(), len(word)))
    found = set()
    for path, text in files.items():
        lowered = f"{path}\n{text}".lower()
        for run in _RUN.finditer(lowered):
            for before, length in lengths.get(run[0], ()):
                start = run.start() - before
                word = lowered[start : start + length] if start >= 0 else ""
                if word in words and _is_whole(lowered, start, word):
                    found.add((path, word))
    return sorted(found)


_RUN = re.compile("[0-9a-z]+")


def _is_whole(text: str, start: int, word: str) -> bool:
    before, after = text[max(0, start - 1) : start], text[start + len(word) : start + len(word) + 2]
    if before.isalnum() or after[:1].isalnum():
        return False
    if not word.isalpha():
        return True
    is_key = after == '":' or (before in ("<", "/") and after[:1] in (">", " "))
    return not is_key and before not in ("-", "_", ".") and after[:1] not in ("-", "_")
