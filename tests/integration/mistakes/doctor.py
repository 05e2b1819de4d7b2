# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook doctor finds before anything is changed, and a support bundle that cannot be made."""

from __future__ import annotations

from dataclasses import replace

from . import Mistake
from .site import HOSTS, hosts

DOCTOR = "rackscale.nvlink.doctor"
CAPTURE = "rackscale.nvlink.doctor --tags capture"
FILE = "-e capture_file={site}/site.tar.gz"
TRAYS = "trays: {hosts: {new: {ansible_host: a}, other: {ansible_host: a}}}\n"

ROWS = [
    Mistake(
        f"{DOCTOR} -e doctor_fail=false",
        "This site needs attention: 0 of 2 trays answered, 2 errors (inventory, ssh)",
        prepare=hosts(TRAYS),
        inventory=HOSTS,
        status=0,
    ),
    Mistake(
        f"{DOCTOR} -e doctor_file=/proc/doctor.json --limit r01t01,localhost",
        "/proc/doctor.json: cannot be written (No such file or directory); create its folder, or make it writable",
        long=True,
    ),
    Mistake(
        f"{CAPTURE} {FILE} --limit r01t01,localhost",
        "No tray answered, so there is nothing to capture; run the playbook doctor.",
    ),
    Mistake(
        CAPTURE,
        "capture_file: is not set; add -e capture_file=PATH.tar.gz, the bundle to write.",
        long=True,
    ),
    Mistake(
        f"{CAPTURE} -e capture_file=/nowhere/site.tar.gz",
        "capture_file: the folder /nowhere does not exist or is not writable; correct that.",
        long=True,
    ),
]
# The checks that are well fill lines, too.
MISTAKES = [replace(row, lines=66) for row in ROWS]
