# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import driver


def test_the_channel_parameters_of_the_loaded_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PARAMETERS", str(tmp_path / "params"))
    assert driver.channel_parameters() == {"ImexChannelCount": None, "CreateImexChannel0": None}
    (tmp_path / "params").write_text(
        "ResmanDebugLevel: 4294967295\nImexChannelCount: 2048\nCreateImexChannel0: {{ 7 }}\n"
    )
    assert driver.channel_parameters() == {"ImexChannelCount": 2048, "CreateImexChannel0": None}
