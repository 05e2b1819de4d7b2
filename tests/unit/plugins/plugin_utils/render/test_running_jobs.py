# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.errors import RenderError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.running_jobs import (
    running_jobs,
)


def test_each_node_has_its_jobs_in_order() -> None:
    lines = ["4711 r01t[01-02],r02t01", "", "4712_3 r01t02"]
    assert running_jobs(lines) == {"r01t01": ("4711",), "r01t02": ("4711", "4712_3"), "r02t01": ("4711",)}
    assert running_jobs([]) == {}


@pytest.mark.parametrize("line", ["4711", "4711 r01t[01-", "squeue: error: x[", "1 r[1-999999]"])
def test_a_line_in_another_format_is_quoted_in_the_error(line: str) -> None:
    with pytest.raises(RenderError, match="squeue: the line"):
        running_jobs([line])
