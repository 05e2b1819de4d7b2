# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every module returns that changes something."""

from __future__ import annotations


class ModuleDocFragment:
    RETURN = r"""
actions:
  description: What was done, in order, also what was undone after a failure. Empty in check mode.
  returned: always
  type: list
  elements: str
  sample:
    - write /etc/slurm/topology.yaml (mode 0644, 812 bytes, sha256 5f70bf18a086)
    - run /usr/bin/scontrol reconfigure
  version_added: 1.1.0
"""
