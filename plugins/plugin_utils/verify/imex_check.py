# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer imex: each clique's node list, each member's connections to the others, and who starts IMEX on a tray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.domain import SERVICE_OWNERS
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE, IMEX, INFO
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import agreement
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import channels_check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

# verdict.evaluate() decides these from the facts of all members, not from what one member reports of the others.
_OF_THE_CLIQUE = frozenset(
    {
        "imex_list_differs",
        "imex_peer_version",
        "imex_peer_authentication",
        "imex_peer_lost",
        "tray_unreachable",
    }
)
_ELSEWHERE = _OF_THE_CLIQUE | set(channels_check.FINDINGS)
_ENABLED = ("enabled", "enabled-runtime", "linked", "alias")


def is_there(evidence: Evidence) -> bool:
    """Whether any tray that answered has nvidia-imex, or a process of it."""
    return any(imex is not None and (imex.get("installed") or imex["running"]) for imex in evidence.imex.values())


def check(evidence: Evidence) -> Iterator[Finding]:
    """The layer imex, clique by clique."""
    for clique, members in evidence.fabric.members.items():
        facts = {tray: evidence.imex.get(tray) for tray in members}
        blocked = any(tray in evidence.unreachable or _hangs(imex) for tray, imex in facts.items())
        reported = set()
        for note, tray in _notes(evidence, clique, facts):
            code = note["code"]
            own = facts[tray] if tray else None
            if (code, tray) in reported or (blocked and code == "imex_timeout" and own and own["ready"]):
                continue  # nvidia-imex-ctl -N waits for a member that is off or hangs
            reported.add((code, tray))
            yield failure(code, IMEX, sentence(note["message"]), tray, clique, trays=note.get("trays", ()))


def _notes(evidence: Evidence, clique: str, facts: Mapping[str, Facts | None]) -> Iterator[tuple[Finding, str | None]]:
    """(finding, tray): on the clique from the facts of all members, then each tray's own findings."""
    if any(_is_of_the_service(imex) for imex in facts.values()):
        for note in _evaluated(evidence, clique, facts):
            yield note, note["tray"]
    for tray, imex in facts.items():
        own: list[Finding] = imex["findings"] if imex else []
        for note in own:
            code = note["code"]
            if code in CATALOGUE and code not in _ELSEWHERE and CATALOGUE[code].severity != INFO:
                yield {**note, "message": f"{tray}: {note['message']}"}, tray


def _hangs(imex: Facts | None) -> bool:
    """Whether the tray's own daemon does not answer a query for its state."""
    return imex is not None and not imex["ready"] and any(note["code"] == "imex_timeout" for note in imex["findings"])


def _is_of_the_service(imex: Facts | None) -> bool:
    """Whether nvidia-imex.service runs, or should run, IMEX on this tray: not a job, not the DRA driver."""
    if imex is None:
        return False
    unit = mapped(imex.get("unit"))
    recorded = mapped(imex.get("nodes")).get("recorded_owner")
    if recorded:
        return recorded in SERVICE_OWNERS
    return unit.get("enabled") in _ENABLED or unit.get("active") in ("active", "activating", "failed")


def _evaluated(evidence: Evidence, clique: str, facts: Mapping[str, Facts | None]) -> Iterator[Finding]:
    """Findings of verdict.evaluate() without members that were not queried, which are failures of their own."""
    members = [
        (tray, address)
        for tray in evidence.fabric.members[clique]
        if (address := evidence.fabric.trays[tray]["imex_address"]) is not None
    ]
    if len(members) < len(evidence.fabric.members[clique]):
        return  # such a clique has no node list; the layer fabric_file reports it
    for note in agreement.evaluate(clique, members, facts).findings:
        if note["code"] != "tray_unreachable":
            yield note
