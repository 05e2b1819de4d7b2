# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe trays for the module fabric_file, with what Ansible holds of each host.

That is the registered result of its facts, and the variables that the site sets for it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_file import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources, tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import merging
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import CLUSTER_NAME, HOST_ADDRESS, NODE_NAME
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ansible_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

_UNDER_OWN_NAME = {"fabric_file", "imex_network", "slurm_topology_split", "tray_reading"}
# The others are of the run, or have variables of their own.
_OTHERS = {"facts", "moves", "trays"}
VARIABLES = _UNDER_OWN_NAME | {
    f"fabric_{option}" for option in schemas.arguments(DOCUMENTATION).keys() - _UNDER_OWN_NAME - _OTHERS
}
"""The variables by which the playbook discover sets the options of the module fabric_file."""

_WORD = re.compile(r"\w+")
# An empty cluster: the tray is in none.
_NODE, _CLUSTER = (NODE_NAME, "host name"), (re.compile(f"({CLUSTER_NAME.pattern})?"), "cluster name")
_SETTINGS = {
    "fabric_slurm_node": ("slurm_node", *_NODE),
    "fabric_kubernetes_node": ("kubernetes_node", *_NODE),
    "fabric_slurm_cluster": ("slurm_cluster", *_CLUSTER),
    "fabric_kubernetes_cluster": ("kubernetes_cluster", *_CLUSTER),
}
"""The site's variable of a tray -> the field of an observation and the form of its values."""


# Default of min_answer for live sources, in percent.
_MIN_LIVE_ANSWER = 50.0


def selected(given: Sequence[Any]) -> list[tuple[str, Any]]:
    """The sources of the option, each with its own options, in the order of trust: those that observe trays."""
    rows = [next(iter(row.items())) if isinstance(row, Mapping) and len(row) == 1 else (row, None) for row in given]
    for name, _own in rows:
        if not isinstance(name, str):
            # Not the values, since one may be a secret.
            named = list(name) if isinstance(name, Mapping) else name
            raise SourceError(
                f"sources: {shown(named)} is neither a name nor a name with its options; write ssh, or ssh: "
                "with the options below it"
            )
    live = [(str(name), own) for name, own in rows if name not in (sources.FABRIC_FILE, sources.EVIDENCE)]
    if not live:
        raise SourceError("sources: has no live source; add ansible_facts, ssh or another live source")
    sources.check_names([name for name, _own in rows], (ansible_facts.SOURCE, sources.EVIDENCE, *sources.KNOWN))
    for name, own in rows:
        if own is not None and name not in sources.LIVE:
            raise SourceError(f"sources: {name} has no options here; write its name only")
    return live


def observe(
    rows: Sequence[tuple[str, Any]],
    options: Arguments,
    hosts: Hosts,
    now: str,
    reporter: sources.Reporter,
    fabric: Fabric | None,
) -> tuple[merging.Merged, str]:
    """Query the sources and merge their answers; why they are too few for a discovery, empty if they are enough.

    rows: of selected(). options: of the module. An outage of a source among others is an error only without a fabric
    file.
    """
    current, min_answer = fabric or Fabric(), options["min_answer"]
    known = {name: tray.get("ansible_host") or name for name, tray in current.trays.items()}
    answers = []
    for name, own in rows:
        if name == ansible_facts.SOURCE:
            # The play may include hosts that are always off, so min_answer applies only if it is set. Where this is the
            # only source, too_few() applies it, with and without a fabric file.
            found = hosts.registered(options["trays"], options["observations"])
            measured = min_answer is not None and len(options["sources"]) > 1
            answers.append(merging.Answer(name, found, measured=measured))
        else:
            answer = sources.query(name, own, now, known, reporter)
            applied = answer.observations if answer.hints else list(map(hosts.applied, answer.observations))
            answers.append(replace(answer, observations=applied))
    nodes = {name: tray["slurm_node"] for name, tray in current.trays.items()}
    clusters = (None, *current.slurm_clusters)
    blocks = {view.name for name in clusters for view in current.slurm_blocks(name) if view.clique}
    limit = _MIN_LIVE_ANSWER if min_answer is None else min_answer
    merged = merging.merge(answers, limit, fabric is not None, nodes, blocks)
    return merged, merging.too_few(answers, merged, current.trays, min_answer)


def require_placed(misplaced: Collection[str]) -> None:
    """PlacementError for any: ignored without a word, these would silently lose their effect."""
    if misplaced:
        raise PlacementError(
            f"{', '.join(sorted(misplaced))}: set for trays with another value than for localhost, where it is "
            "read; set it for the group all, for localhost or on the command line"
        )


