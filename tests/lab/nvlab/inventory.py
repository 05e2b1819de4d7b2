# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How programs outside the lab's network reach its hosts: an ssh_config and a static Ansible inventory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from . import network, paths
from .addresses import NETWORK
from .scenario import Scenario

PROXY = Path(__file__).resolve().with_name("proxy.py")


def ssh_config(name: str, scenario: Scenario) -> str:
    """Options for `ssh -F`; hosts can be named or given by address."""
    directory = paths.state_of(name)
    lines = []
    for host, address in scenario.hosts.items():
        lines += [f"Host {host}", f"  HostName {address}"]
    lines += [
        "Host *",
        "  User root",
        f"  IdentityFile {directory / 'key'}",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {directory / 'known_hosts'}",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        f"  ProxyCommand {sys.executable} -I -S {PROXY} {network.file_of(name)} %h %p",
        "  ProxyUseFdpass yes",
        "  ServerAliveInterval 5",
        "  ServerAliveCountMax 3",
        "  LogLevel ERROR",
    ]
    return "\n".join(lines) + "\n"


def known_hosts(host_key: str) -> str:
    kind, blob = host_key.split()[:2]
    return f"{NETWORK}.* {kind} {blob}\n"


def ansible(name: str, scenario: Scenario) -> str:
    """A YAML inventory with the groups `trays`, `slurm_controller` and `nvlink_switches`."""
    import yaml  # the other commands start without it

    tray_hosts = {tray.name: {"ansible_host": tray.address} for tray in scenario.trays}
    groups: dict[str, object] = {"trays": {"hosts": tray_hosts}}
    if scenario.controller:
        controllers = {name: {"ansible_host": address} for name, address in scenario.controllers.items()}
        groups["slurm_controller"] = {"hosts": controllers}
    if scenario.switches:
        groups["nvlink_switches"] = _switches(paths.state_of(name) / "switches", scenario)
    variables = {
        "ansible_user": "root",
        "ansible_connection": "ssh",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_common_args": f"-F {paths.state_of(name) / 'ssh_config'}",
        # Every lab has the same addresses: with shared sockets Ansible would go on talking to another lab's host.
        "ansible_control_path_dir": str(paths.state_of(name) / "cp"),
    }
    return "---\n" + yaml.safe_dump({"all": {"vars": variables, "children": groups}}, sort_keys=False)


def _switches(folder: Path, scenario: Scenario) -> dict[str, object]:
    """The NVLink switches of each rack: ports of this machine, with their login and the CA of their certificates."""
    from . import switch  # with the library that makes certificates

    hosts = {}
    for rack, names in scenario.switches.items():
        ports = json.loads((folder / rack / "ports.json").read_text())
        own = {"nvlink_switch_domain": rack, "nvue_ca_file": str(folder / rack / "ca.crt")}
        hosts.update({name: {"ansible_host": "127.0.0.1", "nvue_port": ports[name], **own} for name in names})
    return {"hosts": hosts, "vars": {"nvue_user": switch.USER, "nvue_password": switch.PASSWORD}}
