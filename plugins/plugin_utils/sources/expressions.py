# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JMESPath expressions of the inventory file, checked before any source is queried.

Next to the functions of JMESPath itself:

- lower(text)
- split(separator, text) -> list of texts
- sub(pattern, replacement, text): every match of a Python regular expression replaced
- pick(object, key): the value of a key that comes from the data; null if the object lacks it
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

# The pattern comes from the site, the text does not: this bounds the cost of a match.
MAX_TEXT = 1024


@functools.cache
def _options() -> Any:
    """jmespath options with the functions above; created on first use, since most sites do not need jmespath."""
    import jmespath
    from jmespath.functions import Functions, signature

    class CustomFunctions(Functions):
        @signature({"types": ["string"]})
        def _func_lower(self, text: str) -> str:
            return text.lower()

        @signature({"types": ["string"]}, {"types": ["string"]})
        def _func_split(self, separator: str, text: str) -> list[str]:
            return text.split(separator) if separator else [text]

        @signature({"types": ["string"]}, {"types": ["string"]}, {"types": ["string"]})
        def _func_sub(self, pattern: str, replacement: str, text: str) -> str | None:
            return re.sub(pattern, replacement, text) if len(text) <= MAX_TEXT else None

        @signature({"types": ["object"]}, {"types": ["string", "number", "null"]})
        def _func_pick(self, table: Object, key: Any) -> Any:
            return None if key is None else table.get(str(key))

    return jmespath.Options(custom_functions=CustomFunctions())


class Expression:
    """One expression; where: its option, such as `rest: fields: name`."""

    def __init__(self, text: Any, where: str) -> None:
        self._where = where
        if not isinstance(text, str) or not text.strip():
            raise SourceError(f"{where} is {shown(text)}, write a JMESPath expression")
        import jmespath

        try:
            self._parsed = jmespath.compile(str(text))
        except jmespath.exceptions.JMESPathError as error:
            raise SourceError(f"{where} is not a valid JMESPath expression ({_reason(error)}); correct it") from None
        for name, count in _calls(self._parsed.parsed):
            self._check_call(name, count)

    def __call__(self, data: Any) -> Any:
        """Evaluate the expression; None also where a function does not accept the type of the data."""
        from jmespath.exceptions import JMESPathError

        try:
            return self._parsed.search(data, options=_options())
        except re.error:
            raise SourceError(f"{self._where} calls sub() with an invalid pattern; correct it") from None
        except (JMESPathError, ArithmeticError, TypeError, ValueError, RecursionError):
            return None

    def _check_call(self, name: str, count: int) -> None:
        table = _options().custom_functions.FUNCTION_TABLE
        if name not in table:
            raise SourceError(f"{self._where} calls {shown(name)}, which is not a function{nearest(name, table)}")
        signature = table[name]["signature"]
        variadic = bool(signature) and bool(signature[-1].get("variadic"))
        if count < len(signature) or (count > len(signature) and not variadic):
            raise SourceError(
                f"{self._where} calls {name}() with {count} instead of {len(signature)} arguments; correct it"
            )


def _calls(node: Any) -> Iterator[tuple[str, int]]:
    """Yield (name, number of arguments) of every function call in a parsed expression."""
    if not isinstance(node, dict):
        return
    if node.get("type") == "function_expression":
        yield node["value"], len(node["children"])
    for child in node.get("children", ()):
        yield from _calls(child)


def _reason(error: Exception) -> str:
    """The first line of the error text; the other lines mark the position in the expression."""
    return (str(error).splitlines() or ["it cannot be parsed"])[0].rstrip(":. ")[:160]
