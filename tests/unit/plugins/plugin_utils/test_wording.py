# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of hosts in messages."""

from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x07\u202e", "[31mred"),
        ("two\r\nlines.", "two lines"),
        ("{{ lookup('pipe', 'id') }} {% x %} {# y #}", "{ { lookup('pipe', 'id') }} { % x %} { # y #}"),
        ("x" * 300, "x" * 197 + "..."),
        (None, ""),
    ],
)
def test_a_text_of_a_host_is_one_printable_line_without_a_template(text: object, shown: str) -> None:
    assert sentence(text).rstrip(".") == shown.rstrip(".")
