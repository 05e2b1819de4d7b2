# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts without secrets."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SECRETS = (
    (re.compile(r"-----BEGIN .*?(-----END [A-Z ]+-----|$)", re.DOTALL), "***"),
    # A kind, namespace and name of Kubernetes are no token.
    (
        re.compile(r"eyJ[\w.-]{8,}|(?<![\w+/=.~-])(?![A-Za-z]+(/[a-z0-9.-]{1,63}){1,2}(?![\w+/=.~-]))[\w+/=.~-]{64,}"),
        "***",
    ),
    (re.compile(r"((?:secret|token|password|passwd)[\w\"'-]*\s*[=:]\s*[\"']?)[^\s\"',}]+", re.IGNORECASE), r"\1***"),
)


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
