# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many examples hypothesis makes: the same few in each run of a gate, new ones only in `make fuzz`.

EXAMPLES: examples for each property, 25 if unset. SEARCH=1: random ones, which gate nothing.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "tests",
    deadline=None,  # No test is timed: a busy machine is not a failure,
    suppress_health_check=list(HealthCheck),  # nor how an input is drawn
    derandomize=not os.environ.get("SEARCH"),
    database=None,
    print_blob=True,
    max_examples=int(os.environ.get("EXAMPLES", "25")),
)
settings.load_profile("tests")
