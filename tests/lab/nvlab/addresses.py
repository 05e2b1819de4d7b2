# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses of hosts: the same in every lab, since each has its own network (TEST-NET-2, RFC 5737)."""

from __future__ import annotations

NETWORK = "198.51.100"
PREFIX = 24
BRIDGE_ADDRESS = f"{NETWORK}.1"
CONTROLLER = "ctl"
CONTROLLER_ADDRESS = f"{NETWORK}.2"
FIRST_TRAY = 11
BACKUP = "ctl2"
BACKUP_ADDRESS = f"{NETWORK}.4"
# The API server of Kubernetes: processes in the lab's network, on an address of the bridge.
KUBERNETES_ADDRESS = f"{NETWORK}.3"
