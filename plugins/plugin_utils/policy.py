# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a site decides about the places of its trays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import addresses

# Part of an Ansible group name.
_DOMAIN_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


class PlacementError(NvlinkError):
    """What a site has written about its trays cannot be followed."""


@dataclass(frozen=True)
class Policy:
    """A site's decisions; PlacementError, or addresses.NetworkError, for one that cannot be followed.

    imex_networks: CIDRs, the preferred first, of which a tray's imex_address is taken.
    domain_names: cluster UUID or chassis serial -> name of the NVLink domain, used when the domain is first seen.
    expected_trays: trays that every domain should have; None counts them when a domain is first seen.
    moved_percent: gate; more of the placed trays than this must not move in one go. One tray alone may, unless it is 0.
    """

    imex_networks: tuple[str, ...] = ()
    domain_names: Mapping[str, str] = field(default_factory=dict)
    expected_trays: int | None = None
    moved_percent: float = 10

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
