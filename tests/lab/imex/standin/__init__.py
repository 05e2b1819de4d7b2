# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for nvidia-imex and nvidia-imex-ctl, which no public registry carries.

It has the published behaviour of the real ones: the keys of config.cfg, the forking start, the id of a node (the line
of nodes_config.cfg that is an address of this host), peers over TCP that compare their lists, the states, -q and -N -j,
exit 255 without a list, the persist file and WAITING_FOR_RECOVERY, the signals, one session a host, TLS.

What it does not do:

- No GPU, no CUDA, no memory is shared. The imports and exports of a job are only simulated (the hook imex_imports).
- Its protocols are its own JSON lines, neither gRPC nor any other protocol of a real member.
- GSS authentication and TLS by variables (refused at the start), IMEX_WAIT_FOR_QUORUM=FULL, the grace time, names in
  the node list and addresses other than those there, options of ctl but -c, -q and -N -j, SIGHUP, levels and rotation
  of the log, syslog, the statistics file. After SIGUSR1 it also trusts the authority that it had before.
- The real one retries a lost peer after 15, 31, 62, 125 s. This one after 1, 2, 4, 8 s, and at once when that peer
  calls itself, so that tests are short; the hook imex_backoff=SECONDS replaces both.

Where nothing is published it assumes, as listed here: the words for connections in the JSON other than CONNECTED and
INVALID; that a peer which vanished shows as R, as one that has stopped cleanly does (seen by NVIDIA); that !V! ends
when the other side comes back with the same version while !M! stays until this daemon is started anew; that a daemon
whose list has no line of this host stays in INITIALIZING; that the parent returns once the ports are open; the output
and exit code of -q without a daemon.

Hooks are read from /opt/nvlink-lab/imex (the lab's `lab set TRAY imex=...`): one JSON object with imex, imex_imports,
imex_block, imex_backoff and driver_version, see hooks.py.
"""
