# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a support bundle, made of what hosts answered to the module doctor. Pure.

`bundle.json` names the hosts, `trays/NAME` and `slurm/NAME` have the answers of each. Every field is mapped by its
kind (kinds.py, answers.py), so that no answer of one host decides what the files of another one have.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import answers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture.kinds import Substitutes, Table
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped

FORMAT = 1
_PROBLEM = re.compile("no answer in time|not started|exit -?[0-9]{1,3}|too long")


@dataclass(frozen=True)
class Host:
    """One host and what it answered; None where it did not, and ``problem`` says why in a word."""

    name: str
    answer: Mapping[str, Any] | None
    problem: str = ""


@dataclass(frozen=True)
class Bundle:
    """files: path -> text. table: what stands for what, which stays at the site."""

    files: dict[str, str]
    table: Table


def make(trays: Sequence[Host], controllers: Sequence[Host]) -> Bundle:
    """The bundle of these hosts, whatever they answered."""
    of = Substitutes()
    for _file in _files(trays, controllers, of):
        pass  # it collects the identifiers
    of.assign()
    files = dict(_files(trays, controllers, of))
    return Bundle(files, of.table)


def archive(files: Mapping[str, str], folder: str) -> bytes:
    """The files as .tar.gz below one folder; the same files give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, text in sorted(files.items()):
            data = text.encode()
            member = tarfile.TarInfo(f"{folder}/{path}")
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def _files(trays: Sequence[Host], controllers: Sequence[Host], of: Substitutes) -> Iterator[tuple[str, str]]:
    """(path, text) of each file."""
    index: dict[str, Any] = {"format": FORMAT, "trays": {}, "slurm": {}}
    for folder, hosts in (("trays", trays), ("slurm", controllers)):
        for host in hosts:
            name, commands = of.name(host.name), {}
            for file, row in _outputs(mapped(host.answer)):
                command, replace = answers.OUTPUTS[file]
                commands[file] = {"command": command, "problem": _problem(row)}
                text = replace("".join(str(part) for part in as_list(row.get("parts"))), of)
                if text:
                    yield f"{folder}/{name}/{file}", text
            index[folder][name] = {"problem": host.problem or None, "outputs": commands}
            for file, data in _data(host.answer):
                yield f"{folder}/{name}/{file}", _json(answers.values(data, of))
    yield "bundle.json", _json(index)


def _outputs(answer: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(file, row) of the outputs that a bundle has."""
    rows = map(mapped, as_list(answer.get("outputs")))
    return ((str(row["name"]), row) for row in rows if row.get("name") in answers.OUTPUTS)


def _problem(row: Mapping[str, Any]) -> str | None:
    problem = str(row.get("problem") or "")
    return problem if _PROBLEM.fullmatch(problem) else "failed" if problem else None


def _data(answer: Mapping[str, Any] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(file, content) of what the module itself has read."""
    if answer is not None:
        if "nvml" in answer:
            yield "nvml.json", mapped(answer["nvml"])
        rows = map(mapped, as_list(answer.get("findings")))
        findings = [{key: row.get(key) for key in ("code", "severity", "part", "gpu")} for row in rows]
        yield "facts.json", {"versions": mapped(answer.get("versions")), "findings": findings}


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def summary(bundle: Bundle, missing: Sequence[str]) -> list[str]:
    """What a person reads before a bundle leaves the site."""
    size = sum(map(len, bundle.files.values()))
    replaced = ", ".join(f"{kind} ({len(rows)})" for kind, rows in bundle.table.items() if rows) or "nothing"
    lines = [
        f"{len(bundle.files)} files, {size} bytes.",
        f"Replaced: {replaced}. Left out: names of processes, free text and most settings of Slurm.",
    ]
    if missing:
        lines.append(f"Without an answer: {summarize(missing)}; the bundle names them.")
    return lines
