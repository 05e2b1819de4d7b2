#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: imex_info
short_description: What a tray's IMEX daemon says, and who owns it
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Reads the state of C(nvidia-imex) on a tray, its peers as this tray itself sees them, its list, its channels, and
    which owner runs it.
  - A tray in trouble is no failed task. A daemon that hangs, another version, a list that differs is a finding with its
    remedy, and the module returns normally. The module fails only for a wrong option.
  - C(nvidia-imex-ctl) can hang, so it runs in a child process that is killed at O(timeout).
  - Of the answer of C(nvidia-imex-ctl -N -j) only the tray's own row is used, because rows of others are made up from
    the list when those do not answer. Ask all trays of a clique to know how it is.
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.facts_module
  - rackscale.nvlink.tray.imex
attributes:
  platform:
    support: full
    platforms: linux
options:
  config:
    description: The configuration of the daemon. Where its list and its log are stands there.
    type: path
    default: /etc/nvidia-imex/config.cfg
  record:
    description: The file in which the role notes which list it has written, with the generation of its clique's list.
    type: path
    default: /etc/nvidia-imex/nvlink.json
  ctl:
    description: The program C(nvidia-imex-ctl); looked up in C(PATH) when it has no slash.
    type: path
    default: nvidia-imex-ctl
  timeout:
    description:
      - Seconds that each of its two answers may take, above 0 and up to 600. Where the first hangs the second is not
        asked for.
    type: float
    default: 10
seealso:
  - module: rackscale.nvlink.fabric_facts
"""

EXAMPLES = r"""
- name: Ask every tray of its IMEX
  rackscale.nvlink.imex_info:

- name: Stop where a tray's IMEX is not ready
  ansible.builtin.assert:
    that: ansible_facts.nvlink_imex.ready
    fail_msg: "{{ ansible_facts.nvlink_imex.reason }}"

- name: Show the peers that this tray does not see
  ansible.builtin.debug:
    msg: "{{ ansible_facts.nvlink_imex.peers | rejectattr('connection', 'eq', 'connected') | map(attribute='host') }}"
