# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One verdict on the IMEX of a clique, from all members' own words: pure.

Every member is witness for its own row only. What is found stands once for the clique, with the tray that is at fault
where the rows agree on one, instead of once a pair: one wrong list among 18 gives one finding, not 34.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.files import normal_address
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

_MISMATCHES = {"map_mismatch": "imex_list_differs", "version_mismatch": "imex_peer_version"}

# Why a tray's ctl may have told no row.
_NO_VIEW = ("imex_timeout", "imex_ctl_failed")


class Verdict(NamedTuple):
    """Whether all is well, and if not, who stands where.

    ``ok``: every member answered, is ready and sees every other. ``blind``: (who, whom, connection) of each pair that
    does not, as the first of them says. ``waiting``: members whose state or view may still change by itself.
    """

    ok: bool
    blind: tuple[tuple[str, str, str], ...]
    waiting: tuple[str, ...]
    findings: tuple[dict[str, Any], ...]


def unseen(facts: Mapping[str, Any], expected: Iterable[str]) -> list[str]:
    """The peers that one member does not see, of those lines of the list that it should see by now."""
    wanted = {_key(entry) for entry in expected}
    return [
        peer["host"] for peer in facts["peers"] if _key(peer["host"]) in wanted and peer["connection"] != "connected"
    ]


def settled(facts: Mapping[str, Any], members: int, expected: Collection[str]) -> bool:
    """Whether one member has nothing to wait for: it is ready and sees whom it should.

    ``members``: how many lines the list has. Where fewer are expected the domain as a whole cannot be up yet.
    """
    whole = facts["ready"] and not unseen(facts, expected) and (facts["peers"] or members < 2)
    return bool(whole) and (len(set(map(_key, expected))) + 1 < members or facts["domain_state"] == "up")


def judge(clique: str, members: Sequence[tuple[str, str]], facts: Mapping[str, Mapping[str, Any] | None]) -> Verdict:
    """The verdict on one clique.

    ``members``: (tray, its line in the list) in the list's order. ``facts``: tray -> nvlink_imex, None where the tray
    could not be asked.
    """
    notes: list[dict[str, Any]] = []
    known = {tray: facts[tray] for tray, _entry in members if facts.get(tray) is not None}
    _judge_lists(clique, members, known, notes)
    _judge_versions(clique, known, notes)
    asked = {tray: entry for tray, entry in known.items() if entry is not None}
    for tray, _entry in members:
        if tray not in asked:
            _note(
                notes,
                "imex_member_unreachable",
                clique,
                tray,
                f"{tray} could not be asked; bring it back, then look again.",
            )
        elif not asked[tray]["ready"]:
            _judge_state(clique, tray, asked[tray], members, notes)
        elif _has_no_view(asked[tray]):
            why = next(found for found in asked[tray]["findings"] if found["code"] in _NO_VIEW)
            _note(notes, why["code"], clique, tray, f"{tray}: {why['message']}")
    blind = tuple(_blind(members, asked))
    _judge_pairs(clique, members, asked, blind, notes)
    waiting = tuple(
        tray
        for tray, _entry in members
        if tray in asked
        and asked[tray]["running"]
        and (not asked[tray]["ready"] or any(tray in pair[:2] for pair in blind))
    )
    ok = not blind and len(asked) == len(members) and all(entry["ready"] for entry in asked.values())
    return Verdict(ok and not any(note["severity"] == ERROR for note in notes), blind, waiting, tuple(notes))


def _has_no_view(entry: Mapping[str, Any]) -> bool:
    """Ready by its short answer, and its ctl gave no row: it is no witness of whom it sees."""
    return entry["ready"] and not entry["peers"] and any(found["code"] in _NO_VIEW for found in entry["findings"])


def _note(notes: list[dict[str, Any]], code: str, clique: str, tray: str | None, message: str) -> None:
    notes.append(finding(code, message, clique=clique, tray=tray))


def _judge_lists(
    clique: str, members: Sequence[tuple[str, str]], known: Mapping[str, Any], notes: list[dict[str, Any]]
) -> None:
    """Whose file is not the others': by hash, and against what the list should hold."""
    hashes = {tray: entry["nodes"]["sha256"] for tray, entry in known.items() if entry["nodes"]["sha256"]}
    should = [_key(entry) for _tray, entry in members]
    right = {tray for tray in hashes if [_key(entry) for entry in known[tray]["nodes"]["entries"]] == should}
    wrong = [tray for tray in hashes if tray not in right]
    if wrong:
        _note(
            notes,
            "imex_list_differs",
            clique,
            wrong[0] if len(wrong) == 1 else None,
            f"The list on {summarize(wrong)} is not that of clique {clique}; write one list on all its trays, then stop"
            " all"
            " and start all.",
        )
    elif len(set(hashes.values())) > 1:
        usual = Counter(hashes.values()).most_common(1)[0][0]
        odd = [tray for tray, value in hashes.items() if value != usual]
        _note(
            notes,
            "imex_list_differs",
            clique,
            odd[0] if len(odd) == 1 else None,
            f"The list on {summarize(odd)} names the same trays in other bytes than the rest of clique {clique}; write"
            " one"
            " list on all its trays, then stop all and start all.",
        )


