# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of all unit tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No test is timed: a busy machine is not a failure.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# In CI hypothesis uses the same examples each time, so that a run can be repeated. ansible-test removes CI from the
# environment, so its own plugins identify it. The gate unit searches new examples outside CI.
in_ci = os.environ.get("CI") == "true" or "ansible_pytest_collections" in os.environ.get("PYTEST_PLUGINS", "")
settings.load_profile("ci" if in_ci else "untimed")