class Hosts:
    """The variables of all hosts. Only those that the site itself wrote are templated.

    A host whose facts set a variable of this collection is refused: neither its settings nor any answer about it are
    used. evaluate: a template and the variables that it may use -> its value.
    """

    def __init__(self, hostvars: Any, evaluate: Callable[[str, Variables], Any]) -> None:
        self._hostvars, self._evaluate = hostvars, evaluate
        # Tray -> its result of a reading by ssh; None where a task has registered the results.
        self.results: Mapping[str, Result] | None = None

    def registered(self, trays: Sequence[str], register: str) -> list[Observation]:
        """An observation of each tray with its settings, from `results`, or those that a task of this run registered.

        The variables are read without templating: the answer of a tray must never be a template, and templating is
        slow for ten thousand hosts.
        """
        if not trays:
            raise PlacementError(
                "trays: is empty, so no tray was observed in this run; check the pattern of the trays and --limit"
            )
        observations, registered = [], False
        misplaced: set[str] = set()
        for name in map(str, trays):
            variables = self.variables(name)
            if variables is None:
                raise PlacementError(f"trays: {shown(name)} is not a host of the inventory; correct the list")
            results, key = (variables, register) if self.results is None else (self.results, name)
            registered = registered or key in results
            report = tray_report.read(name, results.get(key))
            observations.append(self._applied(report.observation(ansible_facts.SOURCE), variables))
            misplaced |= self.misplaced(variables, VARIABLES)
        require_placed(misplaced)
        if not registered:
            # A misspelt name of the variable must not make every tray stale.
            raise PlacementError(
                f"observations: no tray has a result registered as {register!r}; set the name that this run registers"
            )
        return observations

    def misplaced(self, variables: Variables, names: Collection[str]) -> set[str]:
        """Those of the run's variables that a host has with another value than localhost, where they are read."""
        differ = {row for row in variables.keys() & names if variables[row] != self._own.get(row)}
        return set() if differ and trust.foreign_variables(variables.get("ansible_facts")) else differ

    @cached_property
    def _own(self) -> Variables:
        return self.variables("localhost") or {}

    def applied(self, observation: Observation) -> Observation:
        """The observation with the node names, address and clusters that the site sets for its tray.

        PlacementError for an expression of the site that fails, and for an invalid name.
        """
        variables = self.variables(observation.tray)
        return observation if variables is None else self._applied(observation, variables)

    def _applied(self, observation: Observation, variables: Variables) -> Observation:
        changes: dict[str, Any] = {}
        try:
            if foreign := trust.foreign_variables(variables.get("ansible_facts")):
                raise OverriddenError(foreign)
            for variable, (field, form, noun) in _SETTINGS.items():
                value = self._setting(observation.tray, variables, variable)
                if value is not None and not form.fullmatch(str(value)):
                    raise PlacementError(
                        f"{variable}: is {str(value)[:80]!r} for {observation.tray}, which is not a {noun}; correct it"
                    )
                if value is not None:
                    changes[field] = str(value)
            with contextlib.suppress(AnsibleError):
                address = self.value(variables, "ansible_host")
                if isinstance(address, str) and HOST_ADDRESS.fullmatch(address):
                    changes["ansible_host"] = str(address)
        except OverriddenError as error:
            return tray_report.foreign(observation.tray, error.args[0]).observation(observation.source)
        return replace(observation, **changes) if changes else observation

    def variables(self, name: str) -> Variables | None:
        """The variables of a host, not templated; None for a name that is not in the inventory."""
        if self._hostvars is None or name not in self._hostvars:
            return None
        found: Variables = self._hostvars.raw_get(name)
        return found

    def setting(self, host: str, name: str, default: str) -> str | None:
        """What the site sets for a host; None where the inventory does not have it, or its facts may set it.

        PlacementError for an expression of the site that fails.
        """
        variables = self.variables(host)
        if variables is None or trust.foreign_variables(variables.get("ansible_facts")):
            return None
        with contextlib.suppress(OverriddenError):
            value = self._setting(host, variables, name)
            return default if value is None else str(value)
        return None

    def _setting(self, host: str, variables: Variables, name: str) -> Any:
        try:
            return self.value(variables, name)
        except AnsibleError as error:
            raise PlacementError(
                f"{name}: cannot be evaluated for {host} ({error}); use variables of the inventory, no facts"
            ) from None

    def value(self, variables: Variables, name: str) -> Any:
        """A variable of the site; its template sees no facts, by which a tray could take another's name."""
        value = variables.get(name)
        if not isinstance(value, str) or "{" not in value:
            return value
        hidden = {"ansible_facts", *self.names_of_facts(variables)}
        try:
            return self._evaluate(value, {name: own for name, own in variables.items() if name not in hidden})
        except AnsibleError:
            used = sorted(hidden.intersection(_WORD.findall(value)))
            if used and "ansible_facts" not in used:
                raise OverriddenError(used) from None
            raise

    @staticmethod
    def names_of_facts(variables: Variables) -> set[str]:
        """The names under which the facts of a host may be variables of it."""
        facts = {str(name) for name in variables.get("ansible_facts") or ()}
        # Ansible never makes this one a variable.
        return {*facts, *(f"ansible_{name}" for name in facts)} - {"ansible_host"}


class OverriddenError(Exception):
    """Facts of a host set variables of the site, or have the names of those that its templates use.

    The names are the argument.
    """
