# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a product has: GPUs of a tray, NVLinks with their speed, trays of a rack. Of a product that is not here, what
most trays of the site with this product have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import names


class Product(NamedTuple):
    """links: of a GPU. speed: of a link, in MB/s. gpus: of a tray.

    trays: of a rack, which is one NVLink domain. below: how many of them stand below the switch trays; switches: how
    many those are.
    """

    links: int
    speed: int
    gpus: int
    trays: int
    below: int
    switches: int


# Links and speed as NVIDIA's health validation expects them (nvlink_bandwidth_count_speed), and as nvidia-smi nvlink
# prints them on a GB200 (NVIDIA/k8s-test-infra, issue 371); GPUs: NVIDIA's MNNVL user guide. Rubin and GH200 have no
# row: no capture has their links. An NVL72 rack has ten compute trays above its nine switch trays and eight below.
PRODUCTS = {"GB200": Product(18, 53125, 4, 18, 8, 9), "GB300": Product(18, 53125, 4, 18, 8, 9)}
"""Part of a GPU's name -> its product."""


def of(name: str) -> Product | None:
    """The product of a GPU with this name, None where it is not known."""
    return next((row for part, row in PRODUCTS.items() if part in name), None)


def switch_trays(trays: int) -> tuple[int, int]:
    """(compute trays below, number) of the switch trays in a rack with so many trays; none are drawn where unknown."""
    return next(((row.below, row.switches) for row in PRODUCTS.values() if row.trays == trays), (0, 0))


def fewer_gpus(observed: Mapping[str, Observation]) -> Iterator[tuple[str, list[str]]]:
    """(sentence, trays) for attached trays that lack as many GPUs of their product."""
    trays_of: dict[str, dict[int, list[str]]] = {}
    for name, tray in observed.items():
        if tray.identity and tray.product:
            trays_of.setdefault(tray.product, {}).setdefault(tray.gpu_count, []).append(name)
    for product, by_count in trays_of.items():
        known, common = of(product), max(by_count, key=lambda number: (len(by_count[number]), number))
        # Where several hosts share a tray, each has an equal part of its GPUs.
        expected = max(common, known.gpus if known and known.gpus % common else 0)
        for number, trays in by_count.items():
            if number < expected:
                what = f"{count(number, 'GPU')}, and a tray with {product} has {expected}"
                yield f"{names(trays)}: {what}; reboot, and replace the GPU if it stays away.", trays
