# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on the IMEX domain of a clique, from the status of all its members: pure functions.

A member's status is reliable for its own row of the connection matrix only. A fault is reported once for the clique,
with the tray at fault where the rows agree on one, not once per pair: one wrong list of 18 gives one finding, not 34.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats, peers
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.status import is_same_version
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding, keeping_place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import only

_NOT_UP = ("degraded", "down")
# Findings by which the ctl of a tray returned no row.
_NO_STATUS = ("imex_timeout", "imex_not_ready")


class Verdict(NamedTuple):
    """The state of a clique. ``ok``: every member answered, is ready and connected to every other."""

    ok: bool
    findings: tuple[Finding, ...]


class _Members(NamedTuple):
    """The members of a clique. lines: tray -> its line in the node list, in order. facts: of those that answered."""

    clique: str
    lines: Mapping[str, str]
    facts: Mapping[str, Facts]

    @property
    def names(self) -> dict[str, str]:
        return {peers.key(line): tray for tray, line in self.lines.items()}


_Problem = tuple[str, "str | Sequence[str] | None", str]
"""A finding's code, the tray or trays at fault, None for the clique, and the message."""


def evaluate(clique: str, members: Sequence[tuple[str, str]], facts: Mapping[str, Facts | None]) -> Verdict:
    """The verdict on one clique.

    ``members``: (tray, its line in the node list) in the list's order. ``facts``: tray -> nvlink_imex, None for a tray
    that did not answer.
    """
    answered = {tray: entry for tray, _line in members if (entry := facts.get(tray)) is not None}
    known = _Members(clique, dict(members), answered)
    disconnected = tuple(_disconnected_pairs(known))
    problems = [*_lists(known), *_versions(known), *_states(known)]
    problems += _pairs(known, disconnected, problems)
    ok = not disconnected and len(answered) == len(members) and all(entry["ready"] for entry in answered.values())
    if ok and not problems:
        # All may be connected while the daemon of one does not answer the others.
        problems += _domain_states(known)
    findings = tuple(
        keeping_place(finding(code, text, clique=clique, tray=only(_named_trays(trays)), trays=_named_trays(trays)))
        for code, trays, text in problems
    )
    return Verdict(ok and not any(entry["severity"] == ERROR for entry in findings), findings)


def _named_trays(trays: str | Sequence[str] | None) -> list[str]:
    return [trays] if isinstance(trays, str) else [*(trays or ())]


def _without_status(entry: Facts) -> Finding | None:
    """Why its ctl returned no row, so that the connections of a member that is ready are unknown; else None."""
    if not entry["ready"] or entry["peers"]:
        return None
    return next((found for found in entry["findings"] if found["code"] in _NO_STATUS), None)


def _lists(known: _Members) -> Iterator[_Problem]:
    """Node lists that differ: from the expected entries, and by hash from each other."""
    hashes = {tray: entry["nodes"]["sha256"] for tray, entry in known.facts.items() if entry["nodes"]["sha256"]}
    should = list(map(peers.key, known.lines.values()))
    wrong = [tray for tray in hashes if list(map(peers.key, known.facts[tray]["nodes"]["entries"])) != should]
    if wrong:
        yield (
            "imex_list_differs",
            wrong,
            f"The IMEX node list on {summarize(wrong)} is not that of clique {known.clique}",
        )
    elif len(set(hashes.values())) > 1:
        expected = formats.digest(formats.nodes_text(known.lines.values()))
        usual = expected if expected in hashes.values() else Counter(hashes.values()).most_common(1)[0][0]
        odd = [tray for tray, value in hashes.items() if value != usual]
        yield (
            "imex_list_differs",
            odd,
            f"The IMEX node list on {summarize(odd)} names the same trays as the rest of clique {known.clique} in other"
            " bytes",
        )


def _versions(known: _Members) -> Iterator[_Problem]:
    versions = {tray: entry["version"] for tray, entry in known.facts.items() if entry["running"] and entry["version"]}
    # One that a release shortens counts as each version that it may be.
    given = set(versions.values())
    shortened = {one for one in given for other in given if len(one) < len(other) and is_same_version(one, other)}
    counted = Counter(version for version in versions.values() if version not in shortened)
    if len(counted) > 1:
        (usual, most), (_next, next_most) = counted.most_common(2)
        odd = {tray: f"{tray} ({one})" for tray, one in versions.items() if not is_same_version(one, usual)}
        yield (
            "imex_peer_version",
            # Of two trays, either may be wrong.
            list(odd) if most > next_most else list(versions),
            f"The rest of clique {known.clique} runs IMEX {usual}, but not {summarize(list(odd.values()))} (!V!), and"
            " members of two versions do not connect; install one version of driver and package.",
        )


def _states(known: _Members) -> Iterator[_Problem]:
    """Members that did not answer, are not ready, or whose ctl did not answer."""
    for tray in known.lines:
        entry = known.facts.get(tray)
        if entry is None:
            why = "returned no state of its IMEX; bring it back, or fix why it failed, then run this again."
            yield "tray_unreachable", tray, f"{tray} {why}"
        elif not entry["ready"]:
            code, message = _why_not_ready(known, tray, entry)
            yield code, tray, message
        elif found := _without_status(entry):
            yield found["code"], tray, f"{tray}: {found['message']}"


