# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A check of the playbook doctor is a finding of name, status, host and one sentence; equal ones are one row. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, INFO, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended

OK, SKIPPED = "ok", "skipped"
ORDER = (OK, SKIPPED, INFO, WARNING, ERROR)
LOCALHOST = "localhost"
MAX_LINES = 40
"""Of the checks that are not ok, errors first."""
MAX_LINE = 60
"""Characters of a host list on the screen; the JSON file has it whole."""


def check(name: str, status: str, message: str, host: str = LOCALHOST) -> Finding:
    """What was found on one host, also where it is OK or SKIPPED; the message has the remedy and no host."""
    return {"code": name, "severity": status, "message": message, "node": host}


def rows(checks: Iterable[Finding]) -> list[dict[str, str]]:
    """Rows name, status, hosts (a hostlist) and message, in the order of ORDER: errors last, next to the summary."""
    hosts_of = equal(((row["code"], row["severity"], row["message"]), row["node"]) for row in checks)
    found = [
        {"name": name, "status": status, "hosts": fold(dict.fromkeys(hosts)), "message": message}
        for (name, status, message), hosts in hosts_of.items()
    ]
    return sorted(found, key=lambda row: ORDER.index(row["status"]))


def lines(rows: Sequence[dict[str, str]]) -> list[str]:
    """What is ok in one line, then a line a row, at most MAX_LINES."""
    wrong = {*_names(rows, WARNING), *_names(rows, ERROR)}
    fine = [name for name in _names(rows, OK) if name not in wrong]
    others = [row for row in rows if row["status"] != OK]
    found = [f"ok: {', '.join(fine)}"] if fine else []
    if len(others) > MAX_LINES:
        found.append(f"{len(others) - MAX_LINES} more lines are not shown; set doctor_file to read them.")
    for row in others[-MAX_LINES:]:
        hosts = row["hosts"] if len(row["hosts"]) <= MAX_LINE else f"{row['hosts'][: MAX_LINE - 3]}..."
        where = "" if hosts == LOCALHOST else f"{hosts}: "
        found.append(f"{row['status']}: {row['name']}: {where}{ended(row['message'])}")
    return found


def summary(rows: Sequence[dict[str, str]], trays: int, answered: int) -> str:
    """One sentence: whether the site can run or needs attention, and which checks found something."""
    named = {status: _names(rows, status) for status in (ERROR, WARNING)}
    counts = [
        f"{count(sum(row['status'] == status for row in rows), status)} ({', '.join(names)})"
        for status, names in named.items()
        if names
    ]
    answers = f"{answered} of {count(trays, 'tray')} answered"
    if not counts:
        return f"This site can run: {answers}, no errors, no warnings."
    verdict = "needs attention" if named[ERROR] else "can run"
    return f"This site {verdict}: {answers}, {', '.join(counts)}."


def _names(rows: Sequence[dict[str, str]], status: str) -> list[str]:
    return list(dict.fromkeys(row["name"] for row in rows if row["status"] == status))


def verdict(rows: Sequence[dict[str, str]], text: str) -> dict[str, Any]:
    """The content of the JSON file."""
    return {"ok": not _names(rows, ERROR), "summary": text, "checks": list(rows)}
