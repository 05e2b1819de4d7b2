# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option of the inventory's source ssh."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  ssh:
    description:
      - The trays that the source V(ssh) asks, and how. One process reaches all of them, with C(ssh) as it is configured
        for the user who runs Ansible; C(ansible_user) and other variables of Ansible's own connections do not count.
      - Every tray is sent a program made of the very code of M(rackscale.nvlink.fabric_facts). It needs Python 3.9 or
        newer there, and writes no file.
      - Nobody is ever asked for a password or a host key. A tray that cannot be reached is listed in one warning with
        the reason, and keeps its place in the fabric file.
      - There is no C(sudo). Reading the NVLink fabric needs no root; log in as a user who may open C(/dev/nvidia*).
      - With C(-v) the run says how far it is.
    type: dict
    suboptions:
      hosts:
        description:
          - The trays, as text or a list of texts, each a node set of ClusterShell, such as
            V(r[01-02]t[01-18]) or V(@trays). In a YAML list in brackets such a text needs quotes.
          - The default is all trays of the fabric file, where V(fabric_file) is a source too. There a tray with
            C(ansible_host) is reached at that address.
        type: raw
      user:
        description: The user to log in as. The default is C(ssh)'s own.
        type: str
      port:
        description: The port of the trays' sshd. The default is C(ssh)'s own.
        type: int
      ssh:
        description: The program C(ssh).
        type: str
        default: ssh
      ssh_options:
        description:
          - More options of C(ssh), as a list of words, or as text that is split as a shell would.
          - Where the key exchange is what takes the time, as with V(sntrup761x25519-sha512) of OpenSSH 9.0 to 9.8,
            another one can be named here.
        type: raw
      python:
        description: Python 3.9 or newer on the trays.
        type: str
        default: /usr/bin/python3
      fanout:
        description: How many trays are asked at a time. With gateways, by each of them.
        type: int
        default: 64
      connect_timeout:
        description: Seconds in which a connection must stand.
        type: int
        default: 10
      command_timeout:
        description:
          - Seconds that a tray then has for its answer. It must be more than O(ssh.timeout).
          - All trays are asked in a first round that gives each 5 seconds for its answer. Those that gave no facts, as
            where NVML hangs or crashes, are asked once more, with all these seconds and NVML in a child of its own.
            Through gateways, and with V(nvidia_smi) as O(ssh.backend), there is only the second round.
          - For each O(ssh.fanout) trays a round ends after O(ssh.connect_timeout) plus the seconds for an answer.
        type: int
        default: 60
      topology:
        description:
          - A ClusterShell topology file, as an absolute path or starting with C(~/). The trays below a gateway are then
            asked by that gateway, by their names.
          - Every gateway needs the very version of ClusterShell that this controller has, which is checked first.
          - C(/etc/clustershell/topology.conf) is not read unless it is named here.
        type: path
      gateway_python:
        description: The Python of the gateways that has ClusterShell.
        type: str
        default: /usr/bin/python3
      backend:
        description: As O(rackscale.nvlink.fabric_facts#module:backend).
        type: str
        choices: [auto, nvml, nvidia_smi]
        default: auto
      nvidia_smi:
        description: As O(rackscale.nvlink.fabric_facts#module:nvidia_smi).
        type: str
        default: nvidia-smi
      timeout:
        description: As O(rackscale.nvlink.fabric_facts#module:timeout).
        type: float
        default: 20
"""
