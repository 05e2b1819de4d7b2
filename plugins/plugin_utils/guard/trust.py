# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is believed of a host that may be compromised: nothing but its own answer, in the shape that was asked for.

Any module result may hold `ansible_facts`. By default Ansible makes them variables of the host that rank above role
defaults and inventory variables (config INJECT_FACTS_AS_VARS). So a tray could set an option of a role, and with it
which file of the controller it is sent or which command runs elsewhere. Two rules prevent that here:
`foreign_variables` names facts that are variables of this collection, and `accepted` reduces a module's answer to its
schema. Pure functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.specifications import OWN_PREFIXES, VARIABLES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import printable, sentence

OWN_FACTS = frozenset({"nvlink_fabric", "nvlink_imex", "nvlink_channels", "nvlink_versions", "nvlink_links"})
"""The facts that modules of this collection return."""

MAX_DEPTH = 20
MAX_ITEMS = 200_000
MAX_TEXT = 4 * 1024 * 1024
MAX_MESSAGE = 256 * 1024
MAX_MESSAGES = 100
"""Limits of any answer: levels of nesting; values in all; characters of one text (slurm.conf of 10,000 trays with their
addresses has 0.5 MB), of a message to a person; warnings."""

Check = Callable[[Any], Any]
"""A compiled JSON Schema (fastjsonschema.compile): raises ValueError for data that does not match."""

_TEXTS = ("msg", "stdout", "stderr", "module_stdout", "module_stderr")
# ansible_parsed: of ansible-core 2.22, whether the answer was JSON.
# What callbacks print as it is.
_PRINTED = (*_TEXTS, "warnings", "deprecations", "exception", "diff", "findings")
_FLAGS = ("changed", "failed", "skipped", "unreachable", "ansible_parsed")


def foreign_variables(facts: Any) -> list[str]:
    """The names among a host's facts (`ansible_facts`) that are variables of this collection, sorted.

    Variables of its roles and playbooks, and names with its prefixes except OWN_FACTS. The facts of `setup` are none of
    these. A site's own `set_fact` is not among the facts unless it is cacheable. What tasks register ranks above facts.
    """
    if not isinstance(facts, Mapping):
        return []
    return sorted(
        str(name)
        for name in facts
        if isinstance(name, str) and name not in OWN_FACTS and (name in VARIABLES or name.startswith(OWN_PREFIXES))
    )


def refusal(host: str, names: list[str]) -> dict[str, Any]:
    """The failed result of a task for a host whose facts hold these variables."""
    message = (
        f"The facts of {host} set {summarize(names)}, which only the site may set: the host is compromised, or a task "
        "or a fact cache of yours sets a cacheable fact; delete its facts and set the variable in the inventory."
    )
    return {
        "failed": True,
        "changed": False,
        "msg": message,
        "findings": [finding("tray_facts_foreign", message, tray=host)],
    }


