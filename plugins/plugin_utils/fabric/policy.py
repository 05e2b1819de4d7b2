# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a site decides about the places of its trays."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import addresses
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import nearest, shown

# Part of an Ansible group name.
_DOMAIN_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


# Gates, each under the code of its finding, that a site may override by naming them.
GATES = (
    "moved_percent",
    "domain_merged",
    "domain_split",
    "clique_shrank",
    "unknown_trays",
    "source_too_old",
    "mixed_cliques",
)
KEEP, ERROR, MAJORITY = "keep", "error", "majority"
CONFLICT_POLICIES = (KEEP, ERROR, MAJORITY)


class PlacementError(NvlinkError):
    """What a site has written about its trays cannot be followed."""


@dataclass(frozen=True)
class Policy:
    """A site's decisions; PlacementError, or addresses.NetworkError, for one that cannot be followed.

    imex_networks: CIDRs, the preferred first, of which a tray's imex_address is taken.
    domain_names: cluster UUID or chassis serial -> name of the NVLink domain, used when the domain is first seen.
    expected_trays: trays that every domain should have; None counts them when a domain is first seen.
    moved_percent: gate; more of the placed trays than this must not move in one go. One tray alone may, unless it is 0.
    conflict_policy: what to do with a tray whose GPUs are in different cliques: keep its place, stop the run (error),
    or take the clique that most of its GPUs name (majority), which it enters only where override names mixed_cliques.
    expected: trays that the site declares, by the name of their domain, or of their clique where a domain has several.
    max_age: gate; seconds that an observation may be old if it changes a place. None asks nothing.
    override: names of gates that must not object; the fabric file keeps which did.
    """

    imex_networks: tuple[str, ...] = ()
    domain_names: Mapping[str, str] = field(default_factory=dict)
    expected_trays: int | None = None
    moved_percent: float = 10
    conflict_policy: str = KEEP
    expected: Mapping[str, Collection[str]] = field(default_factory=dict)
    max_age: float | None = None
    override: Collection[str] = ()

    def __post_init__(self) -> None:
        addresses.networks(self.imex_networks)
        for key, name in self.domain_names.items():
            if not (isinstance(name, str) and _DOMAIN_NAME.fullmatch(name)):
                raise PlacementError(
                    f"domain_names: {name!r} of {key!r} is not fit for a group name; "
                    "use 1 to 64 letters, digits and underscores"
                )
        if self.expected_trays is not None and self.expected_trays < 1:
            raise PlacementError(f"expected_trays: {self.expected_trays} must be at least 1; leave it out to count")
        if not 0 <= self.moved_percent <= 100:
            raise PlacementError(f"moved_percent: {self.moved_percent} must be a number from 0 to 100")
        if self.conflict_policy not in CONFLICT_POLICIES:
            raise PlacementError(
                f"conflict_policy: {shown(self.conflict_policy)} must be one of {', '.join(CONFLICT_POLICIES)}"
            )
        if self.max_age is not None and self.max_age <= 0:
            raise PlacementError(f"max_age: {self.max_age:g} must be seconds above 0; leave it out to take any age")
        for gate in self.override:
            if gate not in GATES:
                raise PlacementError(f"override: {shown(gate)} is no gate{nearest(gate, GATES)}")
        self._check_expected()

    def _check_expected(self) -> None:
        for name in self.expected:
            if not (isinstance(name, str) and _DOMAIN_NAME.fullmatch(name)):
                raise PlacementError(
                    f"expected: {shown(name)} is not fit for a group name; use 1 to 64 letters, digits and underscores"
                )
        rows = [(tray, name) for name, trays in self.expected.items() for tray in trays]
        if len(self.racks) != len(rows):
            tray, name = next((tray, name) for tray, name in rows if self.racks[tray] != name)
            raise PlacementError(f"expected: {tray} stands in {name} and in {self.racks[tray]}; name it once")

    @cached_property
    def racks(self) -> dict[str, str]:
        """Declared tray -> the domain or clique that the site expects it in."""
        return {tray: name for name, trays in self.expected.items() for tray in trays}
