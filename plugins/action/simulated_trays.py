# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write simulated trays on the controller; the module of the same name documents it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.modules.simulated_trays import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import tree

OPTIONS = schemas.arguments(DOCUMENTATION)
MANIFEST = ".simulated_trays.json"
PART = "tray"
# Its output is a file next to the script, so that the directory can be moved.
STAND_IN = """\
#!/bin/sh
if [ "$*" = "%(arguments)s" ]; then
    exec cat "${0%%/*}/%(output)s"
fi
echo "This stand-in answers to %(arguments)s only." >&2
exit 2
"""
PYTHON = """\
#!/bin/sh
PATH="${0%%/*}:$PATH" exec %s "$@"
"""
# Fails as ssh does for an unreachable host.
SSH_TO_NOWHERE = """\
#!/bin/sh
echo "ssh: connect to host: No route to host" >&2
exit 255
"""


class ActionModule(ControllerAction):
    """Write one directory for each simulated tray. Connects to no host."""

    def act(self, task_vars: Variables) -> Result:
        _spec, options = self.validate_argument_spec(argument_spec=OPTIONS)
        trays = simulation.fleet(**options["simulation"])
        for name, gpus in options["unhealthy_gpus"].items():
            for gpu in gpus:
                trays[name]["gpus"][gpu]["fabric"]["health"].update(summary="unhealthy", route_unhealthy=True)
        plan = tree.plan(options["dest"], _files(trays, options["python"] or sys.executable), {PART}, MANIFEST)
        if not self._task.check_mode:
            plan.apply()
        changes = [change.path for change in plan.changes if change.path != MANIFEST]
        return {
            "changed": bool(plan.changes),
            "changes": changes,
            "dest": options["dest"],
            "trays": list(trays),
        }


def _files(trays: Mapping[str, dict[str, Any]], python: str) -> dict[str, tree.File]:
    programs = {
        "nvidia-smi": STAND_IN % {"arguments": "-q -x", "output": "nvidia-smi.xml"},
        "ip": STAND_IN % {"arguments": "-j address show", "output": "ip.json"},
        "python": PYTHON % shlex.quote(python),
    }
    files = {"ssh-to-nowhere": tree.File(SSH_TO_NOWHERE, PART, executable=True)}
    for name, facts in trays.items():
        texts = {"nvidia-smi.xml": simulation.nvidia_smi_xml(facts), "ip.json": _ip_json(facts["addresses"])}
        files |= {f"{name}/{file}": tree.File(text, PART) for file, text in texts.items()}
        files |= {f"{name}/{file}": tree.File(text, PART, executable=True) for file, text in programs.items()}
    return files


def _ip_json(addresses: list[dict[str, Any]]) -> str:
    links = [
        {
            "ifname": row["interface"],
            "addr_info": [{"family": "inet", "local": row["address"], "prefixlen": row["prefix"]}],
        }
        for row in addresses
    ]
    return json.dumps(links, indent=1) + "\n"
