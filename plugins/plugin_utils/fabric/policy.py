# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a site for the placement of its trays."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings import table
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import missing_library, nearest, shown

if TYPE_CHECKING:
    from netaddr import IPNetwork

# Part of an Ansible group name.
_DOMAIN_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


GATES = tuple(table.TABLE[table.GATES, table.ERROR])
"""Gates, each under the code of its finding, that a site may override by naming them."""
MAX_AGE = 1_000_000_000
ASK = "ask"


class PlacementError(NvlinkError):
    """The site's settings are invalid or contradict each other."""


def percent(option: str, value: Any) -> float:
    """Convert a percentage from 0 to 100; PlacementError if it is invalid."""
    with contextlib.suppress(TypeError, ValueError):
        if 0 <= float(value) <= 100:
            return float(value)
    raise PlacementError(f"{option}: {shown(value)} must be a number from 0 to 100")


@dataclass(frozen=True)
class Policy:
    """The site's settings for placement; PlacementError for an invalid one.

    imex_networks: CIDRs for imex_address, the preferred one first.
    domain_names: cluster UUID or chassis serial -> name of the NVLink domain, used at its first discovery.
    expected_trays: number of trays of every domain; None: the number at its first discovery.
    moved_percent: gate; the largest share of the placed trays that may move in one run. One tray may always move,
    unless it is 0.
    tray_partitions: for trays that are each alone in a clique, in a domain that is split per tray: let the gate decide
    (ask), give each a block (own_block), leave them out of the blocks (leave_out), or keep their block (keep_block).
    slurm_topology_split: clique -> the sizes of its blocks in Slurm, or their names with the trays of each; any other
    clique has one block. None: all stay as they are.
    expected: declared trays, by the name of their domain, or of their clique where a domain has several.
    max_age: gate; largest age in seconds of an observation that changes a place. None: any age.
    override: names of gates that do not object; the fabric file records those that would have.
    groups: names of the inventory's groups, which no tray may have: Ansible gives a group the variables of such a host.
    provisional: whether cliques and blocks are named by clique ID, as they are without a fabric file.
    moves: tray -> its clique ID after a change of NVLink partitions. A known clique does not follow these trays to a
    new ID, so each partition keeps its name.
    """

    imex_networks: tuple[str, ...] = ()
    domain_names: Mapping[str, str] = field(default_factory=dict)
    expected_trays: int | None = None
    moved_percent: float = 10
    tray_partitions: str = ASK
    slurm_topology_split: Mapping[Any, Any] | None = None
    expected: Mapping[str, Collection[str]] = field(default_factory=dict)
    max_age: float | None = None
    override: Collection[str] = ()
    groups: Collection[str] = ()
    provisional: bool = False
    moves: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _valid = self.networks
        names = [("domain_names", name, f"{name!r} of {key!r}") for key, name in self.domain_names.items()]
        for option, name, which in [*names, *(("expected", name, shown(name)) for name in self.expected)]:
            if not (isinstance(name, str) and _DOMAIN_NAME.fullmatch(name)):
                raise PlacementError(
                    f"{option}: {which} is not valid in a group name; use 1 to 64 letters, digits and underscores"
                )
        if self.expected_trays is not None and self.expected_trays < 1:
            raise PlacementError(f"expected_trays: {self.expected_trays} must be at least 1; leave it out to count")
        percent("moved_percent", self.moved_percent)
        if self.max_age is not None and not 0 < self.max_age < MAX_AGE:
            raise PlacementError(
                f"max_age: {self.max_age:g} must be seconds from 1 to {MAX_AGE}; leave it out to accept any age"
            )
        for gate in self.override:
            if gate not in GATES:
                raise PlacementError(f"override: {shown(gate)} is not a gate{nearest(gate, GATES)}")
        rows = [(tray, name) for name, trays in self.expected.items() for tray in trays]
        if len(self.expected_in) != len(rows):
            tray, name = next((tray, name) for tray, name in rows if self.expected_in[tray] != name)
            raise PlacementError(f"expected: {tray} is listed in {name} and in {self.expected_in[tray]}; list it once")

    @cached_property
    def networks(self) -> tuple[IPNetwork, ...]:
        """imex_networks; host bits may be set, as `ip address` prints them."""
        if not self.imex_networks:
            return ()
        # Only where an option names a network: Ansible loads this file on controllers without netaddr, too.
        try:
            from netaddr import AddrFormatError, IPNetwork
        except ImportError:
            raise PlacementError(f"imex_network: {missing_library('netaddr')}") from None
        found = []
        for text in self.imex_networks:
            try:
                if "/" not in text:
                    raise ValueError
                found.append(IPNetwork(text))
            except (AddrFormatError, ValueError):
                raise PlacementError(
                    f"imex_network: {text!r} is not a network; write it in CIDR notation, such as 198.51.100.0/24"
                ) from None
        return tuple(found)

    @cached_property
    def expected_in(self) -> dict[str, str]:
        """Declared tray -> its expected domain or clique."""
        return {tray: name for name, trays in self.expected.items() for tray in trays}


def of_options(options: Mapping[str, Any], groups: Collection[str]) -> Policy:
    """The policy in the options of the module fabric_file; groups: see Policy."""
    return Policy(
        imex_networks=tuple(options["imex_network"]),
        # YAML reads an unquoted serial as a number.
        domain_names={str(key): str(name) for key, name in options["domain_names"].items()},
        expected_trays=options["expected_trays"],
        moved_percent=options["moved_percent"],
        tray_partitions=options["tray_partitions"],
        slurm_topology_split=options["slurm_topology_split"],
        expected=names_of("expected", options["expected"], "r01t[01-18]"),
        max_age=options["max_age"],
        override=tuple(options["override"]),
        groups=groups,
        moves=options["moves"],
    )


def names_of(option: str, given: Mapping[Any, Any], example: str) -> dict[str, list[str]]:
    """The names below each key of an option, each a hostlist or a list of hostlists; example: one for the message."""
    found = {}
    for key, value in given.items():
        try:
            if isinstance(value, Mapping):
                raise HostlistError("it is a mapping")
            lists = value if isinstance(value, (list, tuple)) else [value]
            found[str(key)] = [name for text in lists for name in expand(str(text))]
        except HostlistError as error:
            raise PlacementError(
                f"{option}: {key} is not a hostlist ({str(error).rstrip('.')}); write it as {example}"
            ) from None
    return found
