# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one type of a finding, from a host to every output: a plain mapping, which travels as JSON.

    {"code": "gpu_lost", "severity": "error", "message": "One sentence with the remedy.", "gpu": 2}

Further keys are the subjects that apply. A host states a code and values (module_utils/host_findings.py); worded()
makes severity and message of them, once, and failure() adds what verify's reader needs: layer, cause and next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict, Unpack, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import (
    ACTIONS,
    CATALOGUE,
    SEVERITIES,
    SHARED,
    WARNING,
    Row,
    general,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended

MAX_MESSAGE = 4096
"""Characters of a message."""


class Subject(TypedDict, total=False):
    """What a finding is about; a key that does not apply is null or left out. port: of an NVLink switch."""

    tray: str | None
    gpu: int | None
    link: int | None
    port: str
    clique: str | None
    domain: str | None
    block: str | None
    node: str
    nodes: list[str]
    trays: list[str]
    crd: str
    key: str


class Finding(Subject, total=False):
    """One finding. The keys from layer on are those of a failure of verify and of its verdict file."""

    code: Required[str]
    severity: Required[str]
    message: Required[str]
    layer: str
    """One of LAYERS."""
    cause: str
    """Empty where none is known: the message alone says what it is."""
    action: str
    """One of ACTIONS where the code alone does not decide the remediation, else empty."""
    remediation: str
    """The next step, a command or words."""


class ComputeDomains(TypedDict):
    """The GPUs that no new ComputeDomain can use. unknown: why numbers are unknown, empty where they are not."""

    unknown: list[str]
    cliques: dict[str, dict[str, Any]]
    """Clique -> the fields of its stranded.CliqueUse."""


class Verdict(TypedDict):
    """The content of the verdict file. The numbers are of trays and cliques of the fabric file."""

    ok: bool
    checked_at: str
    fabric_file: str
    layers: dict[str, str]
    """Layer -> `checked`, or `skipped: ` followed by the reason."""
    trays: int
    queried: int
    answered: int
    cliques: int
    compute_domains: ComputeDomains | None
    slurm_nodes: dict[str, str] | None
    """Tray -> its state in Slurm and the reason; None where no controller answered."""
    failures: list[Finding]


CHECKED = "checked"
"""The word of a layer that verify has checked."""


def finding(code: str, message: str, **subject: Unpack[Subject]) -> Finding:
    """One finding; KeyError for a code without a row, which is a bug of this collection.

    message: what is wrong; the code's remedy follows. One that ends with a full stop has its own, as in the table.
    """
    row = CATALOGUE[code]
    text = message if message.endswith(".") else f"{message}; {row.remedy}."
    return {"code": code, "severity": row.severity, "message": text, **subject}


def failure(
    code: str,
    layer: str,
    message: str,
    tray: str | None = None,
    clique: str | None = None,
    *,
    trays: Sequence[str] = (),
    severity: str | None = None,
    cause: str | None = None,
    action: str = "",
    gpu: int | None = None,
    link: int | None = None,
) -> Finding:
    """One finding of verify. The code's symptom decides the layer; `layer` applies to one without.

    trays: all trays it is about, where there are several. severity: that of the table by default. gpu, link: where it
    is about one.
    """
    row = CATALOGUE[code]
    found: Finding = {
        "code": code,
        "severity": severity or row.severity,
        "layer": row.symptom.layer or layer,
        "tray": tray,
        "clique": clique,
        "trays": list(trays) or ([tray] if tray else []),
        "message": ended(message),
        "cause": cause or row.cause,
        "action": action,
        "remediation": remedy(code, action),
    }
    if gpu is not None:
        found["gpu"] = gpu
    if gpu is not None and link is not None:
        found["link"] = link
    return found


def remedy(code: str, action: str = "") -> str:
    """The next step by a code, or by what decides it instead: a command with the placeholders of Symptom, or words."""
    row = CATALOGUE[code]
    return ACTIONS.get(action) or row.command or row.remedy


def rank(severity: object) -> int:
    """The place of a severity, worst first; one that is not known comes last."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def keeping_place(found: Finding) -> Finding:
    """As a warning where a tray does not answer discover or IMEX: it keeps its place, and the others are configured.

    verify reports whether jobs may run, and has the severity of the table.
    """
    return {**found, "severity": WARNING} if found["code"] == "tray_unreachable" else found


def worded(stated: Mapping[str, Any]) -> Finding:
    """A finding of a host with severity and message; KeyError for a code without a row.

    ``stated``: a HostFinding in the types that schemas.FINDINGS bounds, or one that has its message already. Values are
    inserted as text, into messages of this table alone.
    """
    row = CATALOGUE[stated["code"]]
    subjects = {name: stated[name] for name in ("part", *Subject.__annotations__) if name in stated}
    message = stated.get("message") or _message(row, {**subjects, "gpu": f"GPU {stated.get('gpu')}"}, stated)
    found = {"code": stated["code"], "severity": row.severity, "message": message[:MAX_MESSAGE], **subjects}
    return cast("Finding", found)


def _message(row: Row, subjects: Mapping[str, Any], stated: Mapping[str, Any]) -> str:
    try:
        values = {name: _text(value) for name, value in stated.get("values", {}).items()}
        case = stated.get("case") or ""
        template = row.messages.get(case) or SHARED.get(case) or row.messages[""]
        return template.format_map({**values, **subjects})
    except KeyError:  # a value or code that is not known here: of a host that is compromised, or of another release
        return general(row.messages[""])


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return worded(value)["message"].rstrip(".")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return summarize(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
