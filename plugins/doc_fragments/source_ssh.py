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
      - The trays that the source V(ssh) reads, and how. One process reaches all of them, with C(ssh) as it is
        configured for the user who runs Ansible; C(ansible_user) and other variables of Ansible's connections have
        no effect.
      - Each tray runs a program made of the code of M(rackscale.nvlink.fabric_facts), sent over ssh. It needs Python
        3.9 or newer on the tray, and writes no file.
      - There are no prompts for a password or a host key. Trays that cannot be reached are listed in one warning with
        the reason, and keep their place in the fabric file.
      - There is no C(sudo). Reading the NVLink fabric needs no root; log in as a user who may open C(/dev/nvidia*).
      - With C(-v) the run prints its progress.
    type: dict
    suboptions:
      hosts:
        description:
          - The trays, as text or a list of texts, each a node set of ClusterShell, such as
            V(r[01-02]t[01-18]) or V(@trays). In a YAML list in brackets such a text needs quotes.
          - The default is all trays of the fabric file, where V(fabric_file) is a source too. A tray with
            C(ansible_host) in it is reached at that address.
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
          - More options of C(ssh), as a list of words, or as text that is split as in a shell.
          - Where the key exchange takes most of the time, as with V(sntrup761x25519-sha512) of OpenSSH 9.0 to 9.8,
            choose another one here.
        type: raw
      python:
        description: Python 3.9 or newer on the trays.
        type: str
        default: /usr/bin/python3
      fanout:
        description: How many trays are read at a time.
        type: int
        default: 64
      connect_timeout:
        description: Seconds for the connection.
        type: int
        default: 10
      command_timeout:
        description:
          - Seconds for the program on a tray. It must be more than O(ssh.timeout).
          - For each O(ssh.fanout) trays the run ends after O(ssh.connect_timeout) plus these seconds.
        type: int
        default: 60
      jump:
        description:
          - The gateway to the trays, as C([user@]host[:port]), or a mapping of node sets of trays to their gateways;
            trays that are not in it are reached directly.
          - As with C(ProxyJump) of C(ssh), a gateway only forwards connections, and C(ssh) checks the key of the tray
            itself. There is one connection to each gateway, which ends with the run. Its sshd must allow TCP
            forwarding.
          - O(ssh.ssh_options) are used for the connections to the gateways too, O(ssh.user) and O(ssh.port) are not.
            For several gateways in a row, set C(ProxyJump) for the last one in the configuration of C(ssh).
        type: raw
      backend:
        description: The GPU backend, as O(rackscale.nvlink.fabric_facts#module:backend).
        type: str
        choices: [auto, nvml, nvidia_smi]
        default: auto
      nvidia_smi:
        description: The program C(nvidia-smi) on the trays, as O(rackscale.nvlink.fabric_facts#module:nvidia_smi).
        type: str
        default: nvidia-smi
      timeout:
        description: Seconds for the GPU backend, as O(rackscale.nvlink.fabric_facts#module:timeout).
        type: float
        default: 20
"""
