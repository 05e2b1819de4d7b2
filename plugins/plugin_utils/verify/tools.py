# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the output of nvbandwidth, nccl-tests, ``dcgmi diag -j`` and ``dcgmi mndiag --json``. Pure functions.

The formats are those of the programs' own sources and of published runs. A missing number is None, never a guess;
output without any result raises ToolError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_RUNNING = re.compile(r"Running ([a-z0-9_]+)\.")
# The head of a matrix is whole numbers; measured values have decimals.
_ROW = re.compile(r" *[0-9]+((?: +(?:N/A|[0-9]+\.[0-9]+))+) *")
_SUM = re.compile(rf"SUM ([a-z0-9_]+) ({_NUMBER}) *")
_BUS = re.compile(rf"# Avg bus bandwidth *: *({_NUMBER}).*")
_WRONG = re.compile(r"# Out of bounds values *: *([0-9]+) .*")
_BAD = ("fail", "error")


class ToolError(NvlinkError):
    """A program printed no result."""


@dataclass(frozen=True)
class Result:
    """min_bandwidth: the smallest bandwidth in GB/s between two GPUs, or the average bus bandwidth of a collective.

    wrong: number of wrong values of a collective. failed: tests that failed, each with the program's reason.
    """

    min_bandwidth: float | None = None
    wrong: int = 0
    failed: tuple[str, ...] = ()


def nvbandwidth(text: str) -> Result:
    """The smallest entry of all measured matrices; a test that printed no SUM has not ended."""
    bandwidths: list[float] = []
    started: list[str] = []
    ended: set[str] = set()
    for line in text.splitlines():
        if match := _RUNNING.match(line.strip()):
            started.append(match.group(1))
        elif match := _SUM.fullmatch(line.strip()):
            ended.add(match.group(1))
        elif started and started[-1] not in ended and (match := _ROW.fullmatch(line)):
            bandwidths += [float(word) for word in match.group(1).split() if word != "N/A"]
    if not ended:
        raise ToolError("nvbandwidth printed no line SUM; see its output on the trays.")
    failed = tuple(f"{test} did not end" for test in started if test not in ended)
    return Result(min(bandwidths, default=None), failed=failed)


def nccl_tests(text: str) -> Result:
    """The average bus bandwidth and the number of wrong values."""
    lines = text.splitlines()
    bus = [float(match.group(1)) for line in lines if (match := _BUS.fullmatch(line.strip()))]
    if not bus:
        raise ToolError("nccl-tests printed no line # Avg bus bandwidth; see its output on the trays.")
    wrong = sum(int(match.group(1)) for line in lines if (match := _WRONG.fullmatch(line.strip())))
    return Result(min(bus), wrong)


def dcgmi_diag(text: str) -> Result:
    """The tests that failed on any GPU. DCGM 3 and 4 nest tests differently, so they are searched at any depth."""
    tests = list(_tests(_document(text), 0))
    if not tests:
        raise ToolError("dcgmi diag -j printed no test; see its output on the trays.")
    failed = []
    for test in tests:
        failed += [f"{test['name']} ({why})" for _result, why in _failed(test)]
    return Result(failed=tuple(dict.fromkeys(failed)))


def dcgmi_mndiag(text: str) -> Result:
    """What failed on which GPU of which host: the JSON of DCGM 4.3 and later (dcgmi/MnDiag.cpp).

    A test that failed on no GPU has its reason in mpi_error, a run that never started in runtime_error.
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
        for result, why in _failed(test):
            where = f"{result.get('entity_group')} {result.get('entity_id')}"
            host = hosts.get(result.get("host_id"), f"host {result.get('host_id')}")
            found.append(f"{name}, {where} of {host} ({why})")
        if not found and str(test.get("status", "")).lower() != "pass":
            why = mapped(test.get("mpi_error")).get("warning") or "no reason given"
            found.append(f"{name}: {test.get('status')} ({why})")
        failed += found
    return Result(failed=tuple(dict.fromkeys(failed)))


def _document(text: str) -> Any:
    """The first JSON document in the output; None without one."""
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


def _failed(test: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """(a failed result of a test, its warnings): strings in DCGM 3, from 3.3 on mappings with a string."""
    for result in map(mapped, as_list(test.get("results"))):
        if str(result.get("status", "")).lower() in _BAD:
            rows = as_list(result.get("warnings"))
            found = (row.get("warning") if isinstance(row, Mapping) else row for row in rows)
            yield result, "; ".join(text for text in found if isinstance(text, str)) or "no reason given"


PARSERS = {
    "nvbandwidth": nvbandwidth,
    "nccl_tests": nccl_tests,
    "dcgmi_diag": dcgmi_diag,
    "dcgmi_mndiag": dcgmi_mndiag,
}
"""Kind of a program -> parser of its output: of every task for dcgmi_diag, of the first task for the others."""
