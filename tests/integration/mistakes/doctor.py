# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook doctor finds before anything is changed."""

from __future__ import annotations

from dataclasses import replace

from . import Mistake
from .site import HOSTS, hosts

DOCTOR = "rackscale.nvlink.doctor"
TRAYS = "trays: {hosts: {new: {ansible_host: a}, other: {ansible_host: a}}}\n"

ROWS = [
    Mistake(
        f"{DOCTOR} -e doctor_fail=false",
        "This site cannot run yet: 0 of 2 trays answered, 2 errors (inventory, ssh)",
        prepare=hosts(TRAYS),
        inventory=HOSTS,
        status=0,
    ),
    Mistake(
        f"{DOCTOR} -e doctor_file=/proc/doctor.json --limit r01t01,localhost",
        "doctor_file: /proc/doctor.json: cannot be written (No such file or directory); create its folder,"
        " or make it writable",
        long=True,
    ),
]
# The checks that are well fill lines, too.
MISTAKES = [replace(row, lines=66) for row in ROWS]
