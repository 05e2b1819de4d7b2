# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of external data: each accepts any value and returns a plain one of the right type, or None."""

from __future__ import annotations

import json
import os
import re
import socket
import urllib.parse
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import ZERO_UUID

CLUSTER_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
GPU_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,64}")
VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,64}")
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}(Z|[+-][0-9]{2}:[0-9]{2})")
# The same patterns as in schema/fabric-1.json, for values that are to be written into the fabric file.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
# No tray has such a name. For Ansible each of the first three is the controller, with whatever address an inventory
# gives it. Where a play names a group, Ansible takes a host of that name, in whatever order it reads both. The last
# three are keys of a YAML inventory, as which Ansible reads a fabric file in an inventory folder.
RESERVED = frozenset(
    {"localhost", "127.0.0.1", "::1", "all", "ungrouped", "nvlink", "nvlink_resume", "nvlink_rollout", "trays"}
    | {"slurm_controller", "hosts", "children", "vars"}
)
CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# No dash first: the address would be an option of ssh.
HOST_ADDRESS = re.compile(r"[0-9A-Za-z._:%][0-9A-Za-z._:%-]{0,252}")
# No half of a surrogate pair either, which JSON can hold and no file.
SERIAL = re.compile(r"[^{}\[\]\x00-\x1f\x7f\ud800-\udfff]{1,256}")
_CLIQUE = re.compile(rf"({CLUSTER_UUID.pattern})\.(0|[1-9][0-9]{{0,9}})")
_SECRETS = (
    (re.compile(r"-----BEGIN .*?(-----END [A-Z ]+-----|$)", re.DOTALL), "***"),
    # A kind, namespace and name of Kubernetes are no token.
    (
        re.compile(r"eyJ[\w.-]{8,}|(?<![\w+/=.~-])(?![A-Za-z]+(/[a-z0-9.-]{1,63}){1,2}(?![\w+/=.~-]))[\w+/=.~-]{64,}"),
        "***",
    ),
    (re.compile(r"((?:secret|token|password|passwd)[\w\"'-]*\s*[=:]\s*[\"']?)[^\s\"',}]+", re.IGNORECASE), r"\1***"),
)

One = TypeVar("One", bound=Hashable)

Object = Mapping[str, Any]
"""An object of a JSON document from outside, as of the Kubernetes API: any key may be missing, or have any type."""

# A page has megabytes of the other characters.
_UNUSUAL = re.compile(r"[^\n\t -~]")

MAX_FLEET_FILE = 1 << 28
"""Bytes of a file that grows with the fleet: fabric file, state, proposal, verdict, what is rendered.

The fabric file of 100,000 trays has 47 MB."""

# Of an answer's largest size. A value costs up to 200 bytes of memory, and an empty list has 3 characters.
BYTES_PER_VALUE = 32


class TooManyValuesError(ValueError):
    """An answer has so many values that they would exhaust the memory."""


def check_count(values: int, max_size: int) -> None:
    """TooManyValuesError for more values than an answer of at most max_size bytes may have."""
    if values > max_size // BYTES_PER_VALUE:
        raise TooManyValuesError(f"has more than {max_size // BYTES_PER_VALUE} values")


def count_values(data: bytes | bytearray, max_size: int) -> None:
    """check_count() of a JSON document, by its commas and opening brackets, those in texts too."""
    check_count(sum(map(data.count, (b",", b"[", b"{"))), max_size)


def json_document(data: bytes | bytearray, max_size: int) -> Any:
    """The JSON document in an answer; ValueError or RecursionError if it is none, or has too many values."""
    count_values(data, max_size)
    return json.loads(data)


def json_file(path: str) -> Any:
    """The JSON document in a file; None where there is none, or none that can be read."""
    try:
        return json.loads(atomic.bounded(path, MAX_FLEET_FILE))
    except (OSError, ValueError, RecursionError):
        return None


def as_list(value: Any) -> list[Any]:
    """A list; an empty one for any other value."""
    return value if isinstance(value, list) else []


def only(values: Iterable[One]) -> One | None:
    """The one value that all of these have; None for several or none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def mapped(value: Any) -> Object:
    """A mapping; an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


def whole(value: Any) -> int | None:
    """A count, index or ID: an unsigned integer of 32 bits; None for any other value."""
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32
    return int(value) if valid else None


def text(form: re.Pattern[str]) -> Callable[[Any], str | None]:
    """A check for texts that match a pattern. str() also removes the tags of Ansible's own strings."""

    def check(value: Any) -> str | None:
        return str(value) if isinstance(value, str) and form.fullmatch(value) else None

    return check


def identity(value: Any) -> tuple[str, int] | None:
    """Parse the text form `<uuid>.<id>` of a clique; None for any other value and for the zero UUID."""
    match = _CLIQUE.fullmatch(value.lower()) if isinstance(value, str) else None
    if match is None or match[1] == ZERO_UUID or whole(int(match[3])) is None:
        return None
    return match[1], int(match[3])


def sentence(message: Any, limit: int = 200) -> str:
    """Clean an external text for a message: one line, printable, no template, at most `limit` characters."""
    if not isinstance(message, str):
        return ""
    line = " ".join("".join(char if char.isprintable() else " " for char in message[:1000]).split())
    line = line.replace("{{", "{ {").replace("{%", "{ %").replace("{#", "{ #")
    return (line if len(line) <= limit else f"{line[: limit - 3]}...").rstrip(".")


def ended(message: str) -> str:
    """A sentence with its end."""
    return message if message.endswith((".", "?")) else f"{message}."


def texts(value: Any) -> Iterator[str]:
    """All texts in a value and in the mappings and lists below it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from texts(item)


def hidden(message: str, secrets: Iterable[str]) -> str:
    """A message without known secrets of at least 4 characters, also as they stand in a URL."""
    for secret in secrets:
        if len(secret) >= 4:
            message = message.replace(secret, "***").replace(urllib.parse.quote(secret, safe=""), "***")
    return message


def redacted(message: str) -> str:
    """A program's message without PEM blocks, tokens, and values that follow a word such as password."""
    for pattern, replacement in _SECRETS:
        message = pattern.sub(replacement, message)
    return message


def printable(text: str) -> str:
    """A text of several lines without control characters, which would move the cursor of a terminal."""
    return _UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() else " ", text)


def nearest(word: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the closest known word, else all known words."""
    words = list(known)
    return similar(word, words) or f"; use one of {', '.join(words)}"


def similar(word: object, known: Iterable[str], otherwise: str = "") -> str:
    """The end of a message about an unknown word: the closest known word; `otherwise` where none is close.

    Where thousands of words are known, since a list of them would not help.
    """
    import difflib  # only needed when the run has failed

    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else otherwise


def absolute(path: object) -> str:
    """The path of a file of the controller that a person names: a relative one starts at the working folder.

    Not as DataLoader.path_dwim(), for which it starts at the playbook, which may be one of this collection.
    """
    return os.path.abspath(os.path.expanduser(str(path)))


def shown(value: object) -> str:
    """Format a value for a message: one line, at most 60 characters."""
    # str() first: it removes the tags of Ansible's own strings.
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_address(text: str) -> bool:
    """Whether a text is one IPv4 or IPv6 address. inet_pton, since the file may hold ten thousand of them."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError):  # the latter for a NUL, or what is no Unicode
        return False
    return True
