# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook doctor finds before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from . import Mistake
from .site import HOSTS, hosts, variables

DOCTOR = "rackscale.nvlink.doctor"
TRAYS = "trays: {hosts: {new: {ansible_host: a}, other: {ansible_host: a}}}\n"
BROKEN = '{"schema_version": 1, "domains": {}, "cliques": {}, "trays": {}, "overrides": [], "tray": {}}\n'


def ssh(text: str) -> Callable[[Path], object]:
    """Every connection fails with this text."""

    def write(site: Path) -> None:
        program = site / "ssh"
        program.write_text(f'#!/bin/sh\necho "{text}" >&2\nexit 255\n')
        program.chmod(0o755)
        variables("all", ansible_ssh_executable=str(program))(site)

    return write


ROWS = [
    Mistake(
        DOCTOR,
        "ssh: r[01-02]t[01-02],ctl: No route to host: check the power of the host, its network and sshd.",
    ),
    Mistake(
        f"{DOCTOR} --limit r01t01,localhost",
        "ssh: r01t01: Permission denied (publickey): install the public key of Ansible's user there, or set"
        " ansible_user and ansible_ssh_private_key_file.",
        prepare=ssh("root@r01t01: Permission denied (publickey)."),
    ),
    Mistake(
        f"{DOCTOR} --limit r01t01,localhost",
        "the host key is unknown or has changed: compare it with the host's and add it to known_hosts (ssh-keyscan).",
        prepare=ssh("Host key verification failed."),
    ),
    Mistake(
        f"{DOCTOR} --limit r01t01,localhost -e dra_driver_shape=mock",
        "inventory: dra_driver_kubeconfig: no such file on the controller; set it to the kubeconfig of the cluster.",
        prepare=variables("all", dra_driver_kubeconfig="/nowhere/config"),
    ),
    Mistake(
        DOCTOR,
        "fabric.json: the top has the unknown key 'tray'; remove it.",
        prepare=lambda site: [hosts(TRAYS)(site), (site / "fabric.json").write_text(BROKEN)],
        inventory=HOSTS,
    ),
    Mistake(
        DOCTOR,
        "inventory: site_tray_hosts: is not set, and the groups trays and nvlink have no host; put the trays into the"
        " group trays, or set site_tray_hosts to their pattern.",
        prepare=hosts("compute: {hosts: {new: {}}}\n"),
        inventory=HOSTS,
    ),
    Mistake(
        f"{DOCTOR} -e doctor_file=/proc/doctor.json --limit r01t01,localhost",
        "doctor_file: /proc/doctor.json: cannot be written (No such file or directory); create its folder,"
        " or make it writable",
    ),
    Mistake(
        f"{DOCTOR} -e doctor_fial=false",
        "doctor_fial (-e) is a variable that nothing reads; did you mean doctor_fail?",
    ),
    Mistake(
        f"{DOCTOR} -e slurm_controller_hosts=slurm_controler",
        "slurm_controller_hosts: 'slurm_controler' matches no host of the inventory; did you mean slurm_controller?",
    ),
    Mistake(
        f"{DOCTOR} --limit r01t01",
        "This playbook runs on localhost too: use --limit r01t01,localhost.",
    ),
    Mistake(
        f"{DOCTOR} -e doctor_fail=false",
        "This site cannot run yet: 0 of 2 trays answered, 2 errors (inventory, ssh)",
        prepare=hosts(TRAYS),
        inventory=HOSTS,
        status=0,
    ),
]
# The checks that are well fill lines, too.
MISTAKES = [replace(row, lines=66) for row in ROWS]
