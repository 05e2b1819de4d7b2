# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPUs say now against the fabric file: who is silent, sick, gone, new, moved or swapped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE, ERROR, INFO, WARNING
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Identity, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import imex as imex_lists
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped, sentence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.failure import (
    FABRIC_FILE,
    HARDWARE,
    Failure,
    failure,
)


def check(seen: Evidence) -> Iterator[Failure]:
    """The layers hardware and fabric_file; without trays only what the file says of itself."""
    for note in imex_lists.problems(seen.fabric):
        yield failure(note["code"], FABRIC_FILE, note["message"], note.get("tray"), note.get("clique"))
    for tray, why in seen.silent.items():
        message = f"{tray} could not be asked ({why or 'no answer'})."
        yield failure("tray_unreachable", HARDWARE, message, tray, seen.clique_of(tray), severity=ERROR)
    for tray in seen.trays:
        yield from _own_findings(seen, tray)
        if tray not in seen.fabric.trays and (seen.part(tray, "gpu") or {}).get("attached") is True:
            message = f"{tray} is attached to an NVLink fabric and has no place in the fabric file."
            yield failure("acceptance_pending", FABRIC_FILE, message, tray, severity=WARNING)
    yield from _places(seen)


def _own_findings(seen: Evidence, tray: str) -> Iterator[Failure]:
    """What the tray's own readers found of its GPUs, once a code; parts that could not be read too."""
    said = set()
    for note in as_list(seen.trays[tray].get("findings")):
        code, part = mapped(note).get("code"), mapped(note).get("part")
        about_gpus = part == "gpu" or code == "tray_part_failed"
        if about_gpus and code in CATALOGUE and code not in said and CATALOGUE[code].severity != INFO:
            said.add(code)
            message = f"{tray}: {sentence(mapped(note).get('message'))}"
            yield failure(code, HARDWARE, message, tray, seen.clique_of(tray))
    if "tray_part_failed" not in said and seen.imex[tray] is None and seen.trays[tray].get("imex") is not None:
        message = f"{tray}: its facts nvlink_imex do not have the shape that fabric_facts documents."
        yield failure("tray_part_failed", HARDWARE, message, tray, seen.clique_of(tray))


def _places(seen: Evidence) -> Iterator[Failure]:
    owner_of = {gpu: name for name, tray in seen.fabric.trays.items() for gpu in tray["gpu_uuids"]}
    moved: dict[str, dict[Identity, list[str]]] = defaultdict(lambda: defaultdict(list))
    swapped: set[str] = set()
    for tray, now in seen.observations.items():
        place = seen.fabric.trays[tray]
        clique, known = place["clique"], set(place["gpu_uuids"])
        other = _owner(now, owner_of)
        if other and other != tray:
            if tray not in swapped:
                yield _swapped(seen, tray, other)
                swapped |= {tray, other}
            continue
        if now.identity is None:
            message = f"The GPUs of {tray} name no clique that they share, and the fabric file has it in {clique}."
            yield failure("tray_not_attached", HARDWARE, message, tray, clique, severity=ERROR)
        elif now.identity != _identity(seen, clique):
            moved[clique][now.identity].append(tray)
        if known and now.gpu_uuids:
            yield from _gpus(tray, clique, known, set(now.gpu_uuids))
        slots = (place["tray_index"], now.tray_index)
        if None not in slots and slots[0] != slots[1]:
            message = f"{tray} stands at tray index {slots[1]}, and the fabric file has it at {slots[0]}."
            yield failure("tray_slot_differs", FABRIC_FILE, message, tray, clique)
    for clique, groups in moved.items():
        yield from _moved(seen, clique, groups)


def _identity(seen: Evidence, clique: str) -> Identity:
    return seen.fabric.cluster_uuid(clique), seen.fabric.cliques[clique]["clique_id"]


def _owner(now: Observation, owner_of: dict[str, str]) -> str | None:
    """The one tray that the fabric file gives all these GPUs to, None where there is none."""
    owners = {owner_of.get(gpu) for gpu in now.gpu_uuids}
    return owners.pop() if len(owners) == 1 else None


def _swapped(seen: Evidence, tray: str, other: str) -> Failure:
    both = sorted((tray, other))
    cliques = {seen.fabric.trays[name]["clique"] for name in both}
    message = f"{tray} has the GPUs that the fabric file gives to {other}"
    back = seen.observations.get(other)
    message += " and the other way round." if back and set(back.gpu_uuids) & _gpus_of(seen, tray) else "."
    clique = cliques.pop() if len(cliques) == 1 else None
    return failure("trays_swapped", FABRIC_FILE, message, None, clique, trays=both)


def _gpus_of(seen: Evidence, tray: str) -> set[str]:
    return set(seen.fabric.trays[tray]["gpu_uuids"])


def _gpus(tray: str, clique: str, known: set[str], now: set[str]) -> Iterator[Failure]:
    new, gone = now - known, known - now
    if new:
        what = "all its GPUs are" if not known & now else f"{len(new)} of its GPUs {'is' if len(new) == 1 else 'are'}"
        message = f"{tray}: {what} others than the fabric file has."
        yield failure("tray_replaced", FABRIC_FILE, message, tray, clique, severity=WARNING)
    elif gone:
        message = f"{tray} shows {len(now)} of its {len(known)} GPUs ({summarize(sorted(gone))} missing)."
        yield failure("gpu_missing", HARDWARE, message, tray, clique, severity=ERROR)


def _moved(seen: Evidence, clique: str, groups: Mapping[Identity, list[str]]) -> Iterator[Failure]:
    """One failure for a whole clique that is elsewhere, even where it was cut; else one for trays that moved as one."""
    places = [tray for tray in seen.answered(clique) if tray in seen.observations and seen.observations[tray].identity]
    moved = [tray for trays in groups.values() for tray in trays]
    if len(moved) == len(places) > 1:
        told = "; ".join(f"{len(trays)} {_where(seen, identity)}" for identity, trays in groups.items())
        message = f"All {len(moved)} trays of clique {clique} that answer are elsewhere: {told}."
        yield failure("clique_moved", FABRIC_FILE, message, None, clique, trays=moved)
        return
    for identity, trays in groups.items():
        are = "are" if len(trays) > 1 else "is"
        message = f"By its GPUs {summarize(trays)} {are} {_where(seen, identity)}, and by the fabric file in {clique}."
        tray = trays[0] if len(trays) == 1 else None
        yield failure("tray_moved", FABRIC_FILE, message, tray, clique, trays=trays, cause=_rack(seen, clique, trays))


def _where(seen: Evidence, identity: Identity) -> str:
    names = {_identity(seen, name): name for name in seen.fabric.cliques}
    known = names.get(identity)
    return f"in clique {known}" if known else f"in {identity[0]}.{identity[1]}, which no clique of the fabric file is"


def _rack(seen: Evidence, clique: str, trays: Sequence[str]) -> str | None:
    """The cause where these trays stand in another rack than the clique's, None where they name no other one."""
    serials = {serial: name for name, row in seen.fabric.domains.items() for serial in row["chassis_serials"]}
    racks = {serials.get(seen.observations[tray].chassis_serial or "") for tray in trays}
    rack = racks.pop() if len(racks) == 1 else None
    here = rack is None or rack == seen.fabric.cliques[clique]["domain"]
    return None if here else f"put into the rack of NVLink domain {rack}"