def controller_value(task_vars: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """A variable as localhost has it: of group all, its own, or of the command line; never one of another host."""
    hostvars = task_vars.get("hostvars") or {}
    return hostvars["localhost"].get(name, default) if "localhost" in hostvars else default


def state_dir(task_vars: Mapping[str, Any]) -> str | None:
    """The folder of the state file as localhost has it; None where that is the folder of the fabric file."""
    names = ("fabric_state_dir", "nvlink_fabric_state_dir")
    return next((str(value) for name in names if (value := controller_value(task_vars, name))), None)


def accepted(host: str, answer: Mapping[str, Any], schema: Mapping[str, Check]) -> dict[str, Any]:
    """What a module's answer may hold: its documented keys, each of which matches its schema.

    Texts that a terminal shows lose their control characters. schema: key -> check. The keys of `ansible_facts` are
    checked by `ansible_facts.KEY`. Any other key, fact or statistic is dropped with the finding `tray_answer_invalid`,
    which is added to `findings`. The severity of a host's finding is that of its code, whatever the host reports; one
    of an unknown code is dropped.
    """
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    for key, value in answer.items():
        if not isinstance(key, str):
            dropped.append("a key that is no text")
        elif key == "ansible_facts":
            facts, wrong = _facts(value, schema)
            dropped += wrong
            if facts:
                kept[key] = facts
        elif key == "ansible_stats":
            dropped.append(key)
        elif _valid(value, schema[key]) if key in schema else _is_standard(key, value):
            try:
                kept[key] = _cleaned(value) if key in _PRINTED else value
                if key == "findings":
                    kept[key] = _rated(kept[key])
            except ValueError:
                dropped.append(key)
        else:
            dropped.append(key)
    if dropped:
        names = summarize([sentence(name)[:60] or "an unprintable name" for name in sorted(set(dropped))])
        message = f"{host} returned more or other than what was asked ({names}), which is dropped; check the host."
        kept["findings"] = [*kept.get("findings", []), finding("tray_answer_invalid", message, tray=host)]
        kept["warnings"] = [*kept.get("warnings", []), f"tray_answer_invalid: {message}"]
    return kept


def _facts(value: Any, schema: Mapping[str, Check]) -> tuple[dict[str, Any], list[str]]:
    """(the facts that are kept, the names of the others)."""
    if not isinstance(value, Mapping):
        return {}, ["ansible_facts"] if value is not None else []
    kept, dropped = {}, []
    for name, fact in value.items():
        check = schema.get(f"ansible_facts.{name}")
        if check is None:
            # Of Ansible itself, which removes such facts from what a module printed.
            is_valid = str(name).startswith("discovered_interpreter_") and isinstance(fact, str) and len(fact) < 1024
        else:
            is_valid = _valid(fact, check)
        if is_valid and isinstance(fact, Mapping) and fact.get("findings"):
            kept[name] = {**fact, "findings": _rated(fact["findings"])}
        elif is_valid:
            kept[name] = fact
        else:
            dropped.append(f"ansible_facts.{name}")
    return kept, dropped


def _rated(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings of a host, those of known codes, with the severity of their code."""
    return [{**row, "severity": CATALOGUE[row["code"]].severity} for row in rows if row.get("code") in CATALOGUE]


def _is_standard(key: str, value: Any) -> bool:
    """Whether it is a key that any module may return, with a value of its type."""
    if key.startswith("_ansible_"):
        # Written by the controller's side of Ansible, which removes such keys from what a module printed.
        return True
    if key in _FLAGS:
        return isinstance(value, bool)
    if key in _TEXTS:
        return isinstance(value, str) and len(value) <= MAX_MESSAGE and is_bounded(value)
    if key == "rc":
        return isinstance(value, int)
    if key in ("warnings", "deprecations"):
        return isinstance(value, list) and len(value) <= MAX_MESSAGES
    if key == "invocation":
        return isinstance(value, Mapping) and is_bounded(value)
    if key == "diff":
        return isinstance(value, (Mapping, list)) and is_bounded(value)
    if key == "exception":
        return not isinstance(value, str) or is_bounded(value)
    return False


def _cleaned(value: Any, levels: int = MAX_DEPTH) -> Any:
    """The value with printable texts only; ValueError where it is nested too deeply.

    Ansible makes dataclasses of warnings, deprecations and exceptions.
    """
    if levels == 0:
        raise ValueError
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {_cleaned(key, levels - 1): _cleaned(inner, levels - 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cleaned(inner, levels - 1) for inner in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = {row.name: _cleaned(getattr(value, row.name), levels - 1) for row in dataclasses.fields(value)}
        return dataclasses.replace(value, **inner)
    return value


def _valid(value: Any, check: Check) -> bool:
    if not is_bounded(value):
        return False
    try:
        check(value)
    except ValueError:
        return False
    return True


def is_bounded(value: Any) -> bool:
    """Whether plain data keeps to the limits above and all its texts are valid Unicode (no lone surrogate)."""
    count = 0
    level = [value]
    for _depth in range(MAX_DEPTH):
        below: list[Any] = []
        for one in level:
            if isinstance(one, str):
                if len(one) > MAX_TEXT or not _is_unicode(one):
                    return False
            elif isinstance(one, Mapping):
                below += one.keys()
                below += one.values()
            elif isinstance(one, (list, tuple)):
                below += one
            elif not (one is None or isinstance(one, (bool, int, float))):
                return False
        count += len(below)
        if count > MAX_ITEMS:
            return False
        if not below:
            return True
        level = below
    return False


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
