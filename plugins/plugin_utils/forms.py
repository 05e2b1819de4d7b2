# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms of names, addresses and identifiers: a check accepts any value and returns a plain text, or None."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import ZERO_UUID
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import whole

CLUSTER_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
GPU_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,64}")
VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,64}")
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}(Z|[+-][0-9]{2}:[0-9]{2})")
# The same patterns as in schema/fabric-1.json, for values that are to be written into the fabric file.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
# No tray has such a name. For Ansible each of the first three is the controller, with whatever address an inventory
# gives it. Where a play names a group, Ansible takes a host of that name, in whatever order it reads both. The last
# three are keys of a YAML inventory, as which Ansible reads a fabric file in an inventory folder.
RESERVED = frozenset(
    {"localhost", "127.0.0.1", "::1", "all", "ungrouped", "nvlink", "nvlink_repair", "nvlink_repair_spare"}
    | {"nvlink_resume", "nvlink_rollout", "nvlink_switches", "trays", "slurm_controller", "hosts", "children", "vars"}
)
CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# No dash first: the address would be an option of ssh.
HOST_ADDRESS = re.compile(r"[0-9A-Za-z._:%][0-9A-Za-z._:%-]{0,252}")
# No half of a surrogate pair either, which JSON can hold and no file.
SERIAL = re.compile(r"[^{}\[\]\x00-\x1f\x7f\ud800-\udfff]{1,256}")
_CLIQUE = re.compile(rf"({CLUSTER_UUID.pattern})\.(0|[1-9][0-9]{{0,9}})")


def text(form: re.Pattern[str]) -> Callable[[Any], str | None]:
    """A check for texts that match a pattern. str() also removes the tags of Ansible's own strings."""

    def check(value: Any) -> str | None:
        return str(value) if isinstance(value, str) and form.fullmatch(value) else None

    return check


def identity(value: Any) -> tuple[str, int] | None:
    """Parse the text form `<uuid>.<id>` of a clique; None for any other value and for the zero UUID."""
    match = _CLIQUE.fullmatch(value.lower()) if isinstance(value, str) else None
    if match is None or match[1] == ZERO_UUID or whole(int(match[3])) is None:
        return None
    return match[1], int(match[3])


def is_address(text: str) -> bool:
    """Whether a text is one IPv4 or IPv6 address. inet_pton, since the file may hold ten thousand of them."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError):  # the latter for a NUL, or what is no Unicode
        return False
    return True
