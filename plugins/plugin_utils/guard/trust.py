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
import json
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import TooManyValuesError, count_values
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding, worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE, ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import (
    OWN_FACTS,
    OWN_PREFIXES,
    VARIABLES,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import printable, sentence

MAX_DEPTH = 20
MAX_SIZE = 16 * 1024 * 1024
"""Limits of any value: levels of nesting; bytes as JSON, which also limit how many values it has (slurm.conf of 10,000
trays with their addresses has 0.5 MB)."""

_FACT = "ansible_facts."
# They may hold objects of Ansible.
_MESSAGES = ("warnings", "deprecations", "exception")
_INTERNAL = "_ansible_"
# Ansible shows them as they are before it returns the answer.
_SHOWN = ("warnings", "deprecations")
# From the first line that begins an object to the last one that ends one, as in Ansible.
_ANSWER = re.compile(r"^ *(\{.*\}) *$", re.MULTILINE | re.DOTALL)


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


def refusal(host: str, names: list[str]) -> Result:
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


def controller_value(task_vars: Variables, name: str, default: Any = None) -> Any:
    """A variable as localhost has it: of group all, its own, or of the command line; never one of another host."""
    # Without an inventory it has localhost, and a length of 0.
    hostvars = task_vars.get("hostvars", {})
    return hostvars["localhost"].get(name, default) if "localhost" in hostvars else default


def printed(text: str, host: str, schema: Mapping[str, schemas.Check]) -> str:
    """What a module printed, reduced to the JSON of what is accepted of its answer; a text without an answer as it is.

    Nothing around the answer stays, and no warning: the modules of this collection return findings. text: without
    control characters, so that its lines are those that Ansible reads.
    """
    found = _ANSWER.search(text)
    try:
        answer = json.loads(found[1]) if found else None
    except (ValueError, RecursionError) as error:
        return "" if isinstance(error, RecursionError) else text
    return text if answer is None else json.dumps(answered(host, answer, schema))


def answered(host: str, answer: Result, schema: Mapping[str, schemas.Check]) -> Result:
    """What is accepted of an answer as the host printed it: no key of Ansible's own, and no warning."""
    own = {key: value for key, value in answer.items() if key not in _SHOWN and not key.startswith(_INTERNAL)}
    return accepted(host, own, schema)


def accepted(host: str, answer: Result, schema: Mapping[str, schemas.Check]) -> Result:
    """What a module's answer may hold: its documented keys, each of which matches its schema.

    Texts that a terminal shows lose their control characters. schema: key -> check. The keys of `ansible_facts` are
    checked by `ansible_facts.KEY`. Any other key, fact or statistic is dropped with the finding `tray_answer_invalid`,
    which is added to `findings`. A host's findings get their severity, and their message unless it has one, from the
    table; one of an unknown code is dropped.
    """
    rest = dict(answer)
    given = rest.pop("ansible_facts") if isinstance(rest.get("ansible_facts"), Mapping) else {}
    facts, dropped = _reduced(given, schema, _FACT)
    kept, more = _reduced(rest, schema)
    dropped += more
    if facts:
        kept["ansible_facts"] = facts
    if dropped:
        names = summarize(sorted(set(dropped)))
        message = f"{host} returned more or other than what was asked ({names}), which is dropped"
        found = finding("tray_answer_invalid", message, tray=host)
        kept["findings"] = [*kept.get("findings", []), found]
        kept["warnings"] = [*kept.get("warnings", []), f"{found['code']}: {found['message']}"]
    return kept


def _reduced(values: Result, schema: Mapping[str, schemas.Check], prefix: str = "") -> tuple[Result, list[str]]:
    """(what is kept of an answer or of its facts, the names of the others, with the size of what is too large)."""
    kept, dropped = {}, []
    for name, value in values.items():
        try:
            kept[name] = _checked(f"{prefix}{name}", value, schema)
        except ValueError as error:
            size = f" {error}" if isinstance(error, TooManyValuesError) else ""
            dropped.append((sentence(f"{prefix}{name}")[:60] or "an unprintable name") + size)
    return kept, dropped


def _checked(key: str, value: Any, schema: Mapping[str, schemas.Check]) -> Any:
    """What is kept of the value of a key, or of a fact (`ansible_facts.KEY`); ValueError if it is dropped."""
    if key.startswith(_INTERNAL):
        # Written by the controller's side of Ansible, which removes such keys from what a module printed.
        return value
    check = schema.get(key) or schemas.OF_ANY_MODULE.get(key)
    if not check:
        raise ValueError
    if key not in _MESSAGES:
        require_bounded(value)
    check(value)
    if key in schemas.OF_ANY_MODULE:
        # Callbacks print most of them as they are.
        return cleaned(value)
    return with_findings({key: value})[key]


def with_findings(value: Any) -> Any:
    """The value with the findings in its dictionaries as host_findings() has them.

    `reason` next to them, as in nvlink_imex, becomes the message of the first error.
    """
    if not isinstance(value, Mapping):
        return value
    found = {key: host_findings(inner) if key == "findings" else with_findings(inner) for key, inner in value.items()}
    if "reason" in found and "findings" in found:
        found["reason"] = next((row["message"] for row in found["findings"] if row["severity"] == ERROR), None)
    return found


def host_findings(rows: Any) -> list[Finding]:
    """A host's findings of known codes, as the controller words them; ValueError for rows of another shape."""
    schemas.check_findings(rows)
    return [worded(cleaned(row)) for row in rows if row["code"] in CATALOGUE]


def cleaned(value: Any, levels: int = MAX_DEPTH) -> Any:
    """The value with printable texts only; ValueError where it is nested too deeply.

    Ansible makes dataclasses of warnings, deprecations and exceptions.
    """
    if levels == 0:
        raise ValueError
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {cleaned(key, levels - 1): cleaned(inner, levels - 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(cleaned(inner, levels - 1) for inner in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = {row.name: cleaned(getattr(value, row.name), levels - 1) for row in dataclasses.fields(value)}
        return dataclasses.replace(value, **inner)
    return value


def require_bounded(value: Any) -> None:
    """ValueError for other than plain data within the limits above, as JSON in valid Unicode (no lone surrogate).

    TooManyValuesError where it is too large.
    """
    try:
        data = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError from error
    if len(data) > MAX_SIZE:
        raise TooManyValuesError(f"has more than {MAX_SIZE} bytes")
    count_values(data, MAX_SIZE)
    cleaned(value)
