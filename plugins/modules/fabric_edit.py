# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_edit
short_description: Rename trays of the fabric file, or take them out of it
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - For what no source can see. A tray that gets another name keeps its place, and one that is gone for good loses it.
  - The file of before stays beside it with C(.previous) at its end. A proposal that waits is removed, for it was made
    from the old file.
options:
  fabric_file:
    description: The fabric file, as an absolute path.
    type: path
    required: true
  rename:
    description: Old name to new name. The names in Slurm and Kubernetes stay until the site says others.
    type: dict
    default: {}
  remove:
    description: Trays that are gone for good. Their clique and its block keep name and position, also without any tray.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.fabric_file
"""

EXAMPLES = r"""
- name: A tray got another name
  rackscale.nvlink.fabric_edit:
    fabric_file: /srv/cluster/fabric.json
    rename: {r01t04: rack1-tray4}
"""

RETURN = r"""
changes:
  description: What changed, or would in check mode.
  returned: success
  type: list
  elements: dict
  sample:
    - {tray: rack1-tray4, from: r01, to: r01, kind: name, why: "renamed 2026-11-21 from r01t04"}
msg:
  description: One line that says how it ended.
  returned: success
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "fabric_file": {"type": "path", "required": True},
    "rename": {"type": "dict", "default": {}},
    "remove": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Fail: without the action plugin there is nothing that this could do on a host."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rackscale.nvlink.fabric_edit works on the controller, by its action plugin; run it from a playbook"
    )


if __name__ == "__main__":
    main()