def _judge_versions(clique: str, known: Mapping[str, Any], notes: list[dict[str, Any]]) -> None:
    versions = {tray: entry["version"] for tray, entry in known.items() if entry["running"] and entry["version"]}
    if len(set(versions.values())) > 1:
        usual = Counter(versions.values()).most_common(1)[0][0]
        odd = [f"{tray} ({version})" for tray, version in versions.items() if version != usual]
        first = next(tray for tray, version in versions.items() if version != usual)
        _note(
            notes,
            "imex_peer_version",
            clique,
            first if len(odd) == 1 else None,
            f"{summarize(odd)} do not run IMEX {usual} as the rest of clique {clique} (!V!), and pairs of two versions do"
            " not talk; bring driver and package to one version.",
        )


def _judge_state(
    clique: str, tray: str, entry: Mapping[str, Any], members: Sequence[tuple[str, str]], notes: list[dict[str, Any]]
) -> None:
    """Why a member is not ready: its own first error where it has one."""
    if entry["state"] == "waiting_for_recovery":
        names = {_key(line): name for name, line in members}
        whom = [names.get(_key(p["host"]), p["host"]) for p in entry["peers"] if p["connection"] != "connected"]
        _note(
            notes,
            "imex_waiting_for_recovery",
            clique,
            tray,
            f"{tray} waits for the peers of before its unclean stop ({summarize(whom) or 'all are connected'}); bring"
            " them"
            " back, or restart the whole clique with IMEX_WAIT_FOR_QUORUM=NONE.",
        )
        return
    own = [found for found in entry["findings"] if found["severity"] == ERROR]
    if own:
        _note(notes, own[0]["code"], clique, tray, f"{tray}: {own[0]['message']}")
        return
    word = entry["state"] or ("unknown" if entry["running"] else "not running")
    _note(
        notes,
        "imex_not_ready",
        clique,
        tray,
        f"IMEX on {tray} is {word}, not ready; see journalctl -u nvidia-imex there.",
    )


def _blind(members: Sequence[tuple[str, str]], asked: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    names = {_key(line): name for name, line in members}
    pairs = []
    for tray, _entry in members:
        if tray not in asked or _has_no_view(asked[tray]):
            continue
        seen = {names.get(_key(peer["host"])): peer["connection"] for peer in asked[tray]["peers"]}
        for other, _line in members:
            connection = seen.get(other) or "unknown"
            if other != tray and connection != "connected":
                pairs.append((tray, other, connection))
    return pairs


def _judge_pairs(
    clique: str,
    members: Sequence[tuple[str, str]],
    asked: Mapping[str, Any],
    blind: Sequence[tuple[str, str, str]],
    notes: list[dict[str, Any]],
) -> None:
    """Pairs that no finding explains yet; members that are down or unasked explain theirs."""
    said = {note["code"] for note in notes}
    for word, code in _MISMATCHES.items():
        pairs = [pair for pair in blind if pair[2] == word]
        if pairs and code not in said:
            whom = _culprit(pairs)
            what = "lists (!M!)" if word == "map_mismatch" else "versions (!V!)"
            _note(
                notes,
                code,
                clique,
                whom,
                f"{_pairs(pairs)} stay apart by a difference of {what}"
                f" that the files of clique {clique} do not show now; stop all its daemons, then start all.",
            )
    ready = {tray for tray, entry in asked.items() if entry["ready"]}
    rest = [pair for pair in blind if pair[2] not in _MISMATCHES and pair[0] in ready and pair[1] in ready]
    if not rest:
        return
    both = {(a, b) for a, b, _word in rest}
    one_way = [pair for pair in rest if (pair[1], pair[0]) not in both]
    whom = _culprit(rest)
    text = (
        "do not see each other"
        if not one_way
        else "see each other one way only"
        if one_way == rest
        else "do not see all"
    )
    _note(
        notes,
        "imex_pair_disconnected",
        clique,
        whom,
        f"{_pairs(rest)} {text}, though all are ready"
        + (f", and {whom} is in each of these pairs" if whom else "")
        + "; see that port 50000 is open both ways, then restart the clique if it stays so.",
    )


def _culprit(pairs: Sequence[tuple[str, str, str]]) -> str | None:
    """The one tray that is in every pair; of a single pair nobody can tell."""
    common = set.intersection(*({a, b} for a, b, _word in pairs))
    return common.pop() if len(common) == 1 else None


def _pairs(pairs: Sequence[tuple[str, str, str]]) -> str:
    return summarize(list(dict.fromkeys(f"{a}-{b}" for a, b in (sorted(pair[:2]) for pair in pairs))))


def _key(entry: str) -> str:
    return normal_address(entry) or entry.lower()
