# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import packages
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.packages import Offer

MADISON = """\
nvidia-imex | 595.58.03-1ubuntu1 | https://vendor.example sbsa Packages
nvidia-imex | 580.173.02-1 | https://vendor.example sbsa Packages
nvidia-imex-580 | 580.173.02-0ubuntu0.24.04.1 | http://ports.example noble/multiverse arm64 Packages
nvidia-imex-580 | 1:580.95.05-1ubuntu1 | http://ports.example noble/multiverse arm64 Packages
nvidia-imex-595 | 595.71.05-0ubuntu0.24.04.1 | http://ports.example noble/multiverse arm64 Packages
"""
DRIVER = "580.173.02"


def test_packages_of_both_archives_and_names_are_chosen() -> None:
    offers = packages.parse_madison(MADISON)
    assert len(offers) == 5
    assert packages.choose(offers, DRIVER) == Offer("nvidia-imex", "580.173.02-1")
    # One that is installed under the other name is not replaced without need.
    assert packages.choose(offers, DRIVER, "nvidia-imex-580") == Offer("nvidia-imex-580", "580.173.02-0ubuntu0.24.04.1")
    assert packages.choose(offers, DRIVER, given="nvidia-imex-580").name == "nvidia-imex-580"
    # Of branch 595 the archives have two versions, and the name alone would take the wrong one.
    assert packages.choose(offers, "595.71.05") == Offer("nvidia-imex-595", "595.71.05-0ubuntu0.24.04.1")
    assert packages.choose(offers, "595.58.03") == Offer("nvidia-imex", "595.58.03-1ubuntu1")
    # Without epoch and package revision, and not by a part of the number.
    assert packages.choose(offers, "580.95.05") == Offer("nvidia-imex-580", "1:580.95.05-1ubuntu1")
    assert packages.choose(offers, "580.95.0") is None


def test_the_output_of_dnf_is_parsed() -> None:
    offers = packages.parse_repoquery("nvidia-imex 580.173.02-1\nnvidia-imex 595.58.03-1\n\nnoise\n")
    assert packages.choose(offers, DRIVER) == Offer("nvidia-imex", "580.173.02-1")
