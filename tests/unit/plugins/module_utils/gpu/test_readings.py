# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import readings
from hypothesis import given
from hypothesis import strategies as st


def test_cliques_are_counted_up_to_five_of_them() -> None:
    assert (
        readings.tally_cliques("tray", [{5, 2}, {1}, set(), {2, 5}]) == "1 tray in none; 1 tray in 1; 2 trays in 2, 5"
    )
    assert readings.tally_cliques("GPU", [[each] for each in range(9)]).endswith("; 1 GPU in 4; 4 more")


PCI, UUID = "00000008:01:00.0", "9f3c1f52-0a57-4e70-8f3e-3a1c3f2d9b01"


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        *(("text", text, text) for text in ("a" * 256, "NVIDIA GB200 (a) ._:+/@#,-")),
        *(("text", text, None) for text in ("a" * 257, "{a}", "a\nb", "a[1]", "a$b", "é")),
        *(("serial", text, text) for text in ("1" * 64, "A-b_c.9")),
        *(("serial", text, None) for text in ("1" * 65, "a b")),
        *(("version", text, text) for text in ("580", "580.95.05", "1.2a.3.4.5.6")),
        *(("version", text, None) for text in ("1234567", "a.1", "1..2", "1.2.3.4.5.6.7", "1." + "2" * 17)),
        *(("uuid", text, UUID) for text in (UUID, UUID.upper(), f" {UUID}\n")),
        *(("uuid", text, None) for text in (UUID[:-1], f"{UUID}0", UUID.replace("-", ""), UUID.replace("f", "g"))),
        *(("pci_bus_id", text, PCI) for text in (PCI, "0008:01:00.0")),
        *(
            ("pci_bus_id", text, None)
            for text in ("008:01:00.0", f"0{PCI}", "0008:01:00", "0008:1:00.0", "0008:01:00.0.")
        ),
        *(("guid", text, "0x00000000000000ab") for text in ("0xAB", "ab")),
        *(("guid", text, None) for text in ("0x" + "1" * 17, "0xg", "0x")),
    ],
)
def test_the_form_of_a_value(field: str, value: str, expected: str | None) -> None:
    notes: list[Any] = []
    assert getattr(readings.Checker("NVML", notes), field)(field, value) == expected
    assert [note["code"] for note in notes] == ([] if expected else ["unusable_value"])


@given(st.text() | st.text("a{}' \0\n", max_size=500))
def test_a_quoted_value_is_short_and_has_no_template_syntax(value: str) -> None:
    plain = re.sub(r"[^A-Za-z0-9 ._:+/@#,()'=-]+", "?", value[:400]).strip()
    assert readings.quoted(value) == (f'"{plain}"' if len(plain) <= 160 else f'"{plain[:157]}..."')
