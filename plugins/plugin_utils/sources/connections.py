# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the trays of the inventory by ssh (tray_reading: ssh), each as Ansible's connection plugin ssh would reach it.

Ansible itself evaluates the options of that plugin, from the variables of the site, ansible.cfg and the command line.
No fact of a tray is among these variables: it could name the program that runs here.
"""

from __future__ import annotations

import functools
import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterable
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.loader import connection_loader
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import (
    Arguments,
    Result,
    Specification,
    Variables,
)
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_facts import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import Reporter, reading
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.hosts import (
    Hosts,
    OverriddenError,
    require_placed,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

_SSH = ("ssh", "smart", "ansible.builtin.ssh")
# Options of the plugin, without those of passwords and of copies.
_OPTIONS = (
    *("host", "host_key_checking", "port", "private_key_file", "remote_user", "ssh_args", "ssh_common_args"),
    *("ssh_executable", "ssh_extra_args", "timeout"),
)
_OTHERS = (
    *("ansible_connection", "ansible_python_interpreter"),
    *("ansible_become", "ansible_become_exe", "ansible_become_method", "ansible_become_user"),
)
# First what nothing may override: a prompt would hang the run, and a shared connection outlives its first tray.
_FIRST = ("-T", "-oBatchMode=yes", "-oControlMaster=no", "-oControlPath=none")
# Seconds to start Python, and to read addresses and versions; to send the archive.
_REST, SENDING = 60, 30


def with_facts(arguments: dict[str, Specification]) -> dict[str, Specification]:
    """An argument specification, whose option facts has those of the module fabric_facts."""
    return {**arguments, "facts": {**arguments["facts"], "options": schemas.arguments(DOCUMENTATION)}}


def of_facts(asked: Arguments) -> reading.Question:
    """The question of fabric_facts with these of its options; NvlinkError for a wrong one."""
    options = subsets.Options(**asked)
    subsets.check_options(options)
    limit = _REST + math.ceil(reading.waits(options.gather_subset, options.timeout, options.imex_timeout))
    return reading.of_facts(options, limit, limit + SENDING)


def read(
    names: Iterable[str],
    question: reading.Question,
    hosts: Hosts,
    becomes: bool,
    reporter: Reporter,
    options_of: Callable[[str], Arguments] = lambda _name: {},
) -> dict[str, Result]:
    """Host -> its result, in the order of names.

    becomes: whether hosts without ansible_become are read as root. options_of: those of the question that only a host
    has. A host that is no target of ssh, or whose facts set variables of the site, has a failed result.
    """
    targets: dict[str, reading.Target] = {}
    results: dict[str, Result] = {}
    misplaced: set[str] = set()
    for name in map(str, names):
        variables = hosts.variables(name) or {}
        misplaced |= hosts.misplaced(variables, (reading.OPTION,))
        try:
            if foreign := trust.foreign_variables(variables.get("ansible_facts")):
                raise OverriddenError(foreign)
            targets[name] = target(name, variables, hosts, becomes)._replace(options=options_of(name))
        except OverriddenError as error:
            results[name] = trust.refusal(name, error.args[0])
        except (AnsibleError, SourceError, ValueError) as error:
            results[name] = {"failed": True, "changed": False, "msg": f"it cannot be read by ssh: {error}"}
    require_placed(misplaced)
    asked = reading.read(targets, question, reporter, reading.OPTION)
    answers = reading.run(asked, reading.OPTION, "raise the limit of open files (ulimit -n)")
    return {name: answers.get(name) or results[name] for name in map(str, names)}


def target(name: str, variables: Variables, hosts: Hosts, becomes: bool) -> reading.Target:
    """How ssh reaches a host; variables: of the host, untemplated."""
    names = _variables() & variables.keys()
    if taken := sorted(names & hosts.names_of_facts(variables)):
        raise OverriddenError(taken)
    own = {key: hosts.value(variables, key) for key in names}
    kind = own.get("ansible_connection") or C.DEFAULT_TRANSPORT
    if kind not in _SSH:
        raise SourceError(f"its ansible_connection is {shown(kind)}; read it with {reading.OPTION} ansible")
    given = C.config.get_plugin_options("connection", "ssh", variables={"inventory_hostname": name, **own})
    program = os.path.expanduser(given["ssh_executable"])
    if shutil.which(program) is None:
        raise SourceError(f"{shown(program)} is not a program on this controller; correct ansible_ssh_executable")
    settings = {
        "StrictHostKeyChecking": None if given["host_key_checking"] else "no",
        "Port": given["port"],
        "IdentityFile": given["private_key_file"] and f'"{os.path.expanduser(given["private_key_file"])}"',
        "User": given["remote_user"] and f'"{given["remote_user"]}"',
        "ConnectTimeout": given["timeout"],
    }
    words = [
        *shlex.split(given["ssh_args"] or ""),
        *(f"-o{key}={value}" for key, value in settings.items() if value is not None),
        *shlex.split(f"{given['ssh_common_args'] or ''} {given['ssh_extra_args'] or ''}"),
    ]
    python = str(own.get("ansible_python_interpreter") or "auto")
    # What Ansible finds by itself needs a connection of its own.
    command = [reading.PYTHON] if python.startswith("auto") else shlex.split(python)
    return reading.Target(
        str(given["host"]), [program, *_FIRST, *words], [*_sudo(own, becomes, given["remote_user"]), *command]
    )


@functools.cache
def _variables() -> frozenset[str]:
    """The variables of the options above, as the plugin documents them."""
    connection_loader.get("ssh", class_only=True)  # reads its documentation
    documented = C.config.get_configuration_definitions("connection", "ssh")
    of_plugin = (row["name"] for option in _OPTIONS for row in documented[option].get("vars", ()))
    return frozenset((*of_plugin, *_OTHERS))


def _sudo(own: dict[str, Any], becomes: bool, login: Any) -> list[str]:
    """The program that makes Python root's, or another user's, where the site allows it; never with a password.

    None for the user that logs in, as Ansible does without become_allow_same_user: a host may have no sudo for root.
    """
    if not boolean(own.get("ansible_become", becomes), strict=False):
        return []
    method = own.get("ansible_become_method") or C.DEFAULT_BECOME_METHOD
    if method not in ("sudo", "ansible.builtin.sudo"):
        raise SourceError(f"its ansible_become_method is {shown(method)}, and a reading by ssh has sudo alone")
    user = own.get("ansible_become_user") or C.DEFAULT_BECOME_USER or "root"
    if user == login and not C.BECOME_ALLOW_SAME_USER:
        return []
    return [str(own.get("ansible_become_exe") or "sudo"), "-n", "-u", str(user), "--"]
