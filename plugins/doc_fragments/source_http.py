# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The suboptions that every source of HTTP has, for the fragments of those sources to end with."""

from __future__ import annotations

CONNECTION = r"""
      token:
        description:
          - The token to log in with. It is secret, so prefer O({source}.token_file), or a template that looks it up.
          - No error of the plugin shows it.
        type: str
      token_file:
        description: A file that holds the token and nothing else, as an absolute path or one that starts with C(~/).
        type: path
      username:
        description: The user to log in with by Basic authentication, instead of a token.
        type: str
      password:
        description: The user's password. It is secret, so prefer O({source}.password_file).
        type: str
      password_file:
        description: A file that holds the user's password and nothing else.
        type: path
      ca_file:
        description:
          - PEM file with the certificates of the CAs that the server's certificate may come from.
          - Without it these are the CAs that the controller trusts.
        type: path
      client_cert:
        description: PEM file with the certificate that the plugin shows to the server; it may hold the key too.
        type: path
      client_key:
        description: PEM file with that certificate's key, without a pass phrase.
        type: path
      validate_certs:
        description: Whether the server's certificate is checked. Without the check anybody can read the token.
        type: bool
        default: true
      timeout:
        description: Seconds that one request may take, with its redirects and its whole answer.
        type: float
        default: 30
      deadline:
        description: Seconds that all requests of the source may take together.
        type: float
        default: 120
      max_bytes:
        description: How large one answer may be.
        type: int
        default: 67108864
"""