"""

RETURN = r"""
ansible_facts:
  description: What the tray says of its IMEX. Unknown is V(null), never a guess.
  returned: success
  type: dict
  contains:
    nvlink_imex:
      description: IMEX as this tray sees it.
      returned: success
      type: dict
      contains:
        observed_at:
          description: When it was read, in UTC.
          returned: success
          type: str
          sample: "2026-11-21T05:00:00Z"
        hostname:
          description: The tray's own hostname.
          returned: success
          type: str
          sample: r01t01
        installed:
          description: Whether there is a program C(nvidia-imex).
          returned: success
          type: bool
          sample: true
        package:
          description: The package that it is from, V(null) where no package manager knows it.
          returned: success
          type: dict
          contains:
            name:
              description: The package's name.
              returned: success
              type: str
              sample: nvidia-imex
            version:
              description: The package's version.
              returned: success
              type: str
              sample: 580.173.02-1
        version:
          description: The version of the running daemon, else of the installed program.
          returned: success
          type: str
          sample: 580.173.02
        driver_version:
          description: The version of the loaded driver, which must be the same.
          returned: success
          type: str
          sample: 580.173.02
        running:
          description: Whether a daemon runs, whoever started it.
          returned: success
          type: bool
          sample: true
        state:
          description:
            - The daemon's state. One of V(initializing), V(starting_auth_server), V(waiting_for_peers),
              V(waiting_for_recovery), V(init_gpu), V(ready), V(shutting_down) and V(unavailable).
          returned: success
          type: str
          sample: ready
        domain_state:
          description: The domain as this tray's ctl calls it, V(up), V(degraded) or V(down).
          returned: success
          type: str
          sample: up
        ready:
          description: Whether the daemon runs and its state is ready. A ready daemon can have lost all its peers.
          returned: success
          type: bool
          sample: true
        peers:
          description: The other members of the list as this tray's own row has them, in the list's order.
          returned: success
          type: list
          elements: dict
          contains:
            id:
              description: Its number in the list.
              returned: success
              type: int
              sample: 1
            host:
              description: Its line in the list.
              returned: success
              type: str
              sample: 198.51.100.12
            connection:
              description:
                - One of V(connected), V(never_connected), V(recovering), V(disconnected), V(invalid),
                  V(authenticating), V(version_mismatch) and V(map_mismatch), or a word of a newer release.
              returned: success
              type: str
              sample: connected
        unit:
          description: C(nvidia-imex.service) as systemd has it, V(null) without systemd.
          returned: success
          type: dict
          contains:
            load:
              description: V(loaded), V(not-found) or V(masked).
              returned: success
              type: str
              sample: loaded
            active:
              description: V(active), V(inactive), V(failed), V(activating) or V(deactivating).
              returned: success
              type: str
              sample: active
            sub:
              description: Systemd's finer word.
              returned: success
              type: str
              sample: running
            enabled:
              description: V(enabled), V(disabled), V(masked) or another word of systemd, V(null) without a unit.
              returned: success
              type: str
              sample: enabled
            main_pid:
              description: The daemon's process.
              returned: success
              type: int
              sample: 812
            result:
              description: Why it has failed, else V(success).
              returned: success
              type: str
              sample: success
        config:
          description: The configuration of the daemon.
          returned: success
          type: dict
          contains:
            path:
              description: Its file.
              returned: success
              type: str
              sample: /etc/nvidia-imex/config.cfg
            sha256:
              description: The hash of the file, V(null) if there is none.
              returned: success
              type: str
              sample: 5f1d...
            settings:
              description: What it sets. A value of a TLS key that is no path and no name is V(null).
              returned: success
              type: dict
              sample: {SERVER_PORT: "50000"}
            unknown_keys:
              description: Keys that this collection does not know. They are left as they are.
              returned: success
              type: list
              elements: str
              sample: []
        nodes:
          description: The list of the IMEX domain's members, C(nodes_config.cfg).
          returned: success
          type: dict
          contains:
            path:
              description: Its file.
              returned: success
              type: str
              sample: /etc/nvidia-imex/nodes_config.cfg
            sha256:
              description: The hash of the file, equal on all members of a domain, V(null) if there is none.
              returned: success
              type: str
              sample: 83bb...
            entries:
              description: Its lines.
              returned: success
              type: list
              elements: str
              sample: [198.51.100.11, 198.51.100.12]
            own_id:
              description: The line that is an address of this tray, counted from 0, V(null) if there is none.
              returned: success
              type: int
              sample: 0
            changed_at:
              description: When it was written, in seconds since 1970.
              returned: success
              type: float
              sample: 1795237200.0
            generation:
              description: The generation of the clique's list that the role last wrote here.
              returned: success
              type: int
              sample: 3
            clique:
              description: The clique that it was written for.
              returned: success
              type: str
              sample: r01
            recorded_owner:
              description: The owner of IMEX as the role last set it.
              returned: success
              type: str
              sample: domain
            recorded_sha256:
              description: The hash of the list as the role wrote it.
              returned: success
              type: str
              sample: 83bb...
        persist_file:
          description: Whether there is a persist file. Without a daemon that means an unclean stop.
          returned: success
          type: bool
          sample: false
        channels:
          description: The IMEX channels.
          returned: success
          type: dict
          contains:
            major:
              description: Their major number in this boot, V(null) if the driver offers none.
              returned: success
              type: int
              sample: 234
            devices:
              description: The devices that there are.
              returned: success
              type: list
              elements: dict
              contains:
                name:
                  description: The device's name.
                  returned: success
                  type: str
                  sample: channel0
                major:
                  description: Its major number.
                  returned: success
                  type: int
                  sample: 234
                minor:
                  description: Its minor number, the channel.
                  returned: success
                  type: int
                  sample: 0
                mode:
                  description: Its mode.
                  returned: success
                  type: str
                  sample: "0666"
        owners:
          description: Who runs IMEX on this tray, or will at the next boot or job. More than one is an error.
          returned: success
          type: list
          elements: dict
          contains:
            owner:
              description:
                - V(service) is nvidia-imex.service, V(prolog) a prolog of Slurm, V(driver) Kubernetes' DRA driver and
                  V(foreign) whatever else.
              returned: success
              type: str
              sample: service
            why:
              description: What it is told by.
              returned: success
              type: str
              sample: nvidia-imex.service is enabled
            pid:
              description: Its process, V(null) if none runs now.
              returned: success
              type: int
              sample: 812
        reason:
          description: The first error among the findings in one sentence, V(null) if there is none.
          returned: success
          type: str
          sample: null
        findings:
          description: What was noticed. Empty when everything is as it should be.
          returned: success
          type: list
          elements: dict
          contains:
            code:
              description: The reason code.
              returned: success
              type: str
              sample: imex_list_differs
            severity:
              description: One of V(error), V(warning) and V(info).
              returned: success
              type: str
              sample: error
            message:
              description: One sentence that names the remedy.
              returned: success
              type: str
              sample: nvidia-imex is not installed; the imex role installs it.
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import facts, files, survey


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "path", "default": files.CONFIG_FILE},
            "record": {"type": "path", "default": files.RECORD_FILE},
            "ctl": {"type": "path", "default": "nvidia-imex-ctl"},
            "timeout": {"type": "float", "default": 10},
            "prolog_files": {"type": "list", "elements": "str", "default": list(survey.PROLOG_FILES)},
            "proc_devices": {"type": "path", "default": survey.PROC_DEVICES},
        },
        supports_check_mode=True,
    )
    options = module.params
    try:
        survey.check_options(options["ctl"], options["timeout"])
        read = survey.survey(
            options["config"],
            options["record"],
            options["ctl"],
            options["timeout"],
            options["prolog_files"],
            options["proc_devices"],
        )
    except NvlinkError as error:
        module.fail_json(msg=f"imex_info: {error}")
    module.exit_json(changed=False, ansible_facts={"nvlink_imex": facts.assemble(read)})


if __name__ == "__main__":
    main()
