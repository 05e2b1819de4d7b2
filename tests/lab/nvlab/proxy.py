# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ProxyCommand of ssh (with ProxyUseFdpass): connect inside a lab's network namespace and hand ssh the socket.

No relay stays behind: ssh talks to the tray directly, so a kept connection (ControlPersist) costs nothing.
Run as a file: ``proxy.py NETNS_FILE ADDRESS PORT``.
"""

from __future__ import annotations

import array
import os
import socket
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from nvlab import network

    netns_file, address, port = sys.argv[1:4]
    try:
        connection = network.connect(netns_file, address, int(port), timeout=10.0)
    except OSError as error:
        sys.exit(f"lab: {address} port {port}: {error.strerror or error}")
    connection.settimeout(None)
    with socket.socket(fileno=os.dup(1)) as channel:
        channel.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))])
