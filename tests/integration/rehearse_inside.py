# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds one rehearsal where it is started, as a module does on a controller; needs no Ansible.

Standard input, or the file of the first argument: {conf_dir, version, style, topology, blocks: [[name, hostlist], ...],
block_sizes, jobs, segments, timeout, writes: {path: text}, records, bin_dir}.
Standard output: {"rehearsal": ..., "findings": [...]}.
"""

from __future__ import annotations

import json
import sys

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rehearsal
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm


def main() -> None:
    with open(sys.argv[1]) if len(sys.argv) > 1 else sys.stdin as file:
        asked = json.load(file)
    blocks = tuple(Block(name, tuple(expand(nodes)), nodes) for name, nodes in asked["blocks"])
    sizes = tuple(asked.get("block_sizes", ()))
    wanted = rehearsal.Wanted(
        conf_dir=asked["conf_dir"],
        topology=Topology(name=asked.get("topology", "nvlink"), blocks=blocks, block_sizes=sizes),
        version=tuple(asked["version"]),
        style=asked["style"],
        writes={path: text.encode() for path, text in asked.get("writes", {}).items()},
        jobs=tuple(rehearsal.TestJob("site", **job) for job in asked.get("jobs", ())),
        segments=tuple(asked.get("segments", ())),
        records=tuple(asked.get("records", ())),
    )
    held = rehearsal.rehearse(Slurm(asked.get("bin_dir", "")), wanted, asked.get("timeout", 60))
    print(json.dumps({"rehearsal": held.result(), "findings": rehearsal.findings(held, wanted)}))


if __name__ == "__main__":
    main()
