# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of doctor --tags capture on the controller: which hosts to ask, and the bundle of what they answered."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import bundle
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture.bundle import Host
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped

SUFFIX = ".tar.gz"
# Ten racks: more trays of a kind say nothing new.
MAX_TRAYS = 180


def plan(path: str, trays: Sequence[str], controllers: Sequence[str]) -> dict[str, Any]:
    """The hosts to ask; AnsibleActionFail where there could be no bundle."""
    if not path.endswith(SUFFIX):
        raise AnsibleActionFail(f"capture_file: {path} does not end with {SUFFIX}; name the bundle so.")
    if not os.access(os.path.dirname(path), os.W_OK):
        raise AnsibleActionFail(
            f"capture_file: the folder {os.path.dirname(path)} does not exist or is not writable; correct that."
        )
    if len(trays) > MAX_TRAYS:
        raise AnsibleActionFail(
            f"A bundle has at most {MAX_TRAYS} trays, and this run has {len(trays)};"
            " name a few racks in site_tray_hosts."
        )
    if not trays:
        raise AnsibleActionFail("site_tray_hosts leaves no tray beside the Slurm controllers; name the trays in it.")
    return {"trays": list(trays), "controllers": list(controllers)}


def write(
    path: str, trays: Sequence[str], controllers: Sequence[str], task_vars: Variables, check: bool
) -> dict[str, Any]:
    """Write the bundle of what these hosts answered, unless check is set; AnsibleActionFail where there is none."""
    of_trays = _hosts(trays, "capture_tray", task_vars)
    of_controllers = _hosts(controllers, "capture_slurm", task_vars)
    if not any(host.answer for host in of_trays):
        raise AnsibleActionFail("No tray answered, so there is nothing to capture; run the playbook doctor.")
    mapping = f"{path.removesuffix(SUFFIX)}.mapping.json"
    made = bundle.make(of_trays, of_controllers)
    if not check:
        # First, since without it nobody can read an answer to the bundle. Neither is for other users.
        _write(mapping, (json.dumps(made.table, indent=1, sort_keys=True) + "\n").encode())
        _write(path, bundle.archive(made.files, os.path.basename(path).removesuffix(SUFFIX)))
    missing = [host.name for host in (*of_trays, *of_controllers) if host.answer is None]
    done = "would be" if check else "is"
    text = [
        f"The bundle {done} {path}",
        *bundle.summary(made, missing),
        f"The file that maps substitutes to originals {done} {mapping}; it stays here. Nothing was sent."
        f" Next: tar -xOzf {path}, to read it before you pass it on.",
    ]
    return {"changed": True, "changes": [path, mapping], "text": text}


def _hosts(names: Iterable[str], registered: str, task_vars: Variables) -> list[Host]:
    """The answers of hosts, read from what their task has registered; never templated."""
    found = []
    for name in names:
        variables = task_vars["hostvars"].raw_get(name)
        answer = mapped(variables.get(registered))
        is_whole = "outputs" in answer and not answer.get("failed") and not answer.get("unreachable")
        problem = "unreachable" if answer.get("unreachable") or not answer else "failed"
        found.append(Host(str(name), answer if is_whole else None, "" if is_whole else problem))
    return found


def _write(path: str, data: bytes) -> None:
    try:
        atomic.write(path, data, mode=0o600)
    except OSError as error:
        raise AnsibleActionFail(f"{storage.cannot(path, 'be written', error)}.") from None
