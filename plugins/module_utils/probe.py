# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that a reading by ssh runs on a tray: print the result that the module fabric_facts returns."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets

# The result is between these as JSON on one line, whatever a login shell prints before and after.
BEGIN, END = "nvlink-facts-2:", ":nvlink-facts-end"


def main(arguments: Sequence[str]) -> None:
    """Print the result; arguments: subsets.Options as JSON, and the seconds after which the program ends itself."""
    options, limit = arguments
    signal.alarm(int(limit))
    text = json.dumps(subsets.gather(subsets.Options(**json.loads(options))), separators=(",", ":"))
    sys.stdout.write(f"\n{BEGIN}{text}{END}\n")
