# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one tray reported in one reading: the only parser of a tray's answer, whatever brought it.

An answer is the result of a fabric_facts task, or what has its shape (the probe over ssh, cached facts)::

    {"ansible_facts": {"nvlink_fabric": {...}, ...}, "findings": [...], "failed", "unreachable", "skipped", "msg"}

A tray may return anything, so every value is checked here, and nothing raises. A subset of fabric_facts that the
controller reads becomes one typed part; a new one needs a field of TrayReport and a row of _PARTS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import kernel_log, links
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import CLIQUE_TYPES, ZERO_UUID
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import parts as imex_parts
from ansible_collections.rackscale.nvlink.plugins.module_utils.subsets import FACTS
from ansible_collections.rackscale.nvlink.plugins.modules import fabric_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    UNKNOWN,
    Address,
    Identity,
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
    identity,
    is_address,
    text,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.schemas import Schema
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

SCHEMA = schemas.of_return(fabric_facts.RETURN)
"""The checks of what fabric_facts returns, at the edge where an answer comes in (trust.accepted)."""

NO_RESULT = "no result in this run"
# Ansible's messages where a module did not even start.
_NOT_STARTED = ("MODULE FAILURE", "Module result deserialization failed", "The module failed to execute correctly")
_SSH = "Failed to connect to the host via ssh: "
# The controller's side writes these.
_OF_CONTROLLER = ("tray_facts_foreign", "tray_answer_invalid")
# The facts that roles of Kubernetes use of an earlier task.
_CACHED = (FACTS["gpu"], FACTS["imex"])
# With the epoch of a package.
_VERSION_OR_PACKAGE = re.compile(r"[0-9A-Za-z.+~:_-]{1,64}")
T = TypeVar("T")


