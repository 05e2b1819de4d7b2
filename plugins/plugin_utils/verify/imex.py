# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX: the list of every clique and every member's own view of the others, and who runs it on each tray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE, INFO
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import verdict
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.domain import SERVICE_OWNERS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import mapped, sentence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import channels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.failure import IMEX, Failure, failure

# Judged from all members' rows, by verdict.judge(), and not from what one of them says of the others.
_OF_THE_CLIQUE = frozenset(
    {"imex_list_differs", "imex_peer_version", "imex_peer_lost", "imex_domain_degraded", "imex_member_unasked"}
)
_NOT_HERE = _OF_THE_CLIQUE | set(channels.FINDINGS)
_ENABLED = ("enabled", "enabled-runtime", "linked", "alias")


def is_there(seen: Evidence) -> bool:
    """Whether any tray that answered has nvidia-imex, or a process of it."""
    return any(_has(seen.imex.get(tray)) for tray in seen.trays)


def _has(imex: Mapping[str, Any] | None) -> bool:
    return imex is not None and bool(imex.get("installed") or imex.get("running"))


def check(seen: Evidence) -> Iterator[Failure]:
    """The layer imex, clique by clique."""
    for clique, members in seen.fabric.members.items():
        facts = {tray: seen.imex.get(tray) for tray in members}
        waits = any(tray in seen.silent or _hangs(imex) for tray, imex in facts.items())
        told = set()
        for note, tray in _notes(seen, clique, facts):
            code = note["code"]
            if (code, tray) in told or (waits and code == "imex_timeout" and tray and _is_ready(facts[tray])):
                continue  # a ctl that asks for the whole domain waits for a member that is off or hangs
            told.add((code, tray))
            yield failure(code, IMEX, sentence(note["message"]), tray, clique)


def _notes(
    seen: Evidence, clique: str, facts: Mapping[str, Mapping[str, Any] | None]
) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    """Findings with their tray: on the clique from all members' rows, then of each tray on itself."""
    if any(_is_of_the_service(imex) for imex in facts.values()):
        for note in _judged(seen, clique, facts):
            yield note, note["tray"]
    for tray, imex in facts.items():
        for note in (imex or {}).get("findings", ()):
            code = note["code"]
            if code in CATALOGUE and code not in _NOT_HERE and CATALOGUE[code].severity != INFO:
                yield {**note, "message": f"{tray}: {note['message']}"}, tray


def _hangs(imex: Mapping[str, Any] | None) -> bool:
    """Whether the tray's own daemon does not even say its state."""
    return imex is not None and not imex["ready"] and any(note["code"] == "imex_timeout" for note in imex["findings"])


def _is_ready(imex: Mapping[str, Any] | None) -> bool:
    return imex is not None and imex["ready"]


def _is_of_the_service(imex: Mapping[str, Any] | None) -> bool:
    """Whether IMEX of this tray is, or is to be, nvidia-imex.service with the clique's list: not a job's, not the DRA
    driver's."""
    if imex is None:
        return False
    unit = mapped(imex.get("unit"))
    recorded = mapped(imex.get("nodes")).get("recorded_owner")
    if recorded:
        return recorded in SERVICE_OWNERS
    return unit.get("enabled") in _ENABLED or unit.get("active") in ("active", "activating", "failed")


def _judged(seen: Evidence, clique: str, facts: Mapping[str, Mapping[str, Any] | None]) -> Iterator[Mapping[str, Any]]:
    """What verdict.judge() finds; without a word on who was not asked, which is a failure of its own."""
    members = [
        (tray, address)
        for tray in seen.fabric.members[clique]
        if (address := seen.fabric.trays[tray]["imex_address"]) is not None
    ]
    if len(members) < len(seen.fabric.members[clique]):
        return  # such a clique has no list, which the layer fabric_file says
    for note in verdict.judge(clique, members, facts).findings:
        if note["code"] != "imex_member_unasked":
            yield note
