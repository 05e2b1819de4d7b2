# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the YAML that slurmctld reads (libyaml without aliases), with the places of comments and keys, without PyYAML.

Private to this collection; it may change in any release. Python 3.9, standard library only. Every scalar stays text, as
in Slurm. The tests compare it with PyYAML and with slurmctld.

PyYAML on the Ansible controller would not replace it: the module reads topology.yaml and ``scontrol show topoconf`` on
the host of slurmctld, several times under its lock and again after an apply, and that host may have no PyYAML. PyYAML
also drops comments.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

MAX_DEPTH = 60


class YamlError(NvlinkError):
    """The text is not YAML that slurmctld reads; the message names the line."""


class Key(NamedTuple):
    """Where a key of a map is: the depth of its map (1: the root), its column, and the span of its value."""

    depth: int
    name: str
    column: int
    start: int
    end: int


_ESCAPES = dict(zip('0abtnvfre "/\\N_LP\t', '\0\a\b\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029\t'))
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_QUOTED = re.compile(r""""((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)'""", re.DOTALL)
_PROPERTY = re.compile(r"[&!][^\s,\[\]{}]*(?=\s|\Z)")
_BLOCK_SCALAR = re.compile(r"[|>]([+-]?)([1-9]?)([+-]?)[ \t]*(?:(?<=[ \t])#.*)?(?:\n|\Z)")
# The characters of a plain scalar on one line: a colon ends it before white space, # after white space.
_PLAIN = re.compile(r"(?:[^\s:#]|:(?=\S)|(?<=\S)#)(?:[^\n:#]|:(?=\S)|(?<=\S)#)*")
_PLAIN_IN_FLOW = re.compile(
    r"(?:[^\s:#,\[\]{}]|:(?=[^\s,\[\]{}])|(?<=\S)#)(?:[^\n:#,\[\]{}]|:(?=[^\s,\[\]{}])|(?<=\S)#)*"
)
_BREAKS = re.compile(r"[ \t]*\n\s*")


