# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Six rounds of faults and repairs on four running trays; `make soak` runs 200 on 36."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.tests.integration.conftest import running_lab

from .live import Soak, scenario
from .racks import OPERATOR

ROUNDS = 6
# With this seed every event of OPERATOR and these two occur in the six rounds.
SEED = 33
EVENTS = {*OPERATOR, "new cluster UUID", "split per tray"}


@pytest.mark.lab
@pytest.mark.long
def test_after_each_round_site_is_idempotent_and_no_tray_is_lost(tmp_path: Path) -> None:
    with running_lab(tmp_path, scenario(tmp_path, racks=2, trays=2)) as racks:
        soak = Soak(racks, tmp_path, seed=SEED, phases=("discover", "slurm"), every=3, new_ids=True)
        soak.wait_until_running()
        rounds = [soak.round() for _again in range(ROUNDS)]
        assert sum(one.changed for one in rounds) > 0, "at least one event changed the site"
        assert {what.rpartition(": ")[2] for one in rounds for what in one.happened} >= EVENTS
        soak.repair_all()
