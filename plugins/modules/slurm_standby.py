#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_standby
short_description: "[INTERNAL] Prepare a backup slurmctld, copy the first one's files to it and start it"
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Runs on the hosts of slurmctld, in three steps. O(state=prepared) installs the cluster's key on a backup, and fails
    where its O(state_dir) is not the first one's, because a takeover would then cancel all jobs. O(state=read) returns
    the files of the first one. O(state=present) writes them on another one and starts its slurmctld, which waits until
    it must take over.
  - The files are C(slurm.conf), its includes from the same folder, and the other files of that folder that slurmctld
    reads. None of them contains a secret. Files in other folders are the site's to keep equal.
  - The backup slurmctld is restarted where C(slurm.conf) changes. It reads the other files when it takes over.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  state:
    description: The step.
    type: str
    choices: [prepared, read, present]
    default: present
  auth:
    description: The authentication of Slurm's daemons (C(AuthType)).
    type: str
    choices: [munge, slurm]
    default: munge
  key:
    description: The first controller's key in Base64, for O(state=prepared). It is never shown.
    type: str
  state_dir:
    description: C(StateSaveLocation).
    type: path
    default: /var/lib/slurm/slurmctld
  state_id:
    description:
      - Content of the file C(nvlink_state_id) in the first controller's O(state_dir), in Base64, for O(state=prepared).
    type: str
    default: ""
  user:
    description: C(SlurmUser), which must have the same UID on all controllers.
    type: str
    default: slurm
  files:
    description: The files that O(state=read) returned on the first controller, for O(state=present).
    type: dict
    default: {}
  conf_dir:
    description: The folder of C(slurm.conf).
    type: path
    default: /etc/slurm
  log:
    description: C(SlurmctldLogFile), read for the error message where slurmctld does not start.
    type: path
    default: /var/log/slurm/slurmctld.log
  timeout:
    description: Seconds that one call of a tool, or the start of a unit, may take.
    type: float
    default: 120
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
  - module: rackscale.nvlink.slurm_conf
"""

EXAMPLES = r"""
- name: Read the files of the first slurmctld
  rackscale.nvlink.slurm_standby:
    state: read
  delegate_to: ctl1
  register: first

- name: Start a backup slurmctld
  rackscale.nvlink.slurm_standby:
    files: "{{ first.files }}"
  delegate_to: ctl2
"""

RETURN = r"""
files:
  description: The files by name, each in Base64.
  returned: success and O(state=read)
  type: dict
changes:
  description: What changed, or would in check mode.
  returned: always
  type: list
  elements: str
  sample: ["write slurm.conf", "start slurmctld.service"]
findings:
  description: Always empty.
  returned: always
  type: list
  elements: dict
"""

import base64
import binascii
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import keys, standby
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError

ARGUMENTS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["prepared", "read", "present"], "default": "present"},
    "auth": {"type": "str", "choices": ["munge", "slurm"], "default": "munge"},
    "key": {"type": "str", "no_log": True},
    "state_dir": {"type": "path", "default": "/var/lib/slurm/slurmctld"},
    "state_id": {"type": "str", "default": ""},
    "user": {"type": "str", "default": "slurm"},
    "files": {"type": "dict", "default": {}},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "log": {"type": "path", "default": "/var/log/slurm/slurmctld.log"},
    "timeout": {"type": "float", "default": 120},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    changes: list[str] = []
    result: dict[str, Any] = {"changes": changes, "findings": []}
    try:
        host = Host(module.check_mode, params["timeout"])
        host.changes = changes
        if params["state"] == "prepared":
            if params["key"] or not host.check:
                keys.install(host, params["auth"], keys.decoded(params["key"]))
            standby.check_state(host, params["state_dir"], params["state_id"], params["user"])
            module.exit_json(changed=bool(changes), **result)
        before = standby.gather(params["conf_dir"])
        if params["state"] == "read":
            encoded = {name: base64.b64encode(data).decode("ascii") for name, data in before.items()}
            module.exit_json(changed=False, files=encoded, **result)
        desired = standby.DesiredState(_decoded(params["files"]), params["conf_dir"], params["log"])
        changed = standby.bring_up(host, desired)
    except NvlinkError as error:
        module.fail_json(msg=str(error), changed=bool(changes), **result)
    if module._diff:
        result["diff"] = [
            {
                "before_header": name,
                "after_header": name,
                "before": before.get(name, b"").decode("utf-8", "replace"),
                "after": desired.files.get(name, b"").decode("utf-8", "replace"),
            }
            for name in changed
        ]
    module.exit_json(changed=bool(changes), **result)


def _decoded(given: dict[str, Any]) -> dict[str, bytes]:
    try:
        return {str(name): base64.b64decode(text, validate=True) for name, text in given.items()}
    except (binascii.Error, TypeError, ValueError):
        raise SlurmError("The option files is not the result of state=read: pass it unchanged.") from None


if __name__ == "__main__":
    main()
