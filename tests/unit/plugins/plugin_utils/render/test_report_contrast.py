# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contrast of the report's colors by WCAG 2.2: 4.5 for text, 3 for marks. No color is the only sign of anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import report

CSS = Path(report.__file__).with_name("report.css").read_text()
TEXT, MARK = 4.5, 3.0


def _colors(text: str) -> dict[str, str]:
    found = re.findall(r"--([a-z-]+): #([0-9a-f]{3,6})\b", text)
    return {name: code if len(code) == 6 else "".join(2 * digit for digit in code) for name, code in found}


LIGHT = _colors(CSS.split("@media", maxsplit=1)[0])
DARK = {**LIGHT, **_colors(CSS.split("@media screen and (prefers-color-scheme: dark)")[1].split("\n}\n")[0])}
SCHEMES = {"light": LIGHT, "dark": DARK}
CLIQUES = [_colors(found[0]) for found in re.finditer(r"\.c\d \{[^}]*\}", CSS)]


def _parts(code: str) -> list[int]:
    return [int(code[start : start + 2], 16) for start in (0, 2, 4)]


def _mixed(top: str, share: float, ground: str) -> str:
    """color-mix(in srgb, top share, ground)."""
    pairs = zip(_parts(top), _parts(ground), strict=True)
    return "".join(f"{round(share * above + (1 - share) * below):02x}" for above, below in pairs)


def _contrast(one: str, other: str) -> float:
    def luminance(code: str) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in
                  (value / 255 for value in _parts(code))]  # fmt: skip
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_page_has_as_many_clique_colors_as_the_report_counts() -> None:
    assert len(CLIQUES) == report.HUES


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_and_marks_stand_out_from_the_page(scheme: str) -> None:
    colors = SCHEMES[scheme]
    needed = {**dict.fromkeys(("ink", "soft", "link", "bad", "warn"), TEXT), **dict.fromkeys(("good", "off"), MARK)}
    pairs = {(ink, ground): _contrast(colors[ink], colors[ground]) for ink in needed for ground in ("ground", "card")}
    assert [pair for pair, contrast in pairs.items() if contrast < needed[pair[0]]] == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("tint", [0.13, 0.34])
def test_a_tray_is_readable_on_the_color_of_its_clique(scheme: str, tint: float) -> None:
    colors = SCHEMES[scheme]
    for clique in CLIQUES:
        face = _mixed(clique["c"], tint, colors["face"])
        assert _contrast(colors["ink"], face) >= TEXT
        assert _contrast(clique["i"], clique["c"]) >= TEXT
        if tint == 0.13:
            assert min(_contrast(colors[mark], face) for mark in ("bad", "good")) >= MARK
