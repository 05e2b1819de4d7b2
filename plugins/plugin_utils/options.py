# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the options of a source; an invalid one is a SourceError that names source and key."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import CLUSTER_NAME
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

MAX_SECRET_BYTES = 64 * 1024


class SourceError(NvlinkError):
    """An option of a source, or the list of sources, is invalid."""


class OutageError(NvlinkError):
    """A source failed, or answered for too few trays, and there is no fabric file to fall back to."""


class RenderError(NvlinkError):
    """A file or a line to render is none, or the tree cannot be written; the message has the remedy."""


class Options:
    """The options of one source in an inventory file, of which none may be unknown; each is checked when it is read."""

    def __init__(self, values: Any, known: Sequence[str], name: str) -> None:
        if not isinstance(values, (Mapping, NoneType)):
            # Not shown, since it may contain a secret.
            raise SourceError(f"{name}: is not a mapping of options; write key: value lines under it")
        self.name, self._values = name, values or {}
        for key in self._values:
            if key not in known:
                raise SourceError(f"{name}: {shown(key)} is not a known option{nearest(key, known)}")

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def given(self, key: str) -> Any:
        """The value as it is, unchecked; None where the key is left out."""
        return self._values.get(key)

    def wrong(self, key: str, what: str) -> SourceError:
        """The error about a key; `what` follows the name of the key and contains the remedy."""
        return SourceError(f"{self.name}: {key} {what}")

    def refuse(self, keys: Iterable[str], what: str) -> None:
        """The error about the first of these keys that is set, since another option excludes them all."""
        for key in keys:
            if key in self:
                raise self.wrong(key, what)

    def _valid(self, key: str, default: Any, is_valid: Callable[[Any], bool], remedy: str) -> Any:
        """The value of a key; `default`, which need not be valid, where it is left out."""
        value = self._values.get(key)
        if value is None:
            return default
        if not is_valid(value):
            raise self.wrong(key, f"is {shown(value)}, {remedy}")
        return value

    def text(self, key: str) -> str | None:
        """A non-empty text; None where the key is left out."""
        value = self._valid(key, None, _is_text, "write a text")
        return None if value is None else str(value)

    def cluster(self, key: str) -> str | None:
        """The name of a Slurm or Kubernetes cluster, as in the fabric file."""
        name = self.text(key)
        if name is not None and not CLUSTER_NAME.fullmatch(name):
            raise self.wrong(key, f"is {shown(name)}, write a cluster name of letters, digits, dots and dashes")
        return name

    def needed(self, key: str, meaning: str) -> str:
        """A required text; meaning: what to write, for the message."""
        value = self.text(key)
        if value is None:
            raise self.wrong(key, f"is missing; write {meaning}")
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number from low to high."""
        remedy = f"use a number from {low:g} to {high:g}"
        return float(self._valid(key, default, lambda value: _is_between(value, low, high), remedy))

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """An integer from low to high."""

        def is_whole(value: Any) -> bool:
            return isinstance(value, int) and _is_between(value, low, high)

        return int(self._valid(key, default, is_whole, f"use an integer from {low} to {high}"))

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        return bool(self._valid(key, default, lambda value: isinstance(value, bool), "use true or false"))

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """A mapping with any content; errors do not show the value, since it may contain a secret."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(key, "is not a mapping; write key: value lines under it")
        return value

    def sequence(self, key: str) -> list[Any] | None:
        """A list with any content."""
        value: list[Any] | None = self._valid(key, None, lambda value: isinstance(value, list), "write a list")
        return value

    def words(self, key: str, default: Sequence[str] = ()) -> list[str]:
        """A list of words, or a text that is split as in a shell; the default where the key is left out."""
        value = self._values.get(key)
        try:
            words = shlex.split(value) if isinstance(value, str) else list(default) if value is None else value
        except ValueError as error:
            raise self.wrong(key, f"is {shown(value)}, which cannot be split ({error}); correct its quotes") from None
        if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
            raise self.wrong(key, f"is {shown(value)}, write words, such as -p 22, or a list of them")
        return list(map(str, words))

    def path(self, key: str) -> str | None:
        """The absolute path of a file, with ~ resolved; a relative path is an error."""
        value = self.text(key)
        if value is None:
            return None
        path = os.path.expanduser(value)
        if not os.path.isabs(path):
            raise self.wrong(key, f"is {shown(value)}, write an absolute path or one that starts with ~/")
        return path

    def content(self, key: str, limit: int) -> bytes | None:
        """Read the file that a key names, at most `limit` bytes."""
        path = self.path(key)
        if path is None:
            return None
        try:
            return atomic.bounded(path, limit)
        except OSError as error:
            raise self.wrong(key, f"{path} cannot be read ({error.strerror or 'unknown error'}); correct it") from None

    def secret_or_file(self, key: str) -> str | None:
        """The secret in KEY, or in the file of KEY_file."""
        file_key = f"{key}_file"
        if key in self and file_key in self:
            raise self.wrong(key, f"and {file_key} are both set; keep one")
        content = self.content(file_key, MAX_SECRET_BYTES)
        if content is None:
            value = self._values.get(key)
            if value is not None and not _is_text(value):
                raise self.wrong(key, "is not a text; correct it (its value is not shown)")
            return None if value is None else str(value).strip()
        secret = content.decode("utf-8", "replace").strip()
        if not secret:
            raise self.wrong(file_key, f"{self.path(file_key)} is empty; write the secret into it")
        return secret


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_between(value: Any, low: float, high: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high


def documented(fragment: str, source: str) -> tuple[str, ...]:
    """The options of a source, from the DOCUMENTATION of its doc fragment."""
    return tuple(yaml.safe_load(fragment)["options"][source]["suboptions"])
