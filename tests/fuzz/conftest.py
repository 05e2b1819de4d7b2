# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the fuzz targets: a few hundred inputs each in `make test`, 100,000 in `make fuzz`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

# An input that was found once is kept by hypothesis and tried first. Shrinking a failure takes a moment only.
settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "200")),
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
settings.load_profile("fuzz")
