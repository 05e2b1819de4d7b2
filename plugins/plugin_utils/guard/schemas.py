# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Schemas of the answers of modules, made from the return values that each module documents.

A module and its documentation come from the same collection, so an answer that does not match was not made by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import MAX_MESSAGE, Subject
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import SEVERITIES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import missing_library

# Plugins are also loaded where no library is: by ansible-doc, and by ansible-test's check of imports.
try:
    import fastjsonschema
except ImportError:
    fastjsonschema = None  # type: ignore[assignment] # for mypy it is a module

MAX_TEXT = 16 * 1024
MAX_ENTRIES = 20_000
MAX_NUMBER = 2**63
MAX_PRINTED = 256 * 1024
MAX_WARNINGS = 100
"""Characters of a text, entries of a list, the largest number; characters of a message to a person, warnings. Numbers
are counts, IDs, times and sizes: none is negative."""

Schema = dict[str, Any]
"""A JSON Schema of draft 04, which ignores propertyNames, contains, const and if."""
Check = Callable[[Any], Any]
"""A compiled one: raises ValueError for data that does not match."""

_SIMPLE: dict[str, Schema] = {
    "str": {"type": ["string", "null"], "maxLength": MAX_TEXT},
    "path": {"type": ["string", "null"], "maxLength": 4096},
    "int": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_NUMBER},
    "float": {"type": ["number", "null"], "minimum": 0, "maximum": MAX_NUMBER},
    "bool": {"type": ["boolean", "null"]},
    # Any plain data, within the limits of trust.require_bounded.
    "raw": {},
}

_WORD = {"type": "string", "pattern": r"\A[a-z0-9_]{0,64}\Z"}
_NAME = {"type": ["string", "null"], "maxLength": 1024}
_VALUE = {"type": ["string", "number", "null"], "maxLength": MAX_MESSAGE}
_LIST = {"type": "array", "maxItems": MAX_ENTRIES, "items": _VALUE}


def _finding(value: Schema) -> Schema:
    """A finding; value: what a value for its message may be, besides a text, a number or a list of these.

    Only the Ansible controller names several nodes.
    """
    values = {"type": "object", "maxProperties": 16, "additionalProperties": {"anyOf": [_VALUE, _LIST, value]}}
    subjects = {
        **dict.fromkeys(("part", *Subject.__annotations__), _NAME),
        "gpu": _SIMPLE["int"],
        "nodes": {"type": "null"},
        "trays": {"type": "null"},
    }
    properties = {
        **subjects,
        "code": {**_WORD, "pattern": r"\A[a-z][a-z0-9_]{0,63}\Z"},
        "case": _WORD,
        "values": values,
        "severity": {"enum": [*SEVERITIES]},
        "message": {"type": "string", "maxLength": MAX_MESSAGE},
    }
    return {"type": "object", "required": ["code"], "properties": properties}


# backend_fallback has the finding about the other backend as a value.
FINDINGS = {"type": "array", "maxItems": 1000, "items": _finding(_finding(_LIST))}
"""The findings of a host: each a HostFinding, or with severity and message where the host words it."""


def compiled(schema: Schema) -> Check:
    """The check of a JSON Schema, to be made when a plugin is loaded, once for all forks.

    Without the library the check raises NvlinkError.
    """
    if fastjsonschema is not None:
        # From draft 6 on, 14.0 is an integer too.
        check: Check = fastjsonschema.compile({"$schema": "http://json-schema.org/draft-04/schema#", **schema})
        return check

    def missing(_value: Any) -> None:
        raise NvlinkError(missing_library("fastjsonschema"))

    return missing


check_findings = compiled(FINDINGS)


_PRINTED = ("msg", "stdout", "stderr", "module_stdout", "module_stderr")
_OF_ANY_MODULE: dict[str, Schema] = {
    **{name: {"type": "string", "maxLength": MAX_PRINTED} for name in _PRINTED},
    # A text, or an object of Ansible.
    "exception": {"maxLength": MAX_PRINTED},
    # ansible_parsed: of ansible-core 2.22, whether the answer was JSON.
    **{name: {"type": "boolean"} for name in ("changed", "failed", "skipped", "unreachable", "ansible_parsed")},
    **{name: {"type": "array", "maxItems": MAX_WARNINGS} for name in ("warnings", "deprecations")},
    "rc": {"type": "integer"},
    "invocation": {"type": "object"},
    "diff": {"type": ["object", "array"]},
    # One more than the module lists: the number of the others.
    "actions": {
        "type": "array",
        "maxItems": actions.MAX_ACTIONS + 1,
        "items": {"type": "string", "maxLength": actions.MAX_LENGTH + 20},
    },
    # Of Ansible itself, which removes such a fact from what a module printed.
    "ansible_facts.discovered_interpreter_python": {"type": "string", "maxLength": 1024},
}
OF_ANY_MODULE: dict[str, Check] = {name: compiled(schema) for name, schema in _OF_ANY_MODULE.items()}
"""The checks of what any module may return, by key as of_return() has them."""


def arguments(documented: str) -> dict[str, Specification]:
    """The argument specification of an action whose module has nothing but documentation, from its DOCUMENTATION."""
    return _arguments(yaml.safe_load(documented)["options"])


def _arguments(rows: Mapping[str, Any]) -> dict[str, Specification]:
    return {name: {**row, "options": _arguments(row.get("suboptions", {})) or None} for name, row in rows.items()}


def of_return(documented: str, choice: str = "") -> dict[str, Check]:
    """The checks of a module's return values, from its RETURN: `KEY`, and `ansible_facts.KEY` for each fact.

    A value may be null. A dictionary has the keys that it documents and no other; one without `contains` any. Findings
    are any, because trust.host_findings checks them.
    choice: an option and its value, such as `step=inspect`, without those that are returned with other values alone.
    """
    rows: dict[str, Any] = yaml.safe_load(documented) or {}
    # Of `actions`, which OF_ANY_MODULE has.
    rows.pop("extends_documentation_fragment", None)
    if choice:
        others = f"O({choice.partition('=')[0]}="
        returned = {name: row["returned"] for name, row in rows.items()}
        rows = {name: rows[name] for name, text in returned.items() if others not in text or f"O({choice})" in text}
    schemas = {name: _schema(row) for name, row in rows.items() if name != "ansible_facts"}
    facts = rows.get("ansible_facts", {}).get("contains", {})
    schemas.update({f"ansible_facts.{name}": _schema(row) for name, row in facts.items()})
    schemas["findings"] = {}
    return {name: compiled(schema) for name, schema in schemas.items()}


def _schema(row: Mapping[str, Any]) -> Schema:
    kind = row.get("type", "raw")
    contains = row.get("contains")
    entry: Schema = {}
    if contains:
        entry = {
            "properties": {name: {} if name == "findings" else _schema(inner) for name, inner in contains.items()},
            "additionalProperties": False,
        }
    if kind in ("dict", "complex"):
        return {"type": ["object", "null"], "maxProperties": MAX_ENTRIES, **entry}
    if kind == "list":
        items = _schema({"type": row.get("elements", "raw"), "contains": contains})
        return {"type": ["array", "null"], "maxItems": MAX_ENTRIES, "items": items}
    return _SIMPLE[kind]
