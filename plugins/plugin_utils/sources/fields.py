# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Map an item of an external list to the observation of a tray, by one function for each field.

The results pass the same checks as the facts of a tray: an invalid value becomes null with a finding. A field that is
left out, or null, is unknown without a finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import ZERO_UUID
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    DEGRADED,
    HEALTHY,
    UNHEALTHY,
    UNKNOWN,
    Address,
    Observation,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import (
    CLUSTER_NAME,
    CLUSTER_UUID,
    GPU_UUID,
    NODE_NAME,
    SERIAL,
    TIME,
    VERSION,
    identity,
    is_address,
    text,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.collector import tray_name
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

MAX_LIST = 1024
_HEALTH = re.compile("|".join((HEALTHY, DEGRADED, UNHEALTHY, UNKNOWN)))
REMEDY = "correct it there, or its expression"
Field = Callable[[Any], Any]
"""The value of a field of an item, or the checked value of a value."""


def observation(
    source: str, item: Any, fields: Mapping[str, Field], now: str, remedies: Mapping[str, str] = MappingProxyType({})
) -> Observation | None:
    """Convert an item; None if it has no usable name.

    fields: those of CHECKS, and `name`; remedies: field -> what to do about an invalid value, if not REMEDY.
    """
    tray = tray_name(fields["name"](item))
    if tray is None:
        return None
    values: dict[str, Any] = {}
    findings: list[Finding] = []
    for field, read in fields.items():
        raw = read(item) if field != "name" else None
        value = CHECKS[field](raw) if raw is not None else None
        if value is not None:
            values[field] = value
        elif raw is not None:
            message = f"Source {source} returns an invalid {field} for tray {tray}; {remedies.get(field, REMEDY)}."
            findings.append(finding("unusable_value", message, tray=tray))
    problem = values.pop("problem", None)
    if problem:
        return Observation(tray, source, reachable=False, problem=problem, findings=tuple(findings))
    place = _identity(values)
    known = {key: value for key, value in values.items() if key not in ("clique", "cluster_uuid", "clique_id")}
    known["gpu_count"] = max(len(known.get("gpu_uuids", ())), known.get("gpu_count", 0))
    return Observation(tray, source, identity=place, findings=tuple(findings), **{"observed_at": now, **known})


def _identity(values: Object) -> tuple[str, int] | None:
    """The clique from its text form, else from its two parts; None for the zero UUID."""
    if "clique" in values:
        place: tuple[str, int] = values["clique"]
        return place
    uuid, clique_id = values.get("cluster_uuid"), values.get("clique_id")
    return (uuid, clique_id) if uuid and uuid != ZERO_UUID and clique_id is not None else None


def _number(value: Any) -> int | None:
    """An integer, also in text form, as in many custom fields."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value):
        value = int(value)
    return whole(value)


def _serial(value: Any) -> str | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18
    return text(SERIAL)(str(value) if is_number else value)


def _gpu_uuids(value: Any) -> tuple[str, ...] | None:
    """GPU UUIDs in their order; None if one of them is invalid."""
    if not isinstance(value, list) or len(value) > MAX_LIST:
        return None
    uuids = [text(GPU_UUID)(item) for item in value]
    return None if None in uuids else tuple(dict.fromkeys(uuid for uuid in uuids if uuid))


def _addresses(value: Any) -> tuple[Address, ...] | None:
    """Addresses from a text, or a list of texts or of objects with address, interface and prefix."""
    rows = value if isinstance(value, list) else [value]
    if len(rows) > MAX_LIST:
        return None
    found = [_address(row) for row in rows if row is not None]
    return None if None in found else tuple(address for address in found if address)


def _address(row: Any) -> Address | None:
    fields = row if isinstance(row, Mapping) else {"address": row}
    value = fields.get("address")
    if not isinstance(value, str):
        return None
    address, _slash, length = value.partition("/")
    prefix = _number(length) if length else _number(fields.get("prefix"))
    if not is_address(address) or (length and prefix is None):
        return None
    return Address(sentence(fields.get("interface")), address, prefix or 0)


def _lower(check: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    return lambda value: check(value.lower() if isinstance(value, str) else value)


def _host(value: Any) -> str | None:
    return str(value) if isinstance(value, str) and is_address(value) else text(NODE_NAME)(value)


CHECKS: dict[str, Field] = {
    "clique": identity,
    "cluster_uuid": _lower(text(CLUSTER_UUID)),
    "clique_id": _number,
    "chassis_serial": _serial,
    "tray_index": _number,
    "gpu_uuids": _gpu_uuids,
    "gpu_count": _number,
    "addresses": _addresses,
    "driver_version": text(VERSION),
    "health": _lower(text(_HEALTH)),
    "observed_at": text(TIME),
    "problem": lambda value: sentence(value) or None,
    "slurm_node": text(NODE_NAME),
    "kubernetes_node": text(NODE_NAME),
    "ansible_host": _host,
    "slurm_cluster": text(CLUSTER_NAME),
    "kubernetes_cluster": text(CLUSTER_NAME),
}
"""Field -> its check."""
