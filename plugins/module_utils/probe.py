# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that a reading by ssh runs on a tray: print the result that a module returns there."""

from __future__ import annotations

import importlib
import json
import signal
import sys
from collections.abc import Sequence

# The result is between these as JSON on one line, whatever a login shell prints before and after.
BEGIN, END = "nvlink-facts-2:", ":nvlink-facts-end"


def main(arguments: Sequence[str]) -> None:
    """Print the result; arguments: the module next to this one that has answer(), the options of that as JSON, and the
    seconds after which the program ends itself.
    """
    name, options, limit = arguments
    signal.alarm(int(limit))
    module = importlib.import_module(f"{__name__.rpartition('.')[0]}.{name}")
    text = json.dumps(module.answer(json.loads(options)), separators=(",", ":"))
    sys.stdout.write(f"\n{BEGIN}{text}{END}\n")
