# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read trays by ssh from one process: for each the result of a module, as a task with that module returns it.

A tray may print anything, without end, or nothing: at most MAX_OUTPUT of it is kept, it has its seconds, so the run
ends, and of its answer is believed what is of a module's (trust.answered).
"""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import kernel_log, nvml, serials
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.host_errors import cause
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import Reporter, fanout, gateways, probe
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.fanout import MAX_OUTPUT
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import SCHEMA
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

PYTHON = "/usr/bin/python3"
FANOUT = 64

# Exit statuses of a shell that cannot run the tray's Python.
_NO_PYTHON = (126, 127)
_SSH_FAILED = 255
# The last line of sudo where it starts no program, such as where it would ask for a password.
_OF_SUDO = re.compile(r"^(sudo: |Sorry, user )|not in the sudoers file|may not run sudo")
_NO_ROOT = "nothing was read, since sudo -n does not start its Python"
OPTION = "tray_reading"
"""The variable of the site that names this way to read trays."""
# A line of ssh that says less than the one before it, where there is one.
_VAGUE = re.compile(r"Host key verification failed\.|Disconnected from .*")
_SECONDS_BETWEEN_PROGRESS = 1.0


class Target(NamedTuple):
    """How a tray is reached. ssh: the program with its options, of which the first value counts."""

    address: str
    ssh: Sequence[str]
    python: Sequence[str] = (PYTHON,)
    """The tray's Python, after sudo with its options where it is to be root's."""
    gateway: gateways.Gateway | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    """Those of the question that only this tray has."""


class Question(NamedTuple):
    """What all trays are asked.

    module: of module_utils, whose answer() takes the options. accept: tray, its answer and when it was asked, in
    seconds since 1970 -> its result. limit: seconds of the probe on a tray; seconds: of a tray in all.
    """

    module: str
    options: Mapping[str, Any]
    accept: Callable[[str, Result, float], Result]
    limit: int
    seconds: float
    fanout: int = FANOUT


def of_facts(options: subsets.Options, limit: int, seconds: float, fanout: int = FANOUT) -> Question:
    """What fabric_facts reads."""

    def accept(tray: str, answer: Result, _asked_at: float) -> Result:
        return complete(trust.answered(tray, answer, SCHEMA), options.gather_subset)

    return Question("subsets", options._asdict(), accept, limit, seconds, fanout)


def waits(names: Sequence[str], timeout: float, imex_timeout: float) -> float:
    """Seconds that fabric_facts may wait: each backend once; with other subsets three queries of IMEX, the links and
    the serial numbers.
    """
    if list(names) == ["gpu"]:
        return (nvml.PATIENCE + 1) * timeout
    return (2 * nvml.PATIENCE + 1) * timeout + kernel_log.TIMEOUT + serials.TIMEOUT + 3 * imex_timeout


def complete(answer: Result, names: Sequence[str]) -> Result:
    """The answer, with the finding tray_answer_invalid where a missing subset has no finding yet."""
    facts = mapped(answer.get("ansible_facts"))
    notes = answer.get("findings") or []
    if answer.get("failed") or any(note["code"] in ("tray_subset_failed", "tray_answer_invalid") for note in notes):
        return answer
    missing = [name for name in subsets.selected(names) if facts.get(subsets.FACTS[name]) is None]
    if not missing:
        return answer
    message = f"The answer has no facts of {', '.join(missing)}, which were asked"
    return {**answer, "findings": [*notes, finding("tray_answer_invalid", message)]}


async def read(targets: Mapping[str, Target], question: Question, reporter: Reporter, name: str) -> dict[str, Result]:
    """Tray -> its result, in the order of targets. name: of this reading, in the lines of progress.

    Without an answer the result has `msg`, and `unreachable` or `failed`. OSError where ssh cannot be started.
    """
    results: dict[str, Result] = {}
    reported_at = time.monotonic()
    archive = probe.archive(question.module)

    async def ask(tray: str) -> None:
        nonlocal reported_at
        target = targets[tray]
        if target.gateway and target.gateway.failed:
            why = _reason(target.gateway.failed, target, question)
            results[tray] = _unreachable(f"its gateway {target.gateway.name} cannot be used ({why})")
        else:
            through = target.gateway.client_options() if target.gateway else []
            options = {**question.options, **target.options}
            arguments = probe.arguments(question.module, options, question.limit)
            command = f"exec {shlex.join([*target.python, *arguments])}"
            argv = [target.ssh[0], *through, *target.ssh[1:], "--", target.address, command]
            asked_at = time.time()
            ended = await fanout.run(argv, archive, question.seconds)
            results[tray] = _result(tray, ended, target, question, asked_at)
        for warning in results[tray].pop("warnings", ()):
            reporter.warning(str(warning))
        if time.monotonic() - reported_at >= _SECONDS_BETWEEN_PROGRESS:
            reported_at = time.monotonic()
            reporter.v(progress(results, targets, name))

    await fanout.each(targets, question.fanout, ask)
    reporter.v(progress(results, targets, name))
    return {tray: results[tray] for tray in targets}


def run(answers: Coroutine[Any, Any, dict[str, Result]], name: str, remedy: str) -> dict[str, Result]:
    """What read() returns, in an event loop of its own; SourceError, which ends with remedy, where ssh cannot start."""
    try:
        return asyncio.run(answers)
    except OSError as error:
        raise SourceError(f"{name}: cannot start ssh ({error.strerror or error}); {remedy}") from error


def progress(results: Mapping[str, Result], targets: Mapping[str, Target], name: str) -> str:
    """How many trays have answered so far."""
    answered = sum(not row.get("failed") and not row.get("unreachable") for row in results.values())
    return f"{name}: {len(results)} of {len(targets)} trays done, {answered} answered"


def _result(tray: str, ended: fanout.Ended, target: Target, question: Question, asked_at: float) -> Result:
    answer = None if len(ended.output) > MAX_OUTPUT else probe.answer_in(ended.output)
    if answer is not None:
        return question.accept(tray, answer, asked_at)
    closed = target.gateway.problem(ended.errors) if target.gateway and ended.rc == _SSH_FAILED else ""
    return _unreachable(closed or _reason(ended, target, question))


def _unreachable(why: str) -> Result:
    return {"unreachable": True, "changed": False, "msg": why}


def _reason(ended: fanout.Ended, target: Target, question: Question) -> str:
    """The reason for output of a tray without a result; of ssh the last line that is not vague."""
    lines = [line.strip() for line in ended.errors.splitlines() if line.strip()]
    clear = [line for line in lines if not _VAGUE.fullmatch(line)] or lines
    last = sentence(clear[-1]) if clear else ""
    if len(ended.output) > MAX_OUTPUT:
        return f"it prints more than {MAX_OUTPUT // 1024} KiB"
    if ended.rc is None:
        return f"no response within {question.seconds:g} s"
    if ended.rc == _SSH_FAILED:
        return cause(last or "ssh failed without a message")
    if ended.rc in _NO_PYTHON:
        return f"no {'Python' if len(target.python) == 1 else 'sudo'} at {sentence(target.python[0])}"
    if len(target.python) > 1 and _OF_SUDO.search(last):
        return f"{_NO_ROOT} ({last}); allow its user NOPASSWD in sudoers, or read it with {OPTION} ansible"
    if any(error in last for error in ("AttributeError", "ImportError", "ModuleNotFoundError", "SyntaxError")):
        return f"its Python is too old or incomplete ({last})"
    return f"it printed no facts ({last})" if last else f"it printed no facts (exit status {ended.rc})"
