# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phase inspect of many trays, read by ssh from one process; and the row that is decided from a tray's report."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats, reporting
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import difference, phases, rows
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import connections, reading
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.hosts import Hosts


class Asked(NamedTuple):
    """A tray, what it shall be, and what it is asked."""

    change: phases.Phases
    desired: domain.DesiredState
    options: reporting.Options


def inspect(
    run: phases.Run, asked: Mapping[str, Asked], known: Hosts, becomes: bool, reporter: connections.Reporter
) -> Result:
    """Store the rows of these hosts: RV(read) of the module imex_domain, and warnings.

    One that cannot be read so has no row, and Ansible inspects it.
    """
    limit = max((phases.seconds("inspect", one.change.values) for one in asked.values()), default=0.0)
    question = reading.Question("imex.reporting", {}, _accepted, math.ceil(limit), limit + connections.SENDING)
    answers = connections.read(asked, question, known, becomes, reporter, lambda name: asked[name].options._asdict())
    found: dict[str, bool] = {}
    warnings: dict[str, None] = {}
    unread: dict[str, list[str]] = {}
    for name, (change, desired, _options) in asked.items():
        answer = answers[name]
        change.on_tray = functools.partial(decided, desired, answer)
        with contextlib.suppress(NvlinkError):
            warnings |= dict.fromkeys(change.run("inspect").get("warnings", ()))
        if "facts" in run.rows("inspect", [change.tray]).get(change.tray, {}):
            found[name] = True
        else:
            run.forget(change.tray)
            unread.setdefault(str(answer.get("msg") or "it gave no valid answer"), []).append(name)
    rest = [f"{reading.OPTION}: {fold(hosts)}: {why}; Ansible reads it." for why, hosts in unread.items()]
    return {"read": found, "warnings": [*warnings, *rest]}


def _accepted(tray: str, answer: Result, _asked_at: float) -> Result:
    return trust.answered(tray, answer, rows.SCHEMA)


def decided(desired: domain.DesiredState, answer: Result, _phase: str, change: phases.Phases) -> Result:
    """The answer of a tray, with the row that is decided from its report."""
    result = dict(answer)
    if not (report := (result.get("row") or {}).get("report")):
        return result
    try:
        row = difference.difference(desired, report, change.plan["allow_jobs"])
    except formats.ImexError as error:
        return {**result, "failed": True, "msg": str(error)}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # Not as a tray answers: Phases fails one without a row.
        return {**result, "row": {}}
    return {**result, "row": row, "findings": [*result.get("findings", ()), *row.pop("findings")]}
