# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all unit tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# In CI hypothesis takes the same examples each time, so that a run can be had again. ansible-test tells nobody that it
# runs there; its own plugins give it away. New examples are searched by the gate unit outside CI, and by its users.
if "ansible_pytest_collections" in os.environ.get("PYTEST_PLUGINS", ""):
    settings.load_profile("ci")
