#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_controller
short_description: "[INTERNAL] Install slurmctld's packages, key, database and state folder"
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Runs on the host of slurmctld. Installs the packages, creates the cluster's authentication key once, starts MariaDB
    and slurmdbd, and makes C(StateSaveLocation).
  - An existing key or database password stays. Neither is in any output, process argument or diff. The password is
    stored in C(slurmdbd.conf) alone, with mode 0600.
  - M(rackscale.nvlink.slurm_conf) starts slurmctld after it has written its files.
  - With O(backup=true) the host is prepared for a second slurmctld, which M(rackscale.nvlink.slurm_standby) starts. It
    gets the key of the first one and no database.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  packages:
    description: The packages to install.
    type: list
    elements: str
    default: []
  auth:
    description: The authentication of Slurm's daemons (C(AuthType)).
    type: str
    choices: [munge, slurm]
    default: munge
  backup:
    description: Whether this host is not the first controller.
    type: bool
    default: false
  key:
    description: The first controller's key in Base64, for O(backup=true). It is never shown.
    type: str
  state_id:
    description:
      - Content of the file C(nvlink_state_id) in the first controller's O(state_dir), in Base64, for O(backup=true).
        The module fails where the folder on this host is another one, because a takeover would then cancel all jobs.
    type: str
    default: ""
  user:
    description: C(SlurmUser). The packages create it.
    type: str
    default: slurm
  conf_dir:
    description: The folder of C(slurm.conf).
    type: path
    default: /etc/slurm
  state_dir:
    description: C(StateSaveLocation), which gets mode 0700.
    type: path
    default: /var/lib/slurm/slurmctld
  log_dir:
    description: The folder of the logs.
    type: path
    default: /var/log/slurm
  database:
    description: Whether to install and start MariaDB and slurmdbd on this host.
    type: bool
    default: true
  database_name:
    description: The database.
    type: str
    default: slurm_acct_db
  database_user:
    description: The database's user.
    type: str
    default: slurm
  database_password:
    description: The user's password. If empty, the one in C(slurmdbd.conf) stays, or a new one is created. Never shown.
    type: str
    default: ""
  mariadb_file:
    description: The file for MariaDB's settings.
    type: path
    default: /etc/mysql/mariadb.conf.d/60-slurm.cnf
  mariadb_settings:
    description: Settings of MariaDB, which override those that Slurm's guide recommends.
    type: dict
    default: {}
  dbd_settings:
    description: Settings of C(slurmdbd.conf), which override the module's own.
    type: dict
    default: {}
  timeout:
    description: Seconds that one call of a tool, or the start of a unit, may take. Installing packages may take longer.
    type: float
    default: 120
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details:
      - Changes are described in words, since some of these files contain secrets.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_conf
  - module: rackscale.nvlink.slurm_standby
  - module: rackscale.nvlink.slurm_tray
"""

EXAMPLES = r"""
- name: Install slurmctld, slurmdbd and MariaDB
  rackscale.nvlink.slurm_controller:
    packages: [munge, slurmctld, slurm-client, slurmdbd, mariadb-server]
"""

RETURN = r"""
key_path:
  description: Path of the cluster's key.
  returned: success
  type: str
  sample: /etc/munge/munge.key
changes:
  description: What changed, or would in check mode.
  returned: always
  type: list
  elements: str
  sample: ["packages installed: slurmctld"]
findings:
  description: Always empty.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster, database, keys, standby
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host

ARGUMENTS: dict[str, dict[str, Any]] = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "auth": {"type": "str", "choices": ["munge", "slurm"], "default": "munge"},
    "backup": {"type": "bool", "default": False},
    "key": {"type": "str", "no_log": True},
    "state_id": {"type": "str", "default": ""},
    "user": {"type": "str", "default": "slurm"},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "state_dir": {"type": "path", "default": "/var/lib/slurm/slurmctld"},
    "log_dir": {"type": "path", "default": "/var/log/slurm"},
    "database": {"type": "bool", "default": True},
    "database_name": {"type": "str", "default": "slurm_acct_db"},
    "database_user": {"type": "str", "default": "slurm"},
    "database_password": {"type": "str", "default": "", "no_log": True},
    "mariadb_file": {"type": "path", "default": "/etc/mysql/mariadb.conf.d/60-slurm.cnf"},
    "mariadb_settings": {"type": "dict", "default": {}},
    "dbd_settings": {"type": "dict", "default": {}},
    "timeout": {"type": "float", "default": 120},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    changes: list[str] = []
    try:
        host = Host(module.check_mode, params["timeout"])
        host.changes = changes
        bring_up(host, params)
    except NvlinkError as error:
        module.fail_json(msg=str(error), changed=bool(changes), changes=changes, findings=[])
    module.exit_json(changed=bool(changes), changes=changes, findings=[], key_path=keys.path(params["auth"]))


def bring_up(host: Host, params: dict[str, Any]) -> None:
    host.install(params["packages"], masked=(cluster.UNIT, database.UNIT, keys.MUNGE_UNIT))
    owner = f"{params['user']}:{params['user']}"
    host.folder(params["conf_dir"], "root:root", 0o755)
    if not params["backup"]:
        keys.create(host, params["auth"])
    elif params["key"] or not host.check:
        keys.install(host, params["auth"], keys.decoded(params["key"]))
    if params["auth"] == "munge":
        host.run(keys.MUNGE_UNIT)
    host.folder(params["log_dir"], owner, 0o755)
    host.logrotate("slurmctld-nvlink", [f"{params['log_dir']}/slurmctld.log"], cluster.UNIT)
    if params["backup"]:
        standby.check_state(host, params["state_dir"], params["state_id"], params["user"])
        return
    host.folder(params["state_dir"], owner, 0o700)
    standby.write_state_id(host, params["state_dir"], owner)
    if params["database"]:
        database.bring_up(
            host,
            database.DesiredState(
                auth=params["auth"],
                database=params["database_name"],
                user=params["database_user"],
                mariadb_file=params["mariadb_file"],
                mariadb_settings={key: str(value) for key, value in params["mariadb_settings"].items()},
                settings={key: str(value) for key, value in params["dbd_settings"].items()},
                conf_dir=params["conf_dir"],
                slurm_user=params["user"],
                password=params["database_password"],
                log=f"{params['log_dir']}/slurmdbd.log",
            ),
        )


if __name__ == "__main__":
    main()
