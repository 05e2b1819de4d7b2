# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sick GPUs, links and fabrics, for test_sick_systems.py."""

from __future__ import annotations

from .sick_system import A, Situation, System


def in_progress(system: System) -> None:
    def unregister(facts: dict) -> None:  # type: ignore[type-arg]
        for gpu in facts["gpus"]:
            gpu["fabric"].update(state="in_progress")

    system.read(A[0], unregister)


SITUATIONS = [
    Situation(
        "no_registration",
        "dstack issue 1167",
        "CUDA calls hang because the fabric manager never registered the GPUs",
        in_progress,
        "error",
        "fabric_in_progress",
        "r01t01: GPU 0",
        "nv show sdn partition",
    ),
    Situation(
        "fell_off_the_bus",
        "open-gpu-kernel-modules issue 971",
        "a GPU fell off the bus",
        lambda system: system.read(A[0], lost=[2]),
        "error",
        "gpu_lost",
        "r01t01: GPU 2 is lost, it has fallen off the bus",
        "scontrol reboot ASAP nextstate=RESUME r01t01",
    ),
]
