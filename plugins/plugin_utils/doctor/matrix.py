# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions that are supported and those that were tested: the one place that names them for the playbook doctor.

The README and docs/contributing/hardware.md name the same versions; a unit test compares them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.results import OK
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, INFO

Version = tuple[int, ...]


class Part(NamedTuple):
    """A part of the site: its name in sentences, the oldest supported and the tested versions, oldest first."""

    title: str
    oldest: str
    tested: tuple[str, ...] = ()


PARTS = {
    "tray_python": Part("Python of trays", "3.9", ("3.9", "3.13", "3.14")),
    "slurm": Part("Slurm", "24.05", ("24.11", "26.05")),
    "kubernetes": Part("Kubernetes", "1.32", ("1.34", "1.37")),
    # The formats of 570 to 595 by NVIDIA's header, guide and captures; no real GPU was available.
    "driver": Part("the NVIDIA driver", "550", ("570", "595")),
}
COLLECTIONS = {"kubernetes.core": "6.5.0", "community.crypto": "3.0.0", "ansible.mariadb": "6.0.0"}
"""Each is needed by some sites only (controller.needed, lookup install_command)."""
LIBRARIES = {
    "ansible-core": "2.20.0",
    "ClusterShell": "1.9.3",
    "fastjsonschema": "2.20",
    "jmespath": "1.0",
    "kubernetes": "35",
    "netaddr": "1.3",
    "urllib3": "2.2",
}
"""As in meta/runtime.yml, requirements.txt and requirements-kubernetes.txt."""
PYTHON = "3.12"
"""The oldest Python of a controller: that of the oldest ansible-core."""


def parse(text: str) -> Version:
    """The numbers at the start of a version, such as v1.34.2 or 24.11.5-1; empty for another text."""
    found = re.match(r"v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,5})", text)
    return tuple(int(number) for number in found[1].split(".")) if found else ()


def is_older(version: str, oldest: str) -> bool:
    return parse(version)[: len(parse(oldest))] < parse(oldest)


def is_newer(version: str, newest: str) -> bool:
    return parse(version)[: len(parse(newest))] > parse(newest)


def evaluate(part: str, version: str) -> tuple[str, str]:
    """(status, sentence) of a version: older than supported is an error, newer than tested an information."""
    row = PARTS[part]
    if not parse(version):
        return INFO, f"the version of {row.title} is unknown"
    if is_older(version, row.oldest):
        return ERROR, f"{row.title} is {version}; the oldest supported version is {row.oldest}: upgrade it"
    if row.tested and is_newer(version, row.tested[-1]):
        return INFO, f"{row.title} is {version}, newer than {row.tested[-1]}, the newest that was tested"
    return OK, f"{row.title} is {version}"
