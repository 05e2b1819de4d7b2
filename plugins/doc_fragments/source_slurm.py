# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option of the inventory's source slurm."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  slurm:
    description:
      - The running Slurm whose block topology the source V(slurm) reads, to adopt one that was made by hand.
      - Slurm knows no clique, so this source places no tray. When a clique that another source has seen gets its first
        place, it takes the name and the position of the block that most of its trays stand in. A tray whose block is
        not the one of its clique is a finding, and so is a block that belongs to no tray that is placed or attached.
        Such a block, and one without nodes, keeps its name and its position in the fabric file.
      - A tray is found by its NodeName, or by its NodeHostName where Slurm calls the node otherwise than its host; a
        new tray then takes the NodeName as its C(nvlink_slurm_node). What the site says of a name wins.
    type: dict
    suboptions:
      command:
        description:
          - The command that runs scontrol, as a list of arguments or a text, as in V(ssh ctl scontrol).
            C(show topoconf), C(show topology) or C(-o show nodes) is added to it.
        type: raw
        default: scontrol
      topology:
        description:
          - The topology to read where C(topology.yaml) holds several. Without it, the default one is, or the only one
            of blocks.
        type: str
      timeout:
        description: Seconds that the command may take.
        type: float
        default: 30
      slurm_cluster:
        description:
          - The name that the fabric file gives this Slurm in C(clusters), where several share it. The trays in its
            blocks are then in that cluster, unless the site says otherwise.
        type: str
"""
