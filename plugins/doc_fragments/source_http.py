# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The suboptions of every HTTP source, the last part of the fragments of these sources."""

from __future__ import annotations

CONNECTION = r"""
      token:
        description:
          - The token for authentication. It is secret, so prefer O({source}.token_file), or a template that looks it
            up.
          - Errors of the plugin do not show it.
        type: str
      token_file:
        description: A file with the token only, as an absolute path or one that starts with C(~/).
        type: path
      username:
        description: The user for Basic authentication, instead of a token.
        type: str
      password:
        description: The user's password. It is secret, so prefer O({source}.password_file).
        type: str
      password_file:
        description: A file with the password only.
        type: path
      ca_file:
        description:
          - PEM file with the certificates of the CAs of the server.
          - The default are the CAs that the controller trusts.
        type: path
      client_cert:
        description: PEM file with the client certificate; it may contain the key too.
        type: path
      client_key:
        description: PEM file with the key of the client certificate, without a pass phrase.
        type: path
      validate_certs:
        description: Whether the server's certificate is verified. Otherwise others on the network can read the token.
        type: bool
        default: true
      timeout:
        description: Timeout in seconds of one request with its complete answer, and of a login.
        type: float
        default: 30
      deadline:
        description: Timeout in seconds of all requests of the source together.
        type: float
        default: 120
      max_bytes:
        description: Maximum size of one answer in bytes. It may have one value for each 32 of them.
        type: int
        default: 67108864
"""
