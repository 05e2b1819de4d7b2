# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate of a tray with imex_tls ca, from variables of localhost and the fabric file, not from a tray."""

from __future__ import annotations

import functools
import os
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.formats import ImexError, normal_address
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import variables as role_variables

# As RFC 5280 limits a common name, ub-common-name.
_MAX_NAME = 64


def plan(variables: Variables, tray: str, run_folder: str) -> dict[str, Any]:
    """What the role signs for a tray: RV(certificate) of the module imex_domain. run_folder: see run_store.

    Raises NvlinkError.
    """
    names = ("imex_tls_ca_dir", "imex_tls_days", "imex_tls_rotate")
    folder, days, rotate = role_variables.of_localhost(variables, names)
    if not folder:
        raise ImexError(
            "imex_tls ca needs imex_tls_ca_dir of localhost; set it in group all, for localhost or with -e. A value for"
            " trays alone does not count, because it decides which files of the controller are read and written."
        )
    if not os.path.isabs(folder):
        raise ImexError(f"imex_tls_ca_dir is {folder!r}; use an absolute path.")
    address = _address(variables, tray, run_folder)
    # The fabric file has it, so it is the name of a file; the authority's files are ca.key and ca.pem.
    if tray == "ca" or len(tray) > _MAX_NAME:
        raise ImexError(
            f"imex_tls ca: {tray!r} cannot name a certificate; give the tray a name of at most 64 characters, not 'ca'."
        )
    files = {"key": f"{tray}.key", "certificate": f"{tray}.pem", "authority": "ca.pem"}
    return {
        "folder": folder,
        "files": {kind: os.path.join(folder, name) for kind, name in files.items()},
        "name": tray,
        "subject_alt_name": [f"IP:{address}", f"DNS:{tray}"],
        "days": days,
        "rotate": rotate,
        "due": rotate or not os.path.exists(os.path.join(folder, "ca.key")),
    }


def _address(variables: Variables, tray: str, run_folder: str) -> str:
    path = fabric_file.path_from(functools.partial(trust.controller_value, variables), "imex_fabric_file")
    if not path:
        raise ImexError(
            "imex_tls ca: localhost has no fabric_file, from which the tray's address is read; set it in group all or"
            " with -e."
        )
    path = absolute(path)
    clique = run_store.clique_of(run_folder, path, tray)
    address = normal_address(clique.entry_of(tray)) if clique else None
    if address is None:
        raise ImexError(f"{path}: has no IMEX address of tray {tray}; run discover and accept.")
    return address
