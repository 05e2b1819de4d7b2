# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open and close IMEX ports in the tray's firewall.

The ports that the role opened are recorded, and only those are closed again: a port that the site opened stays open.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import disk
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.host_changes import SECONDS, HostChanges

# Firewall -> the ports that the role has opened in it.
OPENED = "/etc/nvidia-imex/nvlink-ports.json"
FIREWALLD, UFW = "firewalld", "ufw"


def apply(changes: HostChanges, ports: Collection[int]) -> None:
    """Open these ports, and close others that an earlier run opened."""
    firewall = _running()
    if firewall is None:
        return
    opened = _opened()
    own = opened.get(firewall, [])
    open_now = _open_ports(firewall, [*ports, *own])
    for port in own:
        if port not in ports and port in open_now:
            _change(changes, firewall, "close", port)
    to_open = [port for port in ports if port not in open_now]
    for port in to_open:
        _change(changes, firewall, "open", port)
    opened[firewall] = sorted({*to_open, *(port for port in own if port in ports)})
    kept = {name: numbers for name, numbers in opened.items() if numbers}
    changes.write(OPENED, json.dumps(kept, sort_keys=True) + "\n" if kept else None, 0o644)


def _running() -> str | None:
    if _prints(["firewall-cmd", "--state"], "running"):
        return FIREWALLD
    return UFW if _prints(["ufw", "status"], "Status: active") else None


def _prints(command: Sequence[str], text: str) -> bool:
    return shutil.which(command[0]) is not None and text in child.run(command, SECONDS).stdout


def _opened() -> dict[str, list[int]]:
    try:
        found = json.loads(disk.read_text(OPENED) or "{}")
        return {str(name): [int(port) for port in ports] for name, ports in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _open_ports(firewall: str, ports: Sequence[int]) -> set[int]:
    """Those of the ports that are open now; with firewalld, in its default zone."""
    if firewall == UFW:
        rules = child.run(["ufw", "status"], SECONDS).stdout
        return {port for port in ports if re.search(rf"(?m)^{port}/tcp +ALLOW +Anywhere *(#.*)?$", rules)}
    return {port for port in ports if child.run(["firewall-cmd", f"--query-port={port}/tcp"], SECONDS).rc == 0}


def _change(changes: HostChanges, firewall: str, verb: str, port: int) -> None:
    changes.add(f"{verb} port {port}/tcp in {firewall}")
    if changes.check:
        return
    for command in _commands(firewall, verb, port):
        changes.run_checked(command, SECONDS, f"port {port} cannot be set in {firewall}")


def _commands(firewall: str, verb: str, port: int) -> list[list[str]]:
    if firewall == UFW:
        return [["ufw", *([] if verb == "open" else ["delete"]), "allow", f"{port}/tcp"]]
    change = f"--{'add' if verb == 'open' else 'remove'}-port={port}/tcp"
    # In the running and in the permanent configuration.
    return [["firewall-cmd", "--quiet", *more, change] for more in ([], ["--permanent"])]
