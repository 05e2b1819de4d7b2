# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attributes that modules of this collection share."""

from __future__ import annotations


class ModuleDocFragment:
    # A module states its own support; the description of each attribute is here once.
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return what it would change without changing it.
  diff_mode:
    description: Returns in diff mode what it changed, or in C(check_mode) what it would change.
  idempotent:
    description: A second run with the same options in the same state changes nothing.
  platform:
    description: Target operating systems of the module.
    platforms: linux
"""

    # For modules that only read and return C(ansible_facts).
    FACTS_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - It only reads.
  diff_mode:
    support: N/A
    details:
      - It changes nothing.
  idempotent:
    support: full
  facts:
    description: Returns C(ansible_facts), which become variables of the host.
    support: full
"""

    # For modules that only read and return a result.
    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - It only reads.
  diff_mode:
    support: N/A
    details:
      - It changes nothing.
  idempotent:
    support: full
"""

    # For modules with an action plugin that runs on the controller.
    ACTION = r"""
options: {}
attributes:
  action:
    description: Has an action plugin of the same name that runs on the controller.
    support: full
  async:
    description: Can be run with C(async).
    support: none
"""
