# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that the source ssh runs on a tray: print the tray's facts, the same that fabric_facts returns."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts

# The facts are between these as JSON on one line, whatever a login shell prints before and after.
BEGIN, END = "nvlink-facts-1:", ":nvlink-facts-end"


def main(arguments: Sequence[str]) -> None:
    """Print the facts; arguments: backend, nvidia_smi, timeout, and the seconds after which the program ends itself."""
    backend, nvidia_smi, timeout, limit = arguments
    signal.alarm(int(limit))
    text = json.dumps(facts.gather(backend, nvidia_smi, float(timeout)), separators=(",", ":"))
    sys.stdout.write(f"\n{BEGIN}{text}{END}\n")
