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
      - The running Slurm whose block topology the source V(slurm) reads, to adopt existing blocks.
      - Slurm has no cliques, so this source places no tray. When a clique of another source gets its first place, it
        takes the name and the position of the block that has most of its trays. A tray in another block than that of
        its clique is a finding, and so is a block without any placed or attached tray. Such a block, and one without
        nodes, keeps its name and its position in the fabric file.
      - A tray is matched by its NodeName, or by its NodeHostName where that differs; a new tray then takes the NodeName
        as its C(nvlink_slurm_node). A name that the site sets has precedence.
    type: dict
    suboptions:
      command:
        description:
          - The command that runs scontrol, as a list of arguments or a text, such as V(ssh ctl scontrol).
            C(show topoconf), C(show topology) or C(-o show nodes) is appended.
        type: raw
        default: scontrol
      topology:
        description:
          - The topology to read where C(topology.yaml) has several. By default the cluster's default topology, or the
            only block topology.
        type: str
      timeout:
        description: Seconds that the command may take.
        type: float
        default: 30
      slurm_cluster:
        description:
          - The name of this Slurm cluster in C(clusters) of the fabric file, where several share it. The trays in its
            blocks are then in that cluster, unless the site sets another.
        type: str
"""
