# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A check of the playbook doctor: name, status, hosts and one sentence; equal ones of several hosts are one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import ended

OK, SKIPPED, INFO, WARNING, ERROR = "ok", "skipped", "info", "warning", "error"
ORDER = (OK, SKIPPED, INFO, WARNING, ERROR)
LOCALHOST = "localhost"
MAX_ERRORS = 20
MAX_LINE = 60
"""Characters of a host list on the screen; the JSON file has it whole."""


@dataclass(frozen=True)
class Check:
    """What was found on one host; the message has the remedy and no host."""

    name: str
    status: str
    message: str
    host: str = LOCALHOST


def merged(checks: Iterable[Check]) -> list[dict[str, str]]:
    """Rows name, status, hosts (a hostlist) and message, in the order of ORDER: errors last, next to the summary.

    A check that is ok has one row for all its hosts, with its first message where all have the same.
    """
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    texts: dict[str, set[str]] = {}
    for check in checks:
        key = (check.name, check.status, "" if check.status == OK else check.message)
        groups.setdefault(key, {})[check.host] = None
        if check.status == OK:
            texts.setdefault(check.name, set()).add(check.message)
    rows = [
        {"name": name, "status": status, "hosts": fold(hosts), "message": message or _common(texts.get(name, set()))}
        for (name, status, message), hosts in groups.items()
    ]
    return sorted(rows, key=lambda row: ORDER.index(row["status"]))


def _common(messages: set[str]) -> str:
    return next(iter(messages)) if len(messages) == 1 else ""


def lines(rows: Sequence[dict[str, str]]) -> list[str]:
    """What is ok in one line, then a line a row."""
    wrong = {*_names(rows, WARNING), *_names(rows, ERROR)}
    fine = [name for name in _names(rows, OK) if name not in wrong]
    found = [f"ok: {', '.join(fine)}"] if fine else []
    for row in rows:
        if row["status"] != OK:
            where = "" if row["hosts"] == LOCALHOST else f"{_short(row['hosts'])}: "
            found.append(f"{row['status']}: {row['name']}: {where}{ended(row['message'])}")
    return found


def screen(rows: Sequence[dict[str, str]], text: str, fails: bool) -> tuple[list[str], str]:
    """(lines to print, message of the failure, empty without one): the errors stand in one of them, with the summary.

    Ansible prints a failure with its own report, so its message has the errors: the last that a person reads.
    """
    errors = [row for row in rows if row["status"] == ERROR]
    if not errors or not fails:
        return [*lines(rows), text], ""
    texts = [line.removeprefix(f"{ERROR}: ") for line in lines(errors)]
    more = [f"{len(texts) - MAX_ERRORS} more errors; set doctor_file to read them."] if len(texts) > MAX_ERRORS else []
    others = [line for line in lines(rows) if not line.startswith(f"{ERROR}: ")]
    return others, "\n".join([*texts[:MAX_ERRORS], *more, text])


def _short(hosts: str) -> str:
    return hosts if len(hosts) <= MAX_LINE else f"{hosts[: MAX_LINE - 3]}..."


def summary(rows: Sequence[dict[str, str]], trays: int, answered: int) -> str:
    """One sentence: whether the site can run, and which checks found something."""
    named = {status: _names(rows, status) for status in (ERROR, WARNING)}
    counts = [
        f"{count(sum(row['status'] == status for row in rows), status)} ({', '.join(names)})"
        for status, names in named.items()
        if names
    ]
    answers = f"{answered} of {count(trays, 'tray')} answered"
    if not counts:
        return f"This site can run: {answers}, no errors, no warnings."
    verdict = "cannot run yet" if named[ERROR] else "can run"
    return f"This site {verdict}: {answers}, {', '.join(counts)}."


def _names(rows: Sequence[dict[str, str]], status: str) -> list[str]:
    return list(dict.fromkeys(row["name"] for row in rows if row["status"] == status))


def verdict(rows: Sequence[dict[str, str]], text: str) -> dict[str, Any]:
    """The content of the JSON file."""
    return {"ok": not _names(rows, ERROR), "summary": text, "checks": list(rows)}
