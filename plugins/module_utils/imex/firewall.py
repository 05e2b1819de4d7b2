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

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Firewall

# Firewall -> the ports that the role has opened in it.
OPENED = "/etc/nvidia-imex/nvlink-ports.json"
FIREWALLD, UFW = "firewalld", "ufw"


def read(host: Host, ports: Sequence[int]) -> Firewall:
    """The firewall that runs, and which of these ports and of those that an earlier run opened are open in it."""
    name, opened = _running(host), _opened()
    asked = [*ports, *opened.get(name or "", [])]
    return {"name": name, "open": sorted(_open_ports(host, name, asked)) if name else [], "opened": opened}


def apply(host: Host, ports: Collection[int], found: Firewall) -> None:
    """Open these ports, and close others that an earlier run opened. found: of read()."""
    firewall, open_now, opened = found["name"], found["open"], dict(found["opened"])
    if firewall is None:
        return
    own = opened.get(firewall, [])
    for port in own:
        if port not in ports and port in open_now:
            _change(host, firewall, "close", port)
    to_open = [port for port in ports if port not in open_now]
    for port in to_open:
        _change(host, firewall, "open", port)
    opened[firewall] = sorted({*to_open, *(port for port in own if port in ports)})
    kept = {name: numbers for name, numbers in opened.items() if numbers}
    host.file(OPENED, f"{json.dumps(kept, sort_keys=True)}\n".encode() if kept else None)


def _running(host: Host) -> str | None:
    if shutil.which("firewall-cmd") and "running" in host.call("firewall-cmd", "--state").stdout:
        return FIREWALLD
    return UFW if shutil.which("ufw") and "Status: active" in host.call("ufw", "status").stdout else None


def _opened() -> dict[str, list[int]]:
    try:
        found = json.loads(atomic.read_text(OPENED) or "{}")
        return {str(name): [int(port) for port in ports] for name, ports in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _open_ports(host: Host, firewall: str, ports: Sequence[int]) -> set[int]:
    """Those of the ports that are open now; with firewalld, in its default zone."""
    if firewall == UFW:
        rules = host.call("ufw", "status").stdout
        return {port for port in ports if re.search(rf"(?m)^{port}/tcp +ALLOW +Anywhere *(#.*)?$", rules)}
    return {port for port in ports if host.call("firewall-cmd", f"--query-port={port}/tcp").rc == 0}


def _change(host: Host, firewall: str, verb: str, port: int) -> None:
    if not host.change(f"{verb} port {port}/tcp in {firewall}"):
        return
    if firewall == UFW:
        host.require("ufw", *([] if verb == "open" else ["delete"]), "allow", f"{port}/tcp")
        return
    change = f"--{'add' if verb == 'open' else 'remove'}-port={port}/tcp"
    # In the running and in the permanent configuration.
    for more in ([], ["--permanent"]):
        host.require("firewall-cmd", "--quiet", *more, change)
