# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect the variables of a run, of the command line and of the inventory, and evaluate them (site_variables)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ansible import context
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import site_variables, specifications
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.site_variables import Value

# Reading the variables of a host takes half a millisecond.
MAX_HOSTS = 1000


def check(loader: Any, task_vars: Variables, playbook: str, own: bool) -> tuple[list[str], list[str]]:
    """(errors, warnings) as sentences; playbook: its name, which decides what of the inventory it reads.

    own: whether the run has playbooks of this collection alone, so that nobody else reads an extra variable.
    """
    extra = _extra(loader)
    of_hosts = list(_inventory(loader, task_vars, extra))
    read = specifications.read_by(playbook)
    errors = [
        *site_variables.unknown_sentences(extra, of_hosts, read if own else None),
        *site_variables.removed_sentences([*of_hosts, *extra.items()]),
        *site_variables.pattern_sentences(of_hosts, read),
        *site_variables.wrong_sentences(extra.items(), specifications.VARIABLES),
        *site_variables.wrong_sentences(of_hosts, read),
    ]
    return errors, site_variables.unknown_sentences(dict(reversed(of_hosts)), list(extra.items()))


def _extra(loader: Any) -> dict[str, Value]:
    """The extra variables, with the option that sets each.

    A task has all variables in one mapping, which does not tell those of the command line, that rank above all others.
    Ansible makes the path of a file absolute. Its own function reads each file once, since the loader keeps it.
    """
    places: dict[str, str] = {}
    for option in context.CLIARGS.get("extra_vars") or ():
        text = str(option)
        if text.startswith("@"):
            places.update(dict.fromkeys(loader.load_from_file(text[1:]) or (), f"-e @{os.path.basename(text)}"))
    return {str(name): (places.get(name, "-e"), value) for name, value in load_extra_vars(loader).items()}


def _inventory(loader: Any, task_vars: Variables, extra: Variables) -> Iterator[tuple[str, Value]]:
    """Variables of some hosts of this run, without extra variables and facts."""
    hostvars = task_vars["hostvars"]
    for host in _hosts(loader, task_vars):
        if host in hostvars:
            variables = hostvars.raw_get(host)
            facts = variables.get("ansible_facts")
            left_out = extra.keys() | (facts.keys() if isinstance(facts, Mapping) else set())
            for name in variables.keys() - left_out:
                yield str(name), (f"variable of {host}", variables[name])


def _hosts(loader: Any, task_vars: Variables) -> list[str]:
    """localhost, each host with a file in host_vars, one host of each group, then the other hosts of this run.

    At most MAX_HOSTS: to read ten thousand hosts takes as long as the rest of a playbook.
    """
    run = dict.fromkeys(map(str, task_vars.get("ansible_play_hosts_all") or ()))
    chosen = dict.fromkeys(["localhost", *(name for name in _files_of_hosts(loader) if name in run)])
    groups: Mapping[str, list[str]] = task_vars.get("groups") or {}
    for members in sorted(groups.values(), key=len):
        inside = [str(host) for host in members if host in run]
        if inside and chosen.keys().isdisjoint(inside):
            chosen[inside[0]] = None
    # Any host may have a variable of its own in an inventory file.
    return list({**chosen, **run})[:MAX_HOSTS]


def _files_of_hosts(loader: Any) -> Iterator[str]:
    """The hosts that have a file or a folder in a folder host_vars."""
    sources = [str(source) for source in context.CLIARGS.get("inventory") or () if "," not in str(source)]
    folders = [loader.get_basedir(), *(one if os.path.isdir(one) else os.path.dirname(one) for one in sources)]
    for folder in dict.fromkeys(map(os.path.abspath, folders)):
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(os.path.join(folder, "host_vars"))):
                yield from dict.fromkeys([name, os.path.splitext(name)[0]])
