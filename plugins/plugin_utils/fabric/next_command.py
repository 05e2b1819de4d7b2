# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sentence in which a run names the next one, whose command has what this run's own command line has."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ansible import constants, context
from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic

# A value of the command line may be a secret, and most are for one run.
_KEPT = ("fabric_file", "fabric_state_dir")
_VAULT = b"$ANSIBLE_VAULT"


def sentence(playbook: str, *words: str, extra: Mapping[str, Any]) -> str:
    """` Next: COMMAND.`; words: its other arguments. extra: the extra variables of this run."""
    if context.CLIARGS.get("check"):
        return " Next: the same command without --check."
    sources = inventory()
    beside = glob.glob(os.path.join(os.path.dirname(sources[-1]), "*.nvlink.yml")) if sources else []
    # The fabric file became an inventory after the first commands.
    if len(beside) == 1 and not any(source.endswith(".nvlink.yml") or os.path.isdir(source) for source in sources):
        sources += beside
    files = [str(option) for option in context.CLIARGS.get("extra_vars") or () if str(option).startswith("@")]
    more = [f"@{_relative(file[1:])}" for file in files if not _is_encrypted(file[1:])]
    more += [json.dumps({name: str(extra[name])}) for name in _KEPT if extra.get(name)]
    options = [word for kind, values in (("-i", sources), ("-e", more)) for value in values for word in (kind, value)]
    return f" Next: {shlex.join(['ansible-playbook', *options, f'rackscale.nvlink.{playbook}', *words])}."


def completed(text: str) -> str:
    """The text, its commands with the inventory of the command line, without which they know no tray."""
    options = "".join(f"-i {shlex.quote(source)} " for source in inventory())
    return re.sub(r"\bansible(-playbook)? (?=[\w.,-]+ -|rackscale)", lambda found: found[0] + options, text)


def inventory() -> list[str]:
    """The inventory sources of the command line, relative to the working folder where they are in it."""
    sources = [str(source) for source in context.CLIARGS.get("inventory") or ()]
    return [] if sources == constants.DEFAULT_HOST_LIST else list(map(_relative, sources))


def _relative(path: str) -> str:
    return path.removeprefix(os.path.join(os.getcwd(), ""))


def _is_encrypted(path: str) -> bool:
    """Also of a file that cannot be read."""
    return (atomic.read_regular(path) or _VAULT).startswith(_VAULT)
