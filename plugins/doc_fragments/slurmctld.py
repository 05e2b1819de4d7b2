# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of modules that run on the host of slurmctld."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  conf_dir:
    description: Folder of C(slurm.conf).
    type: path
    default: /etc/slurm
  bin_dir:
    description: Folder of Slurm's programs. By default they are searched in C(PATH) and the usual folders.
    type: path
"""

    CLUSTER = r"""
options:
  cluster:
    description:
      - The Slurm cluster in the fabric file. By default the only one, or the one with slurmctld's ClusterName.
    type: str
"""
