# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command that installs a missing or old collection, for the check at the beginning of a role that needs it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: install_command
short_description: Command that installs a missing or old collection
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Returns the command that installs a collection which a role of this collection needs, and an empty text where the
    collection is installed and not older than the oldest release that is supported.
  - Ansible resolves the module of a task when it loads the task, so the tasks that need the collection are included
    after this check.
options:
  _terms:
    description: The collection, one of V(ansible.mariadb), V(community.crypto) and V(kubernetes.core).
    required: true
"""

EXAMPLES = r"""
- name: Verify that kubernetes.core is installed
  ansible.builtin.assert:
    that: lookup('rackscale.nvlink.install_command', 'kubernetes.core') is falsy
"""

RETURN = r"""
_raw:
  description: For each collection the command, or an empty text.
  type: list
  elements: str
"""

from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import environment, matrix


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: Variables | None = None, **kwargs: Any) -> list[str]:
        return [_command(name, matrix.COLLECTIONS[name]) for name in terms]


def _command(name: str, oldest: str) -> str:
    installed = environment.collection_version(name)
    # A checkout may have no version.
    if installed is not None and not (installed and matrix.is_older(installed, oldest)):
        return ""
    return f"ansible-galaxy collection install '{name}:>={oldest}'{' --upgrade' if installed else ''}"
