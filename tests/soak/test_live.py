# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Six rounds of faults and repairs on four running trays; `make soak` runs 200 on 36."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.tests.integration.conftest import running_lab

from .live import Soak
from .racks import OPERATOR

ROUNDS, TRAYS = (int(os.environ.get(name, usual)) for name, usual in (("ROUNDS", "6"), ("TRAYS", "2")))
# With this seed every event of OPERATOR and these two occur in the six rounds.
SEED = int(os.environ.get("SEED", "33"))
EVENTS = {*OPERATOR, "new cluster UUID", "split per tray"}


@pytest.mark.lab
@pytest.mark.long
def test_after_each_round_site_is_idempotent_and_no_tray_is_lost(tmp_path: Path) -> None:
    scenario = tmp_path / "soak.yml"
    scenario.write_text(json.dumps({"suite": "trixie", "racks": [{"trays": TRAYS}] * 2}))
    with running_lab(tmp_path, scenario) as racks:
        soak = Soak(racks, tmp_path, SEED, every=3)
        soak.wait_until_running()
        happened = set()
        for _again in range(ROUNDS):
            events = soak.round()
            print(f"{soak.number:4} {soak.source:7} {'; '.join(events)}", flush=True)
            happened.update(what.rpartition(": ")[2] for what in events)
        assert soak.changed > 0, "at least one event changed the site"
        assert happened >= EVENTS
        soak.repair_all()
