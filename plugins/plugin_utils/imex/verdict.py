# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on the IMEX domain of a clique, from the status of all its members: pure functions.

A member's status is reliable for its own row of the connection matrix only. A fault is reported once for the clique,
with the tray at fault where the rows agree on one, not once per pair: one wrong list of 18 gives one finding, not 34.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import peers
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.files import digest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.readings import Facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.status import is_same_version
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

_MISMATCHES = {
    "map_mismatch": "imex_list_differs",
    "version_mismatch": "imex_peer_version",
    "authentication_error": "imex_peer_authentication",
}

_NOT_UP = ("degraded", "down")
# Findings by which the ctl of a tray returned no row.
_NO_STATUS = ("imex_timeout", "imex_not_ready")


class Verdict(NamedTuple):
    """The state of a clique.

    ``ok``: every member answered, is ready and connected to every other. ``disconnected``: (tray, peer, connection) of
    each other pair, by the status of the first.
    """

    ok: bool
    disconnected: tuple[tuple[str, str, str], ...]
    findings: tuple[Finding, ...]


def evaluate(clique: str, members: Sequence[tuple[str, str]], facts: Mapping[str, Facts | None]) -> Verdict:
    """The verdict on one clique.

    ``members``: (tray, its line in the node list) in the list's order. ``facts``: tray -> nvlink_imex, None for a tray
    that did not answer.
    """
    findings: list[Finding] = []
    answered = {tray: entry for tray, _line in members if (entry := facts.get(tray)) is not None}
    _check_lists(clique, members, answered, findings)
    _check_versions(clique, answered, findings)
    for tray, _entry in members:
        if tray not in answered:
            _add(
                findings,
                "tray_unreachable",
                clique,
                tray,
                f"{tray} returned no state of its IMEX; bring it back, or fix why it failed, then run this again.",
            )
        elif not answered[tray]["ready"]:
            _check_state(clique, tray, answered[tray], members, findings)
        elif _has_no_status(answered[tray]):
            why = next(found for found in answered[tray]["findings"] if found["code"] in _NO_STATUS)
            _add(findings, why["code"], clique, tray, f"{tray}: {why['message']}")
    disconnected = tuple(_disconnected_pairs(members, answered))
    _check_pairs(clique, members, answered, disconnected, findings)
    ok = not disconnected and len(answered) == len(members) and all(entry["ready"] for entry in answered.values())
    # All may be connected while the daemon of one does not answer the others.
    states = {tray: entry["domain_state"] for tray, entry in answered.items() if entry["domain_state"] in _NOT_UP}
    if ok and states and not findings:
        first = next(iter(states))
        _add(
            findings,
            "imex_not_ready",
            clique,
            first if len(states) == 1 else None,
            f"All members of clique {clique} are ready and connected, but its IMEX domain is {states[first]} on"
            f" {summarize(list(states))}; see nvidia-imex-ctl -N there for the member that is UNAVAILABLE, and check"
            " that port 50005 is open between members.",
        )
    return Verdict(ok and not any(entry["severity"] == ERROR for entry in findings), disconnected, tuple(findings))


def _has_no_status(entry: Facts) -> bool:
    """Whether a member is ready, but its ctl returned no row, so its connections are unknown."""
    return entry["ready"] and not entry["peers"] and any(found["code"] in _NO_STATUS for found in entry["findings"])


def _add(findings: list[Finding], code: str, clique: str, tray: str | None, message: str) -> None:
    findings.append(finding(code, message, clique=clique, tray=tray))


def _check_lists(
    clique: str, members: Sequence[tuple[str, str]], known: Mapping[str, Facts], findings: list[Finding]
) -> None:
    """Find node lists that differ: from the expected entries, and by hash from each other."""
    hashes = {tray: entry["nodes"]["sha256"] for tray, entry in known.items() if entry["nodes"]["sha256"]}
    should = [peers.key(entry) for _tray, entry in members]
    right = {tray for tray in hashes if [peers.key(entry) for entry in known[tray]["nodes"]["entries"]] == should}
    wrong = [tray for tray in hashes if tray not in right]
    if wrong:
        _add(
            findings,
            "imex_list_differs",
            clique,
            wrong[0] if len(wrong) == 1 else None,
            f"The IMEX node list on {summarize(wrong)} is not that of clique {clique}; write one list on all its trays,"
            " then stop all daemons and start all.",
        )
    elif len(set(hashes.values())) > 1:
        expected = digest("".join(f"{entry}\n" for _tray, entry in members))
        usual = expected if expected in hashes.values() else Counter(hashes.values()).most_common(1)[0][0]
        odd = [tray for tray, value in hashes.items() if value != usual]
        _add(
            findings,
            "imex_list_differs",
            clique,
            odd[0] if len(odd) == 1 else None,
            f"The IMEX node list on {summarize(odd)} names the same trays as the rest of clique {clique} in other"
            " bytes; write one list on all its trays, then stop all daemons and start all.",
        )


