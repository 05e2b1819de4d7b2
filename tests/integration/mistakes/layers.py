# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX, Kubernetes, verify, teardown and the demo, most of them with the callback of the sample ansible.cfg.

With it, who reads only the last line knows what happened.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from . import Mistake


def broken(site: Path) -> None:
    (site / "fabric.json").write_text("{")


# With Ansible's own callback, which would print the failure of each tray.
_ONCE = [
    Mistake(
        "rackscale.nvlink.imex -e fabric_file={site}/none.json",
        "none.json: does not exist; run discover and accept first",
    ),
]
_PROGRESS = [
    Mistake(
        "rackscale.nvlink.teardown",
        "This removes blocks, tiers and IMEX from all trays: confirm with -e teardown=yes, and name the fabric file",
        core=True,
    ),
    Mistake(
        "rackscale.nvlink.teardown -e teardown=yes", "localhost: Read the fabric file: ", prepare=broken, long=True
    ),
    Mistake("rackscale.nvlink.verify", "the layers do not agree (5 errors, 0 warnings). First: r01t[01-02] cannot be"),
    Mistake("rackscale.nvlink.kubernetes -e dra_driver_kubeconfig={site}/none", "kubeconfig"),
    Mistake(
        "rackscale.nvlink.kubernetes --tags topology -e k8s_topology_kubeconfig={site}/none",
        "/none cannot be read (No such file or directory); name the file that kubectl uses",
        long=True,
    ),
    Mistake(
        "rackscale.nvlink.demo -e demo_dir={site}/demo",
        "Run the demo with its own inventory, or a copy with more racks: -i ",
        long=True,
    ),
]
MISTAKES = [*_ONCE, *(replace(row, progress=True) for row in _PROGRESS)]
