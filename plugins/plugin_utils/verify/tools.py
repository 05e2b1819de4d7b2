# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What test programs print, as numbers: nvbandwidth, nccl-tests, ``dcgmi diag -j`` and ``dcgmi mndiag --json``. Pure.

The formats are those that the programs' own sources and published runs show. A number that is not there is None, never
a guess; what has no result at all raises ToolError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_RUNNING = re.compile(r"Running ([a-z0-9_]+)\.")
# The head of a matrix is whole numbers; what was measured has decimals.
_ROW = re.compile(r" *[0-9]+((?: +(?:N/A|[0-9]+\.[0-9]+))+) *")
_SUM = re.compile(rf"SUM ([a-z0-9_]+) ({_NUMBER}) *")
_BUS = re.compile(rf"# Avg bus bandwidth *: *({_NUMBER}).*")
_WRONG = re.compile(r"# Out of bounds values *: *([0-9]+) .*")
_BAD = ("fail", "error")


class ToolError(NvlinkError):
    """A program printed no result."""


@dataclass(frozen=True)
class Result:
    """least: the smallest bandwidth in GB/s between any two, or the average bus bandwidth of a collective.

    wrong: values that a collective got wrong. failed: tests that failed, each with what the program says of it.
    """

    least: float | None = None
    wrong: int = 0
    failed: tuple[str, ...] = ()


def nvbandwidth(text: str) -> Result:
    """The smallest entry of all matrices that were measured; a test that printed no SUM has not ended."""
    least: list[float] = []
    begun: list[str] = []
    ended: set[str] = set()
    for line in text.splitlines():
        if match := _RUNNING.match(line.strip()):
            begun.append(match.group(1))
        elif match := _SUM.fullmatch(line.strip()):
            ended.add(match.group(1))
        elif begun and begun[-1] not in ended and (match := _ROW.fullmatch(line)):
            least += [float(word) for word in match.group(1).split() if word != "N/A"]
    if not ended:
        raise ToolError("nvbandwidth printed no line SUM; see its output on the trays.")
    failed = tuple(f"{test} did not end" for test in begun if test not in ended)
    return Result(min(least, default=None), failed=failed)


def nccl_tests(text: str) -> Result:
    """The average bus bandwidth, and how many values were wrong."""
    lines = text.splitlines()
    bus = [float(match.group(1)) for line in lines if (match := _BUS.fullmatch(line.strip()))]
    if not bus:
        raise ToolError("nccl-tests printed no line # Avg bus bandwidth; see its output on the trays.")
    wrong = sum(int(match.group(1)) for line in lines if (match := _WRONG.fullmatch(line.strip())))
    return Result(min(bus), wrong)


def dcgmi_diag(text: str) -> Result:
    """The tests that failed on any GPU. DCGM 3 and 4 nest them differently, so they are looked for at any depth."""
    tests = list(_tests(_document(text), 0))
    if not tests:
        raise ToolError("dcgmi diag -j printed no test; see its output on the trays.")
    failed = []
    for test in tests:
        for result in map(mapped, as_list(test.get("results"))):
            if str(result.get("status", "")).lower() in _BAD:
                why = "; ".join(_warnings(result)) or "without a reason"
                failed.append(f"{test['name']} ({why})")
    return Result(failed=tuple(dict.fromkeys(failed)))


def dcgmi_mndiag(text: str) -> Result:
    """What failed on which GPU of which host, by the JSON of DCGM 4.3 and later (dcgmi/MnDiag.cpp there).

    A test that failed on no GPU has its reason in mpi_error, a run that never began in runtime_error.
    """
    document = mapped(_document(text))
    hosts = {row.get("host_id"): row.get("hostname") for row in map(mapped, as_list(document.get("hosts")))}
    categories = map(mapped, as_list(document.get("test_categories")))
    tests = [mapped(test) for category in categories for test in as_list(category.get("tests"))]
    broken = document.get("runtime_error")
    if not tests and not broken:
        raise ToolError("dcgmi mndiag --json printed no test; see its output on the first tray.")
    failed = [str(broken)] if broken else []
    for test in tests:
        name, found = test.get("name"), []
        for result in map(mapped, as_list(test.get("results"))):
            if str(result.get("status", "")).lower() in _BAD:
                where = f"{result.get('entity_group')} {result.get('entity_id')}"
                host = hosts.get(result.get("host_id"), f"host {result.get('host_id')}")
                why = "; ".join(_warnings(result)) or "without a reason"
                found.append(f"{name}, {where} of {host} ({why})")
        if not found and str(test.get("status", "")).lower() != "pass":
            why = mapped(test.get("mpi_error")).get("warning") or "without a reason"
            found.append(f"{name}: {test.get('status')} ({why})")
        failed += found
    return Result(failed=tuple(dict.fromkeys(failed)))


def _document(text: str) -> Any:
    """The first JSON document in what was printed; None without one."""
    start = text.find("{")
    try:
        return json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else None
    except (ValueError, RecursionError):
        return None


def _tests(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if depth > 8:
        return
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str) and isinstance(value.get("results"), list):
            yield value
            return
        value = list(value.values())
    for part in as_list(value):
        yield from _tests(part, depth + 1)


def _warnings(result: Mapping[str, Any]) -> list[str]:
    """In DCGM 3 texts, from 3.3 on mappings with a text."""
    found = []
    for row in as_list(result.get("warnings")):
        text = row.get("warning") if isinstance(row, Mapping) else row
        if isinstance(text, str):
            found.append(text)
    return found


PARSERS = {
    "nvbandwidth": nvbandwidth,
    "nccl_tests": nccl_tests,
    "dcgmi_diag": dcgmi_diag,
    "dcgmi_mndiag": dcgmi_mndiag,
}
"""The kind of a trial and who reads its output; dcgmi_diag is read of each tray, the others of the first task."""
