# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvml
from ansible_collections.rackscale.nvlink.tests.lab.nvml import standin_text
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """standin(facts, fault, lost, ...): from then on NVML answers for that tray, by the file that it returns."""
    file = tmp_path / "gpus"
    monkeypatch.setattr(nvml, "LIBRARY", str(trays.library()))
    monkeypatch.setenv("NVLINK_STANDIN_GPUS", str(file))

    def write(facts: dict[str, Any], *arguments: Any, **options: Any) -> Path:
        file.write_text(standin_text.standin_text(facts, *arguments, **options))
        return file

    return write
