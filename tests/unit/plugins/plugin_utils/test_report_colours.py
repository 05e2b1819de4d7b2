# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report's colours, computed: WCAG 2.2 contrast, and how far apart they are for who sees no red or no green."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import report

Colour = tuple[float, float, float]
"""Red, green and blue in linear light, from 0 to 1."""

CSS = Path(report.__file__).with_name("report.css").read_text()
# Machado, Oliveira and Fernandes 2009, severity 1, for linear light.
SIGHT = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}
TEXT, SHAPE = 4.5, 3.0


def _linear(code: str) -> Colour:
    code = "".join(2 * digit for digit in code) if len(code) == 3 else code
    red, green, blue = (int(code[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return _each(lambda part: part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4, (red, green, blue))


def _each(of: Callable[[float], float], colour: Colour) -> Colour:
    red, green, blue = map(of, colour)
    return red, green, blue


def _colours(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): #([0-9a-f]{3,6})\b", text))


LIGHT = _colours(CSS.split("@media", maxsplit=1)[0])
DARK = {**LIGHT, **_colours(CSS.split("@media screen and (prefers-color-scheme: dark)")[1].split("\n}\n")[0])}
SCHEMES = {"light": LIGHT, "dark": DARK}
CLIQUES = [_colours(found[0]) for found in re.finditer(r"\.c\d \{[^}]*\}", CSS)]


def _contrast(one: Colour, other: Colour) -> float:
    dark, light = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in (one, other))
    return (light + 0.05) / (dark + 0.05)


def _mixed(top: str, share: float, ground: str) -> Colour:
    """color-mix(in srgb, ...), which mixes what the codes say, not the light."""
    parts = [round(share * int(top[at : at + 2], 16) + (1 - share) * int(ground[at : at + 2], 16)) for at in (0, 2, 4)]
    return _linear("".join(f"{part:02x}" for part in parts))


def _lab(colour: Colour) -> Colour:
    """CIE L*a*b* under D65."""
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089

    def root(part: float) -> float:
        return part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116

    return 116 * root(y) - 16, 500 * (root(x) - root(y)), 200 * (root(y) - root(z))


def _seen(colour: Colour, sight: str) -> Colour:
    red, green, blue = (
        min(max(sum(part * share for part, share in zip(colour, row, strict=True)), 0.0), 1.0) for row in SIGHT[sight]
    )
    return red, green, blue


def test_the_page_has_as_many_clique_colours_as_the_report_counts() -> None:
    assert len(CLIQUES) == report.HUES
    assert set(LIGHT) == set(_colours(CSS.split("@media screen and (prefers-color-scheme: dark)")[1].split("\n}\n")[0]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("ground", ["ground", "card"])
@pytest.mark.parametrize(
    ("ink", "least"),
    [*((ink, TEXT) for ink in ("ink", "soft", "link", "bad", "warn")), *((ink, SHAPE) for ink in ("good", "off"))],
)
def test_text_and_marks_stand_out_from_the_page(scheme: str, ground: str, ink: str, least: float) -> None:
    colours = SCHEMES[scheme]
    assert _contrast(_linear(colours[ink]), _linear(colours[ground])) >= least


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("tint", [0.13, 0.34])
@pytest.mark.parametrize("clique", range(report.HUES))
def test_a_tray_can_be_read_on_the_colour_of_its_clique(scheme: str, tint: float, clique: int) -> None:
    colours, own = SCHEMES[scheme], CLIQUES[clique]
    face = _mixed(own["c"], tint, (colours["face"] * 2)[:6] if len(colours["face"]) == 3 else colours["face"])
    assert _contrast(_linear(colours["ink"]), face) >= TEXT
    assert _contrast(_linear(own["i"]), _linear(own["c"])) >= TEXT
    if tint == 0.13:
        for mark in ("bad", "good"):
            assert _contrast(_linear(colours[mark]), face) >= SHAPE


@pytest.mark.parametrize("sight", SIGHT)
def test_neighbouring_cliques_differ_for_every_eye(sight: str) -> None:
    seen = [_lab(_seen(_linear(clique["c"]), sight)) for clique in CLIQUES]
    for one, other in itertools.pairwise([*seen, seen[0]]):
        assert math.dist(one, other) >= 20


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("sight", SIGHT)
def test_bad_and_good_differ_for_every_eye(scheme: str, sight: str) -> None:
    good, bad = (_lab(_seen(_linear(SCHEMES[scheme][word]), sight)) for word in ("good", "bad"))
    assert math.dist(good, bad) >= 20