def _why_not_ready(known: _Members, tray: str, entry: Facts) -> tuple[str, str]:
    """By the member's own first error, where it has one."""
    if entry["state"] == "waiting_for_recovery":
        # Its own finding has their addresses.
        hosts = [peer["host"] for peer in entry["peers"] if peer["connection"] != "connected"]
        lost = summarize([known.names.get(peers.key(host), host) for host in hosts]) or "all are connected"
        return "imex_waiting_for_recovery", (
            f"{tray} waits for the peers it had before its unclean stop ({lost}); bring them back, or restart the whole"
            " clique with IMEX_WAIT_FOR_QUORUM=NONE."
        )
    for found in entry["findings"]:
        if found["severity"] == ERROR:
            return found["code"], f"{tray}: {found['message']}"
    word = entry["state"] or ("unknown" if entry["running"] else "not running")
    return "imex_not_ready", f"IMEX on {tray} is {word}, not ready; see journalctl -u nvidia-imex on that tray."


def _domain_states(known: _Members) -> Iterator[_Problem]:
    states = {tray: entry["domain_state"] for tray, entry in known.facts.items() if entry["domain_state"] in _NOT_UP}
    silent = Counter(
        known.names.get(peers.key(peer["host"]), peer["host"])
        for tray in states
        for peer in known.facts[tray]["peers"]
        if peer.get("state") == "unavailable"
    )
    if states:
        answers = "does not answer" if len(silent) == 1 else "do not answer"
        named = f", where {summarize(list(silent))} {answers} (UNAVAILABLE); open port 50005 there"
        unknown = "; see nvidia-imex-ctl -N there for the member that is UNAVAILABLE, and open port 50005 to it"
        yield (
            "imex_not_ready",
            # One tray may lie on another.
            only([tray for tray, number in silent.items() if number > 1]) or only(states),
            f"All members of clique {known.clique} are ready and connected, but its IMEX domain is"
            f" {summarize(sorted(set(states.values())))} on {summarize(list(states))}{named if silent else unknown},"
            " and restart the clique if that does not help.",
        )


def _disconnected_pairs(known: _Members) -> Iterator[tuple[str, str, str]]:
    """(tray, peer, connection) of each pair that is not connected, by the status of the first."""
    names = known.names
    for tray in known.lines:
        if tray not in known.facts or _without_status(known.facts[tray]):
            continue
        connections = {names.get(peers.key(peer["host"])): peer["connection"] for peer in known.facts[tray]["peers"]}
        for other in known.lines:
            connection = connections.get(other) or "unknown"
            if other != tray and connection != "connected":
                yield tray, other, connection


def _pairs(
    known: _Members, disconnected: Sequence[tuple[str, str, str]], problems: Sequence[_Problem]
) -> Iterator[_Problem]:
    """Pairs that no problem explains yet; members that have one, are down or unreachable explain theirs."""
    clique, codes = known.clique, {code for code, _trays, _message in problems}
    for word, code in peers.MISMATCHES.items():
        pairs = [pair for pair in disconnected if pair[2] == word]
        if not pairs or code in codes:
            continue
        if word == "authentication_error":
            message = f"{_named(pairs)} of clique {clique} cannot authenticate (!A!) and do not connect"
        else:
            what = "lists (!M!)" if word == "map_mismatch" else "versions (!V!)"
            message = (
                f"{_named(pairs)} do not connect because of different {what}, which the files of clique {clique} no"
                " longer show; stop all its daemons, then start all."
            )
        yield code, _common_tray(pairs) or sorted({tray for pair in pairs for tray in pair[:2]}), message
    ready = {tray for tray, entry in known.facts.items() if entry["ready"]}
    rest = [pair for pair in disconnected if pair[2] not in peers.MISMATCHES and pair[0] in ready and pair[1] in ready]
    for tray in sorted({tray for pair in rest for tray in pair[:2]}):
        # Without a list that it can read, a member that is ready has no peers.
        own = [note for note in known.facts[tray]["findings"] if note["severity"] == ERROR]
        if own:
            problems = [*problems, (own[0]["code"], tray, f"{tray}: {own[0]['message']}")]
            yield problems[-1]
    known_by = {tray for _code, trays, _message in problems for tray in _named_trays(trays)}
    rest = [pair for pair in rest if not known_by.intersection(pair[:2])]
    if not rest:
        return
    both = {(a, b) for a, b, _word in rest}
    one_way = [(b, a) not in both for a, b, _word in rest]
    how = "connected one way only" if all(one_way) else "not connected to all" if any(one_way) else "not connected"
    culprit = _common_tray(rest)
    shared = f", and {culprit} is in each of these pairs" if culprit and len(rest) > 1 else ""
    yield (
        "imex_pair_disconnected",
        culprit or sorted({tray for pair in rest for tray in pair[:2]}),
        f"{_named(rest)} are {how}, though all are ready{shared}; open port 50000 both ways, and restart the clique if"
        " that does not help.",
    )


def _common_tray(pairs: Sequence[tuple[str, str, str]]) -> str | None:
    """The one tray that is in every pair, or that alone reports the one pair; None where there is none."""
    common = set.intersection(*({a, b} for a, b, _word in pairs))
    return pairs[0][0] if len(pairs) == 1 else only(common)


def _named(pairs: Sequence[tuple[str, str, str]]) -> str:
    return summarize(list(dict.fromkeys(f"{a}-{b}" for a, b in (sorted(pair[:2]) for pair in pairs))))
