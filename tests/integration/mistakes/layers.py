# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX, Kubernetes, verify, teardown and the demo, with Ansible's own callback or with that of the sample ansible.cfg.

With the latter, who reads only the last line knows what happened.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from . import Mistake


def broken(site: Path) -> None:
    (site / "fabric.json").write_text("{")


_NO_FILE = "none.json: cannot be read (No such file or directory); name"
_NO_HOST = "group nvlink: the inventory has no host in it, since "
_TEARDOWN = "This removes blocks, tiers and IMEX from all trays: confirm with -e teardown=yes, and name the fabric file"
_BOTH = [
    Mistake("rackscale.nvlink.teardown", _TEARDOWN),
    Mistake("rackscale.nvlink.teardown -e teardown=yes -e fabric_file={site}/none.json", _NO_FILE),
    Mistake("rackscale.nvlink.demo", "Set the directory of the demo: -e demo_dir=/absolute/path."),
]
# Of Ansible's own callback, which would print the failure of each tray.
_ONCE = [
    Mistake("rackscale.nvlink.imex -e fabric_file={site}/none.json", _NO_FILE),
    Mistake("rackscale.nvlink.verify -e fabric_file={site}/none.json", _NO_FILE),
]
_PROGRESS = [
    Mistake("rackscale.nvlink.imex -e imex_owner=domian", "imex_owner (-e) is 'domian'; did you mean domain?"),
    Mistake("rackscale.nvlink.imex -e imex_tls=caa", "imex_tls (-e) is 'caa'; did you mean ca?"),
    Mistake("rackscale.nvlink.imex -e imex_wait=abc", "imex_wait (-e) is a variable that nothing reads"),
    Mistake("rackscale.nvlink.imex", _NO_HOST, prepare=broken),
    Mistake("rackscale.nvlink.verify", _NO_HOST, prepare=broken),
    Mistake("rackscale.nvlink.verify", "the layers do not agree (5 errors, 0 warnings). First: r01t[01-02] cannot be"),
    Mistake("rackscale.nvlink.verify -e verify_kubeconfig={site}/none", "/none cannot be read (No such file"),
    Mistake("rackscale.nvlink.verify -e verify_timeout=abc", "verify_timeout (-e) is 'abc', write a number."),
    Mistake("rackscale.nvlink.kubernetes -e dra_driver_kubeconfig={site}/none", "kubeconfig"),
    Mistake("rackscale.nvlink.kubernetes -e dra_driver_shape=compute_domain", "did you mean compute_domains?"),
    Mistake("rackscale.nvlink.kubernetes -e k8s_topology_schedulers=kaii", "did you mean kai?"),
    Mistake(
        "rackscale.nvlink.kubernetes --tags topology -e k8s_topology_kubeconfig={site}/none",
        "/none cannot be read (No such file or directory); correct it",
    ),
    Mistake("rackscale.nvlink.teardown -e teardown=yes", "localhost: Read the fabric file: ", prepare=broken),
    Mistake("rackscale.nvlink.demo -e demo_dir=relative", "Set the directory of the demo: -e demo_dir=/absolute/path."),
    Mistake("rackscale.nvlink.demo -e demo_dir={site}/demo", "Run the demo with its own inventory: -i "),
]
MISTAKES = [*_BOTH, *_ONCE, *(replace(row, progress=True) for row in [*_BOTH, *_PROGRESS])]