class Reader:
    """One text: ``value`` is its document (None if empty)."""

    def __init__(self, text: str) -> None:
        self.text = re.sub(r"\r\n?", "\n", text[1:] if text.startswith("\ufeff") else text)
        self.at = 0
        self.depth = 0
        self.items: list[int] = []  # offsets of the dashes of a list at the root
        self.keys: list[Key] = []
        self.comments: dict[int, str] = {}
        self.value = self._document()

    # ------------------------------------------------------------------------------------------------- places

    def column(self, at: int | None = None) -> int:
        at = self.at if at is None else at
        return at - self.text.rfind("\n", 0, at) - 1

    def _fail(self, why: str) -> YamlError:
        return YamlError(f"Line {self.text.count(chr(10), 0, self.at) + 1} of topology.yaml cannot be read, {why}.")

    def _next(self, word: str = "") -> bool:
        """Whether the word, or white space, follows here; a word that is an indicator needs white space behind it."""
        return (
            self.text.startswith(word, self.at) and self.text[self.at + len(word) : self.at + len(word) + 1] in "\n\t "
        )

    def _ended(self) -> bool:
        return self.at >= len(self.text) or (self.column() == 0 and (self._next("---") or self._next("...")))

    def _skip(self, flow: bool = False) -> bool:
        """Skip white space and comments; whether a line ended."""
        began = self.at == 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\n":
                began = True
            elif char == "#" and (self.at == 0 or self.text[self.at - 1] in " \t\n"):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                self.comments[self.at] = self.text[self.at : end].rstrip()
                self.at = end
                continue
            elif char not in " \t":
                if began and not flow and "\t" in self.text[self.at - self.column() : self.at]:
                    raise self._fail("it is indented with a tab: use spaces")
                break
            self.at += 1
        return began

    # ------------------------------------------------------------------------------------------------- documents

    def _document(self) -> Any:
        self._skip()
        while self.text.startswith("%", self.at) and self.column() == 0:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            self._skip()
        inline = False
        if self.column() == 0 and self._next("---"):
            self.at += 3
            inline = not self._skip()
        if self._ended():
            return None
        value = self._node(-1, inline)
        self._skip()
        if self.column() == 0 and self._next("..."):
            self.at += 3
            self._skip()
        if self.at < len(self.text):
            several = self._next("---")
            raise self._fail("it begins another document" if several else "its indentation fits nothing above it")
        return value

    def _node(self, indent: int, inline: bool) -> Any:
        """The node here, which is in a block of that indentation; inline: behind a key, so that no block begins."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._fail("it is nested too deeply")
        try:
            return self._value(indent, inline)
        finally:
            self.depth -= 1

    def _value(self, indent: int, inline: bool) -> Any:
        start = self.at
        lines = self._properties()
        if self._ended() or (lines and self.column() <= indent and not self._next("-")):
            return ""
        if not inline or lines:
            if self._next("-"):
                return self._list(self.column())
            if self._next("?") or self._is_key():
                if not lines:
                    self.at = start
                return self._map(self.column())
        elif self._next("-") or self._is_key():
            raise self._fail("it has a list or map behind a key: begin it on the next line")
        char = self.text[self.at]
        if char in "|>":
            return self._block_scalar(indent)
        return self._flow(False, indent)

    def _properties(self) -> bool:
        """Skip a tag and an anchor, which slurmctld does not use; whether a line ended after them."""
        lines = False
        while True:
            found = _PROPERTY.match(self.text, self.at)
            if found is None:
                return lines
            self.at = found.end()
            lines = self._skip() or lines

    def _is_key(self) -> bool:
        """Whether a key of a map begins here; stays here."""
        at, depth, keys = self.at, self.depth, len(self.keys)
        try:
            self._properties()
            if self.at >= len(self.text) or self.text[self.at] in "|>":
                return False
            self._flow(False, 10**9, one_line=True)
            found = re.compile(r"[ \t]*:(?=\s|\Z)").match(self.text, self.at)
            return found is not None and "\n" not in self.text[at : self.at]
        except YamlError:
            return False
        finally:
            self.at, self.depth = at, depth
            del self.keys[keys:]

    def _list(self, column: int) -> list[Any]:
        items: list[Any] = []
        while not self._ended() and self.column() == column and self._next("-"):
            if self.depth == 1:
                self.items.append(self.at)
            self.at += 1
            lines = self._skip()
            empty = self._ended() or (lines and self.column() <= column)
            items.append("" if empty else self._node(column, False))
            self._skip()
        if not self._ended() and self.column() > column:
            raise self._fail("its indentation fits nothing above it")
        return items

    def _map(self, column: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not self._ended() and self.column() == column and not self._next("-"):
            if self._next("?"):
                self.at += 1
                lines = self._skip()
                key = "" if lines and self.column() <= column else self._node(column, False)
                self._skip()
                if self.column() != column or not self._next(":"):
                    self._put(result, key, "", column, self.at)
                    continue
            elif self._is_key():
                self._properties()
                key = self._flow(False, 10**9, one_line=True)
                self.at = self.text.index(":", self.at)
            else:
                raise self._fail("a key with a colon is missing")
            self.at += 1
            lines, value = self._skip(), ""
            begin = self.at
            if not self._ended() and (
                not lines or self.column() > column or (self.column() == column and self._next("-"))
            ):
                value = self._list_or_node(column, lines)
            self._put(result, key, value, column, begin)
            self._skip()
        if not self._ended() and self.column() > column:
            raise self._fail("its indentation fits nothing above it")
        return result

    def _list_or_node(self, column: int, lines: bool) -> Any:
        # libyaml writes the items of a list at the indentation of its key.
        return self._node(column - 1 if lines and self.column() == column else column, not lines)

    def _put(self, result: dict[str, Any], key: Any, value: Any, column: int, begin: int) -> None:
        if not isinstance(key, str):
            raise self._fail("a key is not text")
        if key in result:
            raise self._fail(f"the key {key[:40]} is there twice")
        result[key] = value
        self.keys.append(Key(self.depth, key, column, begin, self.at))

    # ------------------------------------------------------------------------------------------------- scalars, flow

    def _flow(self, flow: bool, indent: int, one_line: bool = False) -> Any:
        """A flow list or map, or a scalar that is no block scalar."""
        char = self.text[self.at : self.at + 1]
        if char in ("[", "{"):
            return self._collection(char)
        if char in ('"', "'"):
            found = _QUOTED.match(self.text, self.at)
            if found is None:
                raise self._fail("a quoted text has no end")
            self.at = found.end()
            if found.group(2) is not None:
                return _BREAKS.sub(_fold, found.group(2).replace("''", "'"))
            return self._unescaped(found.group(1))
        if char == "*":
            raise self._fail("it uses an alias (*), which slurmctld does not support")
        if char in ("", *",]}#&!|>%@`") or (char in "-?:" and (self._blank_after() or (flow and char in "?:"))):
            raise self._fail(f"{char or 'its end'} stands where a value is expected")
        return self._plain(flow, indent, one_line)

    def _blank_after(self) -> bool:
        return self.text[self.at + 1 : self.at + 2] in ("", " ", "\t", "\n")

    def _plain(self, flow: bool, indent: int, one_line: bool) -> str:
        pattern = _PLAIN_IN_FLOW if flow else _PLAIN
        text = ""
        while True:
            found = pattern.match(self.text, self.at)
            if found is None:
                break
            text += found.group().rstrip()
            self.at = found.start() + len(found.group().rstrip())
            gap = re.compile(r"[ \t]*\n\s*").match(self.text, self.at)
            if one_line or gap is None or gap.end() >= len(self.text):
                break
            kept, self.at = self.at, gap.end()
            if self._ended() or self.text[self.at] == "#" or (not flow and self.column() <= indent):
                self.at = kept
                break
            if not pattern.match(self.text, self.at):
                self.at = kept
                break
            text += _fold(gap)
        if not flow and not one_line and re.compile(r"[ \t]*:(?=\s|\Z)").match(self.text, self.at):
            raise self._fail("it has a map inside a value")
        return text

    def _unescaped(self, text: str) -> str:
        def escape(found: re.Match[str]) -> str:
            code = found.group(1)
            if code[0] in "xuU" and len(code) > 1:
                if int(code[1:], 16) > 0x10FFFF:
                    raise self._fail("it has an invalid character")
                return chr(int(code[1:], 16))
            if code not in _ESCAPES:
                raise self._fail(f"it has the unknown escape \\{code}")
            return _ESCAPES[code]

        # A line that ends with a backslash goes on without a space.
        parts = re.split(r"(\\\n[ \t]*|\\x..|\\u.{4}|\\U.{8}|\\.|[ \t]*\n\s*)", text)
        return "".join(
            "" if part.startswith("\\\n") else _folded(part) if "\n" in part else _ESCAPE.sub(escape, part)
            for part in parts
        )

    def _collection(self, opening: str) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._fail("it is nested too deeply")
        self.at += 1
        items: list[Any] = []
        result: dict[str, Any] = {}
        closing = "]" if opening == "[" else "}"
        while True:
            self._skip(True)
            if self.text.startswith(closing, self.at):
                self.at += 1
                self.depth -= 1
                return items if opening == "[" else result
            explicit = self._next("?")
            if explicit:
                self.at += 1
                self._skip(True)
            self._properties()
            value = "" if self.text[self.at : self.at + 1] in (",", ":", closing) else self._flow(True, -1)
            self._skip(True)
            if self.text.startswith(":", self.at):
                self.at += 1
                self._skip(True)
                self._properties()
                begin = self.at
                behind = "" if self.text[self.at : self.at + 1] in (",", closing) else self._flow(True, -1)
                if opening == "{":
                    self._put(result, value, behind, 0, begin)
                else:
                    items.append({value: behind} if isinstance(value, str) else behind)
                self._skip(True)
            elif opening == "{":
                self._put(result, value, "", 0, self.at)
            else:
                items.append({value: ""} if explicit and isinstance(value, str) else value)
            if self.text.startswith(",", self.at):
                self.at += 1
            elif not self.text.startswith(closing, self.at):
                raise self._fail(f"a list or map has no {closing}")

    def _block_scalar(self, indent: int) -> str:
        found = _BLOCK_SCALAR.match(self.text, self.at)
        if found is None:
            raise self._fail("a block scalar has a bad first line")
        folded, chomp = self.text[self.at] == ">", found.group(1) or found.group(3)
        self.at = found.end()
        least = max(indent, 0) + int(found.group(2)) if found.group(2) else 0
        lines: list[str] = []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            width = len(line) - len(line.lstrip(" "))
            if line.strip(" ") and not least:
                least = max(width, indent + 1, 1)
            if line.strip(" ") and (width < least or self._ended()):
                break
            lines.append(line[least:] if least else "")
            self.at = min(end + 1, len(self.text))
        # The line break before what follows stays unread.
        self.at -= 1 if lines and self.text[self.at - 1] == "\n" else 0
        kept = len(lines)
        while kept and not lines[kept - 1]:
            kept -= 1
        body, tail = lines[:kept], len(lines) - kept
        open_end = self.at >= len(self.text) and not self.text.endswith("\n") and not tail
        if folded:
            text, gap, before = "", 0, None
            for line in body:
                if not line:
                    gap += 1
                    continue
                if before is not None:
                    plain = before[0] not in " \t" and line[0] not in " \t"
                    text += ("\n" * gap if gap else " ") if plain else "\n" * (gap + 1)
                elif gap:
                    text += "\n" * gap
                text, gap, before = text + line, 0, line
        else:
            text = "\n".join(body)
        return text + (
            "" if chomp == "-" or open_end or not (body or chomp) else "\n" * (1 + (tail if chomp else 0) - (not body))
        )


def _fold(found: re.Match[str]) -> str:
    return _folded(found.group())


def _folded(gap: str) -> str:
    """What a line break inside a scalar means: a space, or the empty lines."""
    return "\n" * (gap.count("\n") - 1) or " "
