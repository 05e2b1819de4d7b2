# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the playbook partition: wishes that the fabric file cannot have, and changes that do not exist.

tests/unit/plugins/plugin_utils/partitions has the other wrong values of nvlink_partitions.
"""

from __future__ import annotations

import json
from typing import Any

from . import Mistake


def _partition(wish: Any, more: str = "") -> str:
    return f"rackscale.nvlink.partition -e '{json.dumps({'nvlink_partitions': wish})}'{more}"


MISTAKES = [
    Mistake(
        "rackscale.nvlink.partition",
        """nvlink_partitions: is not set; add -e '{"nvlink_partitions": {"r01": "2x9"}}'.""",
    ),
    Mistake(
        _partition({"r01": "2x9"}),
        "nvlink_partitions.r01: '2x9' is 18 trays in all, and the fabric file has 2 there; correct the sizes",
        core=True,
    ),
    Mistake(
        _partition({"r01": "2x1"}, " -e partition_domain=r01"),
        "partition_domain (-e) is a variable that nothing reads; did you mean partition_domains?",
        long=True,
    ),
    Mistake(
        _partition({"r03": "2x1"}),
        "nvlink_partitions: 'r03' is no NVLink domain of the fabric file",
        long=True,
    ),
    Mistake(
        _partition({"r01": {"r01a": {"tray": "r01t01"}}}),
        "nvlink_partitions.r01.r01a: 'tray' is not known; did you mean trays?",
        long=True,
    ),
    Mistake(
        "rackscale.nvlink.partition -e nvlink_partitions=2x9",
        """nvlink_partitions (-e) is not a dictionary, write such as -e '{"nvlink_partitions": {"r01": "2x9"}}'""",
    ),
    Mistake(
        _partition({"r01": "{{ nope }}"}),
        "nvlink_partitions: 'nope' is undefined",
    ),
    Mistake(
        _partition({"r01": "2x1", "r02": "2x1"}, """ -e '{"partition_domains": ["r03"]}'"""),
        "partition_domains: 'r03' is not in nvlink_partitions",
        long=True,
    ),
    Mistake(
        _partition({"r01": "2x1", "r02": "2x1"}),
        "nvlink_partitions: the partitions of r01 and r02 differ; name those that this run changes, as",
    ),
    Mistake(
        _partition({"r01": "2x1"}, " -e partition_domains=r02"),
        "partition_domains: 'r02' is not in nvlink_partitions",
        long=True,
    ),
    Mistake(
        _partition({"r01": "2x1"}, " -e partition_rollback=true"),
        "partition_rollback: no change of NVLink partitions is unfinished",
    ),
    Mistake(_partition({"r01": "2x1"}, " -e partition_by=me"), "partition_by (-e) is 'me'; use", long=True),
    Mistake(
        _partition({"r01": "2x1"}, " --limit localhost,r01t01"),
        "--limit localhost,r01t01: this playbook needs all controllers and trays of its domains; leave --limit out",
        long=True,
    ),
    Mistake(
        # A site without Slurm, too.
        _partition({"r01": "2x1"}),
        "NVLink domain r01: group nvlink_switches has no switch of it; one switch must answer as its controller,"
        " without a fault, or set partition_by: hand",
        inventory=("cluster.nvlink.yml",),
        # Its trays are asked first, and do not answer.
        lines=70,
    ),
]
