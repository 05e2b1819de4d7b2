# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trays that are folders of this machine: with its connection `local`, the real playbooks run on them without a lab.

A tray has nvidia-smi and ip, which print what those of a tray print, and a `python` that finds both before the
machine's own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets
from ansible_collections.rackscale.nvlink.tests.lab.nvml.standin_text import smi_text

PROGRAMS = {
    "nvidia-smi": '#!/bin/sh\nexec cat "${0%/*}/nvidia-smi.xml"\n',
    "ip": '#!/bin/sh\nexec cat "${0%/*}/ip.json"\n',
    "python": f'#!/bin/sh\nPATH="${{0%/*}}:$PATH" exec {sys.executable} "$@"\n',
}
# Fails as ssh does for an unreachable host.
SSH_TO_NOWHERE = '#!/bin/sh\necho "ssh: connect to host: No route to host" >&2\nexit 255\n'


def write(folder: Path, **shape: Any) -> None:
    """The trays of a fleet (see fleets.fleet), and the program ssh-to-nowhere beside them."""
    folder.mkdir()
    program(folder / "ssh-to-nowhere", SSH_TO_NOWHERE)
    for name, facts in fleets.fleet(**shape).items():
        write_tray(folder / name, facts)


def write_tray(folder: Path, facts: Mapping[str, Any]) -> None:
    """A tray, or what its programs print from now on."""
    folder.mkdir(exist_ok=True)
    for name, text in PROGRAMS.items():
        program(folder / name, text)
    links = [
        {"ifname": row["interface"], "addr_info": [{"local": row["address"], "prefixlen": row["prefix"]}]}
        for row in facts["addresses"]
    ]
    (folder / "nvidia-smi.xml").write_text(smi_text(facts))
    (folder / "ip.json").write_text(json.dumps(links))


def program(path: Path, text: str) -> Path:
    """An executable file."""
    path.write_text(text)
    path.chmod(0o755)
    return path
