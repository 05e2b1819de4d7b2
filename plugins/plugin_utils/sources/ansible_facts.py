# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source ansible_facts: the results of a fabric_facts task, as discover registers them.

A tray may return anything, so every value is checked here. A wrong value becomes null with a finding, and a tray counts
as attached only when the rows of its GPUs agree with that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import CLIQUE_TYPES, ZERO_UUID
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Address,
    Observation,
    gpu_health,
    worst_health,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import (
    CLUSTER_UUID,
    GPU_UUID,
    SERIAL,
    TIME,
    VERSION,
    is_address,
    text,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_facts import Checked
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

SOURCE = "ansible_facts"

# Ansible's messages where a module did not even start.
_NO_RESULT = ("MODULE FAILURE", "Module result deserialization failed", "The module failed to execute correctly")
_SSH = "Failed to connect to the host via ssh: "
_OF_CONTROLLER = ("tray_facts_foreign", "tray_answer_invalid")


def observe(tray: str, result: Any, source: str = SOURCE) -> Observation:
    """The observation in one result of fabric_facts; without facts the reason is in `problem`."""
    if not isinstance(result, Mapping):
        return _nothing(tray, "no result of this run", source)
    # Written by this collection's action plugin on the controller, not by the tray.
    found = tuple(row for row in _findings(result, tray) if row["code"] in _OF_CONTROLLER)
    if result.get("unreachable"):
        return _nothing(tray, problem(result), source, found)
    if result.get("skipped"):
        return _nothing(tray, "the task that reads its facts was skipped", source, found)
    facts = mapped(result.get("ansible_facts")).get("nvlink_fabric")
    if result.get("failed") or not isinstance(facts, Mapping):
        return _nothing(tray, problem(result), source, found)
    observation = from_facts(tray, facts, source)
    return replace(observation, findings=(*observation.findings, *found)) if found else observation


def problem(result: Object) -> str:
    """Why a registered result has no facts."""
    return _unreachable(result.get("msg")) if result.get("unreachable") else _failure(result)


def _unreachable(message: Any) -> str:
    """Why a host is unreachable: of ssh the last line, since banners and warnings of any length stand above it."""
    if isinstance(message, str):
        _frame, ssh, printed = message.partition(_SSH)
        last = _last(printed)
        if last:
            return f"{ssh}{last}"
    return sentence(message) or "unreachable"


def _last(printed: str) -> str:
    """The last line that is not empty, as a sentence."""
    return next(filter(None, (sentence(line) for line in reversed(printed.split("\n")[-20:]))), "")


def _failure(result: Object) -> str:
    why = sentence(result.get("msg")) or "the task that reads its facts returned none"
    if not why.startswith(_NO_RESULT):
        return why
    # Ansible's message is about its own protocol; what the host printed instead is the cause.
    last = _last(str(result.get("module_stderr") or result.get("module_stdout") or ""))
    return f"its Python interpreter returned no result{f' ({last})' if last else ''}"


def refuse(tray: str, source: str, names: list[str]) -> Observation:
    """The observation of a tray whose facts set these variables of the site (trust.foreign_variables)."""
    found = trust.refusal(tray, names)["findings"]
    return _nothing(tray, "its facts set variables of the site, so its answer is not used", source, tuple(found))


def from_facts(tray: str, facts: Object, source: str = SOURCE) -> Observation:
    """The observation in one tray's `nvlink_fabric` facts (contract of fabric_facts), from whichever source."""
    value = Checked(tray, facts)
    observed_at = value("observed_at", text(TIME))
    if observed_at is None:
        return _nothing(tray, "its facts have no valid observed_at", source)
    gpus = [gpu for gpu in as_list(facts.get("gpus")) if isinstance(gpu, Mapping)]
    fabrics = [mapped(gpu.get("fabric")) for gpu in gpus]
    places = [_place(fabric) for fabric in fabrics]
    attached = {place for place in places if place}
    agreed = len(attached) == 1 and None not in places and facts.get("attached") is True
    uuids = tuple(dict.fromkeys(filter(None, (text(GPU_UUID)(gpu.get("uuid")) for gpu in gpus))))
    if agreed and not uuids:
        # This tray could not be distinguished from another of the same clique.
        agreed = False
        message = f"Tray {tray} reports no usable GPU UUID; check its driver."
        value.findings.append(finding("unusable_value", message, tray=tray, gpu=None))
    return Observation(
        tray=tray,
        source=source,
        observed_at=observed_at,
        identity=next(iter(attached)) if agreed else None,
        inconsistent=len(attached) > 1,
        node_local=bool(fabrics) and all(_node_local(fabric, facts.get("chassis_serial")) for fabric in fabrics),
        cliques=_cliques(fabrics),
        chassis_serial=value("chassis_serial", text(SERIAL)),
        tray_index=value("tray_index", whole),
        host_id=value("host_id", whole),
        gpu_uuids=uuids,
        gpu_count=max(len(gpus), value("gpu_count", whole) or 0),
        product=next((sentence(gpu.get("name"), 64) for gpu in gpus), ""),
        addresses=_addresses(facts),
        driver_version=value("driver_version", text(VERSION)),
        health=worst_health(gpu_health(mapped(fabric.get("health"))) for fabric in fabrics),
        findings=(*_findings(facts, tray), *value.findings),
    )


def _nothing(tray: str, problem: str, source: str = SOURCE, findings: tuple[Finding, ...] = ()) -> Observation:
    return Observation(tray=tray, source=source, reachable=False, problem=problem, findings=findings)


def _joined(fabric: Object) -> bool:
    return (fabric.get("state"), fabric.get("status")) == ("completed", "success")


def _place(fabric: Object) -> tuple[str, int] | None:
    """(cluster UUID, clique ID) of a GPU that is attached, else None."""
    uuid, clique_id = text(CLUSTER_UUID)(fabric.get("cluster_uuid")), whole(fabric.get("clique_id"))
    if uuid is None or uuid == ZERO_UUID or clique_id is None or not _joined(fabric):
        return None
    return uuid, clique_id


def _node_local(fabric: Object, chassis_serial: Any) -> bool:
    """Joined, but to a fabric without a UUID, as on HGX baseboards, or without one, as an L40S or a GH200 alone.

    The GPUs of a tray of a rack, which reports its chassis, have a fabric: there the driver has failed.
    """
    if fabric.get("state") == "not_supported":
        return chassis_serial is None
    return _joined(fabric) and fabric.get("cluster_uuid") in (None, ZERO_UUID)


def _cliques(fabrics: Sequence[Object]) -> dict[str, frozenset[int]]:
    """Kind of operation -> IDs of the cliques that all GPUs have; without the kinds that no GPU reports."""
    rows = [mapped(fabric.get("cliques")) for fabric in fabrics]
    found = {}
    for kind, _text in CLIQUE_TYPES.values():
        ids = [frozenset(each for each in map(whole, as_list(row.get(kind))) if each is not None) for row in rows]
        if any(ids):
            found[kind] = frozenset.intersection(*ids)
    return found


def _addresses(facts: Object) -> tuple[Address, ...]:
    found = []
    for row in as_list(facts.get("addresses")):
        if not isinstance(row, Mapping):
            continue
        address, prefix = row.get("address"), whole(row.get("prefix"))
        if isinstance(address, str) and is_address(address):
            found.append(Address(sentence(row.get("interface")), str(address), prefix or 0))
    return tuple(found)


def _findings(facts: Object, tray: str) -> list[Finding]:
    """The tray's own findings, with the tray as subject."""
    try:
        rows = trust.host_findings(facts.get("findings") or [])
    except ValueError:
        message = f"{tray} returned findings of another shape, which are dropped; check the host."
        return [finding("tray_answer_invalid", message, tray=tray)]
    texts = [(row, sentence(row["message"])) for row in rows]
    return [finding(row["code"], f"{text}.", tray=tray, gpu=row.get("gpu")) for row, text in texts if text]
