# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The seconds after which a module of Slurm on a host is ended; above all that the module itself may wait for."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments

# Seconds to connect, to copy the module and to start Python.
_CONNECT = 60.0
# Calls of a tool on a tray that may take all of `timeout`: munge and slurmd end and start, the rest takes milliseconds.
_SLOW_CALLS = 4
# On a controller a module calls tools hundreds of times, and ends itself at the first one that takes all of `timeout`.
_CONTROLLER = 3600.0


def tray(arguments: Arguments, default: float) -> float:
    """The time limit of a module on a tray, from its option timeout or that option's default."""
    return _CONNECT + _SLOW_CALLS * seconds(arguments, "timeout", default)


def controller(arguments: Arguments, default: float, more: float = 0.0) -> float:
    """The time limit of a module on a Slurm controller; more: what it may wait for besides, such as its jobs."""
    return _CONNECT + _CONTROLLER + 20 * seconds(arguments, "timeout", default) + more


def seconds(arguments: Arguments, option: str, default: float) -> float:
    """A number of seconds among a module's arguments; AnsibleActionFail if it is none."""
    given = arguments.get(option)
    try:
        return default if given is None else float(given)
    except (TypeError, ValueError):
        raise AnsibleActionFail(f"The option {option} is {given!r}: use a number of seconds.") from None