@dataclass(frozen=True)
class Gpu:
    """One GPU. place: (cluster UUID, clique ID) where it is attached. recovery_action: NVML's, in words.

    module_id, fabric_guid: of NVML's platform information, as an NVLink switch may list the GPU.
    """

    index: int | None = None
    name: str = ""
    uuid: str | None = None
    pci_bus_id: str = ""
    place: Identity | None = None
    health: str = UNKNOWN
    recovery_action: str = ""
    module_id: int | None = None
    fabric_guid: str | None = None


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a tray and their fabric.

    attached, clique: as the tray itself evaluates its GPUs; clique is a text, `<uuid>.<id>`. observed: what a placement
    uses, evaluated here; None without the time of the reading. slot_number: of the tray in its chassis.
    """

    attached: bool = False
    clique: str | None = None
    driver_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    findings: tuple[Finding, ...] = ()
    observed: Observation | None = None
    slot_number: int | None = None


class Channels(NamedTuple):
    """The IMEX channels: the major number of this boot, None where the driver offers none, and the devices."""

    major: int | None
    minors: frozenset[int]


class Versions(NamedTuple):
    """Of what is loaded or runs, and of what is installed; None where there is none."""

    driver: str | None
    imex: str | None
    imex_package: str | None
    slurmd: str | None


class Links(NamedTuple):
    """The links of the GPUs that could be read, of gpu_count, and what the kernel logged of them."""

    gpus: Sequence[links.Gpu]
    gpu_count: int
    xids: Sequence[kernel_log.Row]
    xids_complete: bool


@dataclass(frozen=True)
class TrayReport:
    """One reading of one tray.

    problem: why the tray did not answer at all, empty where it did. missing: part -> why it is None. findings: the
    tray's own on all parts. refused: the controller's, on what it does not use of the answer.
    """

    tray: str
    gpu: Gpus | None = None
    imex: imex_parts.Facts | None = None
    channels: Channels | None = None
    versions: Versions | None = None
    links: Links | None = None
    problem: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()

    def observation(self, source: str) -> Observation:
        """What the tray reported of its GPUs, for a placement; without them the reason is in `problem`."""
        if self.gpu and self.gpu.observed:
            return replace(self.gpu.observed, source=source, findings=(*self.gpu.findings, *self.refused))
        problem = self.missing.get("gpu", "its facts have no valid observed_at")
        return Observation(self.tray, source, reachable=False, problem=problem, findings=self.refused)


def read(tray: str, result: Any) -> TrayReport:
    """The report in a registered result; one without any part has the reason as its problem."""
    if not isinstance(result, Mapping) or not result:
        return _silent(tray, NO_RESULT)
    found, invalid = _findings(result, tray)
    # Written by this collection's action plugin on the controller, not by the tray.
    refused = (*invalid, *(_about(row, tray) for row in found if row["code"] in _OF_CONTROLLER))
    if result.get("unreachable"):
        message = result.get("msg")
        # Of ssh the last line: banners and warnings of any length stand above it.
        printed = message.partition(_SSH)[2] if isinstance(message, str) else ""
        return _silent(tray, _last(printed) or sentence(message) or "unreachable", refused)
    if result.get("skipped"):
        return _silent(tray, "the task that reads its facts was skipped", refused)
    facts = mapped(result.get("ansible_facts"))
    if result.get("failed") or not any(name in facts for name in FACTS.values()):
        return _silent(tray, _failure(result), refused)
    parts: dict[str, Any] = {}
    missing, doubts = {}, []
    for part, how in _PARTS.items():
        given = _Given(tray, facts.get(FACTS[part]))
        if given.facts is None:
            missing[part] = _failure(result)
            continue
        try:
            parts[part] = how(given)
        except ValueError:
            missing[part] = f"its {part} facts are not well-formed"
            message = f"{tray} reports {part.upper()} facts that are not well-formed."
            given.findings.append(finding("tray_subset_failed", message, tray=tray))
        doubts += given.findings
    own = tuple(row for row in found if row["code"] not in _OF_CONTROLLER)
    return TrayReport(tray, **parts, missing=missing, findings=own, refused=(*doubts, *refused))


def foreign(tray: str, names: list[str]) -> TrayReport:
    """The report of a tray whose facts set these variables of the site (trust.foreign_variables)."""
    found = trust.refusal(tray, names)["findings"]
    return _silent(tray, "its facts set variables of the site, so its answer is not used", tuple(found))


def cached(hostvars: Any, names: Iterable[str]) -> dict[str, tuple[TrayReport, Variables]]:
    """Tray -> (its report by the facts that a play on localhost finds in hostvars, its variables, not templated).

    They may come from this run, a fact cache or a module of another collection, so they are checked here again. Of a
    tray whose facts set a variable of this collection nothing is used; a name that is not in the inventory has nothing.
    """
    return {name: _cached(name, hostvars.raw_get(name) if name in hostvars else {}) for name in map(str, names)}


def _cached(tray: str, variables: Variables) -> tuple[TrayReport, Variables]:
    facts = variables.get("ansible_facts")
    if names := trust.foreign_variables(facts):
        return foreign(tray, names), {}
    # A site without fact gathering may set them in its inventory.
    known = {name: mapped(facts).get(name) or variables.get(name) for name in _CACHED}
    answer = {"ansible_facts": {name: value for name, value in known.items() if value}}
    return read(tray, trust.accepted(tray, answer, SCHEMA)), variables


# ---------------------------------------------------------------------------------------- why a tray did not answer


def _silent(tray: str, problem: str, refused: tuple[Finding, ...] = ()) -> TrayReport:
    return TrayReport(tray, problem=problem, missing=dict.fromkeys(_PARTS, problem), refused=refused)


def _last(printed: Any) -> str:
    """The last line that is not empty, as a sentence."""
    lines = printed.split("\n")[-20:] if isinstance(printed, str) else ()
    return next(filter(None, map(sentence, reversed(lines))), "")


def _failure(result: Object) -> str:
    why = sentence(result.get("msg")) or "the task that reads its facts returned none"
    if not why.startswith(_NOT_STARTED):
        return why
    # Ansible's message is about its own protocol; what the host printed instead is the cause.
    last = _last(result.get("module_stderr") or result.get("module_stdout"))
    return f"its Python interpreter returned no result{f' ({last})' if last else ''}"


# ------------------------------------------------------------------------------------------------------------ parts


class _Given:
    """The facts of one part; reads single values, and each that is neither null nor valid adds a finding."""

    def __init__(self, tray: str, facts: Any) -> None:
        self.tray = tray
        self.facts: Any = facts if isinstance(facts, Mapping) else None
        self.findings: list[Finding] = []

    def __call__(self, name: str, check: Callable[[Any], T | None]) -> T | None:
        raw = self.facts.get(name)
        value = check(raw)
        if raw is not None and value is None:
            message = f"Tray {self.tray} reports an unusable {name}; check its driver, and run fabric_facts on it."
            self.findings.append(finding("unusable_value", message, tray=self.tray, gpu=None))
        return value

    def rows(self, name: str, check: schemas.Check = mapped) -> list[Any]:
        """The rows of a list that are well-formed: none may stop the use of the others."""
        found = []
        for row in as_list(self.facts.get(name)):
            try:
                found += [check(row)] if isinstance(row, Mapping) else []
            except ValueError:
                continue
        return found


def _gpus(value: _Given) -> Gpus:
    """A tray has a place only where the rows of all its GPUs agree with what it reports itself."""
    facts, tray = value.facts, value.tray
    rows = value.rows("gpus")
    fabrics = [mapped(row.get("fabric")) for row in rows]
    gpus = tuple(map(_gpu, rows, fabrics))
    places = [gpu.place for gpu in gpus]
    attached = {place for place in places if place}
    agreed = len(attached) == 1 and None not in places and facts.get("attached") is True
    uuids = tuple(dict.fromkeys(gpu.uuid for gpu in gpus if gpu.uuid))
    if agreed and not uuids:
        # This tray could not be distinguished from another of the same clique.
        agreed = False
        message = f"Tray {tray} reports no usable GPU UUID; check its driver."
        value.findings.append(finding("unusable_value", message, tray=tray, gpu=None))
    observed = Observation(
        tray,
        "",
        observed_at=value("observed_at", text(TIME)),
        identity=next(iter(attached)) if agreed else None,
        inconsistent=len(attached) > 1,
        node_local=bool(fabrics) and all(_is_node_local(fabric, facts.get("chassis_serial")) for fabric in fabrics),
        cliques=_cliques(fabrics),
        chassis_serial=value("chassis_serial", text(SERIAL)),
        tray_index=value("tray_index", whole),
        host_id=value("host_id", whole),
        gpu_uuids=uuids,
        fabric_guids=tuple(gpu.fabric_guid for gpu in gpus if gpu.fabric_guid),
        gpu_count=max(len(rows), value("gpu_count", whole) or 0),
        product=gpus[0].name if gpus else "",
        addresses=tuple(filter(None, map(_address, value.rows("addresses")))),
        driver_version=value("driver_version", text(VERSION)),
        health=worst_health(gpu.health for gpu in gpus),
    )
    found, invalid = _findings(facts, tray)
    return Gpus(
        attached=facts.get("attached") is True,
        clique=value("clique", lambda given: given if identity(given) else None),
        driver_version=observed.driver_version,
        gpus=gpus,
        findings=tuple(_about(row, tray) for row in (*found, *invalid) if sentence(row["message"])),
        observed=observed if observed.observed_at else None,
        slot_number=value("slot_number", whole),
    )


def _gpu(row: Object, fabric: Object) -> Gpu:
    uuid, clique_id = text(CLUSTER_UUID)(fabric.get("cluster_uuid")), whole(fabric.get("clique_id"))
    is_placed = uuid is not None and uuid != ZERO_UUID and clique_id is not None and _has_joined(fabric)
    return Gpu(
        index=whole(row.get("index")),
        name=sentence(row.get("name"), 64),
        uuid=text(GPU_UUID)(row.get("uuid")),
        pci_bus_id=sentence(row.get("pci_bus_id"), 64),
        place=cast(Identity, (uuid, clique_id)) if is_placed else None,
        health=gpu_health(mapped(fabric.get("health"))),
        recovery_action=sentence(row.get("recovery_action"), 64),
        module_id=whole(row.get("module_id")),
        fabric_guid=sentence(row.get("fabric_guid"), 64) or None,
    )


def _has_joined(fabric: Object) -> bool:
    return (fabric.get("state"), fabric.get("status")) == ("completed", "success")


def _is_node_local(fabric: Object, chassis_serial: Any) -> bool:
    """Joined, but to a fabric without a UUID, as on HGX baseboards, or without one, as an L40S or a GH200 alone.

    The GPUs of a tray of a rack, which reports its chassis, have a fabric: there the driver has failed.
    """
    if fabric.get("state") == "not_supported":
        return chassis_serial is None
    return _has_joined(fabric) and fabric.get("cluster_uuid") in (None, ZERO_UUID)


def _cliques(fabrics: Sequence[Object]) -> dict[str, frozenset[int]]:
    """Kind of operation -> IDs of the cliques that all GPUs have; without the kinds that no GPU reports."""
    rows = [mapped(fabric.get("cliques")) for fabric in fabrics]
    found = {}
    for kind, _text in CLIQUE_TYPES.values():
        ids = [frozenset(each for each in map(whole, as_list(row.get(kind))) if each is not None) for row in rows]
        if any(ids):
            found[kind] = frozenset.intersection(*ids)
    return found


def _address(row: Object) -> Address | None:
    address = row.get("address")
    if not isinstance(address, str) or not is_address(address):
        return None
    return Address(sentence(row.get("interface")), str(address), whole(row.get("prefix")) or 0)


def _findings(facts: Object, tray: str) -> tuple[list[Finding], list[Finding]]:
    """(the findings of an answer or a part as the controller words them, why they are dropped)."""
    try:
        return trust.host_findings(facts.get("findings") or []), []
    except ValueError:
        message = f"{tray} returned findings of another shape, which are dropped"
        return [], [finding("tray_answer_invalid", message, tray=tray)]


def _about(row: Finding, tray: str) -> Finding:
    """A finding as one sentence with the tray as its subject."""
    return finding(row["code"], f"{sentence(row['message'])}.", tray=tray, gpu=row.get("gpu"))


MAX_MEMBERS = 4096
_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": schemas.MAX_NUMBER}
_COUNT_OR_NONE: Schema = {**_COUNT, "type": ["integer", "null"]}
_BOOL: Schema = {"type": "boolean"}
_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "maxLength": 255, "pattern": r"\A[^\x00-\x1f\x7f]*\Z"}


def _matching(pattern: str) -> Schema:
    return {"type": ["string", "null"], "pattern": rf"\A{pattern}\Z"}


def _form(**fields: Schema) -> Schema:
    """A mapping that has these keys."""
    return {"type": "object", "required": [*fields], "properties": fields}


def _rows(**fields: Schema) -> Schema:
    """A list of such mappings."""
    return {"type": "array", "maxItems": MAX_MEMBERS, "items": _form(**fields)}


_WORD = _matching("[a-z][a-z0-9_]{0,63}")
_IMEX = schemas.compiled(
    _form(
        running=_BOOL,
        ready=_BOOL,
        state=_WORD,
        domain_state=_WORD,
        version=_matching("[0-9A-Za-z._+~-]{1,64}"),
        peers=_rows(host=_NAME, connection=_WORD),
        nodes=_form(
            sha256=_matching("[0-9a-f]{64}"), entries={"type": "array", "maxItems": MAX_MEMBERS, "items": _NAME}
        ),
        findings=schemas.FINDINGS,
    )
)
_LINKS_OF_GPU = schemas.compiled(
    _form(
        uuid=_TEXT,
        index=_COUNT,
        link_count={**_COUNT, "maximum": links.MAX_LINKS},
        unknown_counters={"type": "array"},
        counters=_rows(link=_COUNT, recoveries=_COUNT_OR_NONE),
        links=_rows(state={}, speed=_COUNT_OR_NONE, links={"type": "array", "items": _COUNT}),
    )
)
_XID = schemas.compiled(
    _form(
        xid={"enum": [*kernel_log.XIDS]},
        last_at={"type": "number"},
        pci_bus_id=_matching("[0-9A-F:.]{1,16}"),
        fatal=_BOOL,
        boot=_BOOL,
        action=_matching("[a-z0-9_]{1,32}"),
        gpu=_COUNT_OR_NONE,
        link=_COUNT_OR_NONE,
    )
)


def check_imex(facts: Any) -> None:
    """ValueError for nvlink_imex that is not as documented, or lacks what decisions for a clique use."""
    _IMEX(facts)
    SCHEMA[f"ansible_facts.{FACTS['imex']}"](facts)


def _imex(value: _Given) -> imex_parts.Facts:
    check_imex(value.facts)
    return cast(imex_parts.Facts, trust.with_findings(value.facts))


def _channels(value: _Given) -> Channels:
    minors = (whole(row.get("minor")) for row in value.rows("devices"))
    return Channels(whole(value.facts.get("major")), frozenset(minor for minor in minors if minor is not None))


def _versions(value: _Given) -> Versions:
    return Versions(*(text(_VERSION_OR_PACKAGE)(value.facts.get(name)) for name in Versions._fields))


def _links(value: _Given) -> Links:
    return Links(
        value.rows("gpus", _LINKS_OF_GPU),
        len(as_list(value.facts.get("gpus"))),
        value.rows("xids", _XID),
        value.facts.get("xids_complete") is not False,
    )


_PARTS: dict[str, Callable[[_Given], Any]] = {
    "gpu": _gpus,
    "imex": _imex,
    "channels": _channels,
    "versions": _versions,
    "links": _links,
}
"""Subset of fabric_facts, which is the field of TrayReport -> what reads its facts; ValueError: not well-formed."""
