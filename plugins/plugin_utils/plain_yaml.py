# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read YAML as Slurm does: maps, lists and texts, without types, aliases and keys that are there twice. Pure."""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError


class YamlError(NvlinkError):
    """The text is not such YAML; the message names the line."""


def load(text: str) -> Any:
    """The maps, lists and texts of a YAML text; None where it is empty."""
    return _plain(composed(text), set())


def composed(text: str) -> yaml.Node | None:
    """The node of a YAML text, with the places of its parts; None where it is empty."""
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _error(mark.line if mark else 0, error.problem or error.context or "no YAML") from None
    # ValueError and OverflowError for a number of a character that does not exist.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise _error(0, type(error).__name__) from None
    return node


def _error(line: int, why: str) -> YamlError:
    return YamlError(f"Line {line + 1} cannot be read ({why}).")


def _plain(node: yaml.Node | None, seen: set[int]) -> Any:
    if node is None:
        return None
    line = node.start_mark.line
    if id(node) in seen:
        raise _error(line, "it uses an alias (*), which slurmctld does not support")
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, seen) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    found: dict[str, Any] = {}
    for key, value in node.value:
        name = _plain(key, seen)
        if not isinstance(name, str):
            raise _error(line, "a key is not text")
        if name in found:
            raise _error(key.start_mark.line, f"the key {name[:40]} is there twice")
        found[name] = _plain(value, seen)
    return found
