# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVLink partitions that a site wants: the variable nvlink_partitions against the fabric file. Pure.

    {r01: 2x9, r02: [4, 4, 10], r03: default, r04: {r04a: {trays: "r04t[01-04]", multicast_limit: 16}}}

The values of resiliency and multicast_limit are those of NVOS (clients/nvue.py has the source).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import PartitionError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown, similar

OPTION = "nvlink_partitions"
RESILIENCY = ("full_bandwidth", "adaptive_bandwidth", "user_action_required")
MULTICAST_GROUPS, MULTICAST_STEP = 1024, 4
"""Multicast groups of a domain, and the step of the limit of a partition."""
_KEYS = ("trays", "resiliency", "multicast_limit")
_SHAPE = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
_FORMS = "write a shape as 2x9, sizes as [4, 4, 10], default, or names of cliques with their trays"


class Part(NamedTuple):
    """One wanted partition, of a shape (name empty, trays chosen by the plan) or by name with its trays.

    By name without trays: those that are named elsewhere leave it. resiliency: one of RESILIENCY, or empty.
    multicast_limit: None where the site sets none.
    """

    name: str
    size: int
    trays: tuple[str, ...] = ()
    resiliency: str = ""
    multicast_limit: int | None = None


Wish = tuple[Part, ...]
"""The partitions of one domain, all of a shape or all by name; none: all trays in the default partition."""


def parse(value: Any, fabric: Fabric) -> dict[str, Wish]:
    """Domain -> what the site wants there; PartitionError that names the place in the variable.

    Sizes are the trays of the domain in the fabric file. No tray is in two partitions, or of another domain.
    """
    if not isinstance(value, Mapping) or not value:
        raise PartitionError(f"{OPTION}: {shown(value)} is no mapping of NVLink domains; {_FORMS}, for each domain")
    wishes = {}
    for key, given in value.items():
        domain = str(key)
        if domain not in fabric.domains:
            hint = similar(domain, fabric.domains, "; use a name of its domains")
            raise PartitionError(f"{OPTION}: {shown(domain)} is no NVLink domain of the fabric file{hint}")
        wishes[domain] = (_named if isinstance(given, Mapping) and given else _sized)(domain, given, fabric)
    return wishes


def cliques_of(fabric: Fabric, domain: str) -> dict[str, int]:
    """Name -> ID of the cliques of a domain, by the position of their blocks; those without trays too."""
    rows = [(row["block"]["position"], name) for name, row in fabric.cliques.items() if row["domain"] == domain]
    return {name: fabric.cliques[name]["clique_id"] for _position, name in sorted(rows)}


def trays_of(fabric: Fabric, domain: str) -> list[str]:
    """The trays of a domain by their index in the rack, then in natural order; those without an index last."""
    trays = natural_sorted(tray for clique in cliques_of(fabric, domain) for tray in fabric.members[clique])
    indices = {tray: fabric.trays[tray]["tray_index"] for tray in trays}
    return sorted(trays, key=lambda tray: (indices[tray] is None, indices[tray] or 0))


def _sized(domain: str, given: Any, fabric: Fabric) -> Wish:
    if given == "default":
        return ()
    shape = _SHAPE.fullmatch(given) if isinstance(given, str) else None
    sizes = [int(shape[2])] * int(shape[1]) if shape else as_list(given)
    if not sizes or not all(map(whole, sizes)):
        raise PartitionError(f"{OPTION}.{domain}: {shown(given)} is no form of partitions; {_FORMS}")
    trays = sum(len(fabric.members[clique]) for clique in cliques_of(fabric, domain))
    if sum(sizes) != trays:
        what = f"{shown(given)} is {count(sum(sizes), 'tray')} in all, and the fabric file has {trays} there"
        raise PartitionError(f"{OPTION}.{domain}: {what}; correct the sizes")
    return tuple(Part("", int(size)) for size in sizes)


def _named(domain: str, given: Mapping[Any, Any], fabric: Fabric) -> Wish:
    parts, owner = [], dict[str, str]()
    for key, row in given.items():
        name, where = str(key), f"{OPTION}.{domain}.{key}"
        known = fabric.cliques.get(name)
        if not _NAME.fullmatch(name):
            raise PartitionError(f"{OPTION}.{domain}: {shown(name)} is no clique name; use letters, digits and _")
        if known and known["domain"] != domain:
            raise PartitionError(f"{where}: it is a clique of NVLink domain {known['domain']}; use another name")
        if not isinstance(row, Mapping):
            raise PartitionError(f"{where}: {shown(row)} is no mapping; write its trays, as {{trays: 'r01t[01-09]'}}")
        for word in row:
            if word not in _KEYS:
                raise PartitionError(f"{where}: {shown(word)} is not known{nearest(word, _KEYS)}")
        trays = _trays(f"{where}.trays", row.get("trays"), domain, fabric)
        for tray in trays:
            if tray in owner:
                raise PartitionError(f"{where}.trays: {tray} is in {owner[tray]}, too; list it once")
            owner[tray] = name
        parts.append(Part(name, len(trays), trays, *_settings(where, row)))
    return tuple(parts)


def _trays(where: str, given: Any, domain: str, fabric: Fabric) -> tuple[str, ...]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts) or given == "":
        raise PartitionError(f"{where}: {shown(given)} is no hostlist; write its trays as r01t[01-09], or [] for none")
    try:
        names = [name for text in texts for name in expand(text)]
    except HostlistError as error:
        raise PartitionError(f"{where}: {error}") from None
    if unknown := [name for name in names if name not in fabric.trays]:
        hint = similar(unknown[0], fabric.trays, "; use the names of the fabric file")
        raise PartitionError(f"{where}: {shown(unknown[0])} is no tray of the fabric file{hint}")
    if other := [name for name in names if fabric.cliques[fabric.trays[name]["clique"]]["domain"] != domain]:
        raise PartitionError(f"{where}: {summarize(other)} is not in NVLink domain {domain}; use trays of {domain}")
    return tuple(natural_sorted(dict.fromkeys(names)))


def _settings(where: str, row: Mapping[Any, Any]) -> tuple[str, int | None]:
    mode, limit = row.get("resiliency", ""), row.get("multicast_limit")
    if mode not in ("", *RESILIENCY):
        raise PartitionError(f"{where}.resiliency: {shown(mode)} is no resiliency mode{nearest(mode, RESILIENCY)}")
    if limit is not None and (whole(limit) is None or limit > MULTICAST_GROUPS or limit % MULTICAST_STEP):
        what = f"use a multiple of {MULTICAST_STEP} from 0 to {MULTICAST_GROUPS}"
        raise PartitionError(f"{where}.multicast_limit: {shown(limit)} is no multicast limit; {what}")
    return mode, whole(limit)