def _check_versions(clique: str, known: Mapping[str, Facts], findings: list[Finding]) -> None:
    versions = {tray: entry["version"] for tray, entry in known.items() if entry["running"] and entry["version"]}
    # One that a release shortens counts as each version that it may be.
    given = set(versions.values())
    shortened = {one for one in given for other in given if len(one) < len(other) and is_same_version(one, other)}
    counted = Counter(version for version in versions.values() if version not in shortened)
    if len(counted) > 1:
        (usual, most), (_next, next_most) = counted.most_common(2)
        others = {tray: version for tray, version in versions.items() if not is_same_version(version, usual)}
        odd = [f"{tray} ({version})" for tray, version in others.items()]
        first = next(iter(others))
        _add(
            findings,
            "imex_peer_version",
            clique,
            # Of two trays, either may be wrong.
            first if len(odd) == 1 and most > next_most else None,
            f"The rest of clique {clique} runs IMEX {usual}, but not {summarize(odd)} (!V!), and members of two"
            " versions do not connect; install one version of driver and package.",
        )


def _check_state(
    clique: str, tray: str, entry: Facts, members: Sequence[tuple[str, str]], findings: list[Finding]
) -> None:
    """Report why a member is not ready: by its own first error, where it has one."""
    if entry["state"] == "waiting_for_recovery":
        names = {peers.key(line): name for name, line in members}
        lost = [names.get(peers.key(p["host"]), p["host"]) for p in entry["peers"] if p["connection"] != "connected"]
        _add(
            findings,
            "imex_waiting_for_recovery",
            clique,
            tray,
            f"{tray} waits for the peers it had before its unclean stop ({summarize(lost) or 'all are connected'});"
            " bring them back, or restart the whole clique with IMEX_WAIT_FOR_QUORUM=NONE.",
        )
        return
    own = [found for found in entry["findings"] if found["severity"] == ERROR]
    if own:
        _add(findings, own[0]["code"], clique, tray, f"{tray}: {own[0]['message']}")
        return
    word = entry["state"] or ("unknown" if entry["running"] else "not running")
    _add(
        findings,
        "imex_not_ready",
        clique,
        tray,
        f"IMEX on {tray} is {word}, not ready; see journalctl -u nvidia-imex on that tray.",
    )


def _disconnected_pairs(
    members: Sequence[tuple[str, str]], answered: Mapping[str, Facts]
) -> list[tuple[str, str, str]]:
    names = {peers.key(line): name for name, line in members}
    pairs = []
    for tray, _entry in members:
        if tray not in answered or _has_no_status(answered[tray]):
            continue
        connections = {names.get(peers.key(peer["host"])): peer["connection"] for peer in answered[tray]["peers"]}
        for other, _line in members:
            connection = connections.get(other) or "unknown"
            if other != tray and connection != "connected":
                pairs.append((tray, other, connection))
    return pairs


def _check_pairs(
    clique: str,
    members: Sequence[tuple[str, str]],
    answered: Mapping[str, Facts],
    disconnected: Sequence[tuple[str, str, str]],
    findings: list[Finding],
) -> None:
    """Report pairs that no finding explains yet; members that are down or unreachable explain theirs."""
    codes = {entry["code"] for entry in findings}
    for word, code in _MISMATCHES.items():
        pairs = [pair for pair in disconnected if pair[2] == word]
        if pairs and code not in codes:
            culprit = _common_tray(pairs)
            if word == "authentication_error":
                message = (
                    f"{_pairs(pairs)} cannot authenticate (!A!) and do not connect; check that the TLS files on all"
                    f" trays of clique {clique} are of one authority and not expired, then restart its daemons."
                )
            else:
                what = "lists (!M!)" if word == "map_mismatch" else "versions (!V!)"
                message = (
                    f"{_pairs(pairs)} do not connect because of different {what}, which the files of clique {clique} no"
                    " longer show; stop all its daemons, then start all."
                )
            _add(findings, code, clique, culprit, message)
    ready = {tray for tray, entry in answered.items() if entry["ready"]}
    rest = [pair for pair in disconnected if pair[2] not in _MISMATCHES and pair[0] in ready and pair[1] in ready]
    if not rest:
        return
    both = {(a, b) for a, b, _word in rest}
    one_way = [pair for pair in rest if (pair[1], pair[0]) not in both]
    culprit = _common_tray(rest)
    text = (
        "are not connected"
        if not one_way
        else "are connected one way only"
        if one_way == rest
        else "are not connected to all"
    )
    _add(
        findings,
        "imex_pair_disconnected",
        clique,
        culprit,
        f"{_pairs(rest)} {text}, though all are ready"
        + (f", and {culprit} is in each of these pairs" if culprit and len(rest) > 1 else "")
        + "; open port 50000 both ways, and restart the clique if that does not help.",
    )


def _common_tray(pairs: Sequence[tuple[str, str, str]]) -> str | None:
    """The one tray that is in every pair, or that alone reports the one pair; None where there is none."""
    common = set.intersection(*({a, b} for a, b, _word in pairs))
    if len(pairs) == 1:
        return pairs[0][0]
    return common.pop() if len(common) == 1 else None


def _pairs(pairs: Sequence[tuple[str, str, str]]) -> str:
    return summarize(list(dict.fromkeys(f"{a}-{b}" for a, b in (sorted(pair[:2]) for pair in pairs))))
