# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurm_controller_hosts names a group, a host or a pattern, for those that delegate to the controller too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

CHECKOUT = Path(__file__).resolve().parents[2]
GROUPS = {"all": ["ctl", "ctl2", "r01t01"], "slurm_controller": ["ctl2"], "controllers": ["ctl", "ctl2"]}
NO_SLURM = {"all": ["r01t01"]}
CASES = [
    ({"groups": GROUPS}, ["ctl2"]),
    ({"groups": NO_SLURM}, []),
    ({"groups": GROUPS, "slurm_controller_hosts": "controllers"}, ["ctl", "ctl2"]),
    # Not of a group, and no tray would be drained without it.
    ({"groups": GROUPS, "slurm_controller_hosts": "ctl"}, ["ctl"]),
    ({"groups": GROUPS, "slurm_controller_hosts": "controllers:!slurm_controller"}, ["ctl"]),
    ({"groups": GROUPS, "slurm_controller_hosts": "nobody"}, []),
]


def expressions() -> dict[str, str]:
    loader = DataLoader()

    def read(path: str) -> Any:
        return loader.load_from_file(str(CHECKOUT / path))

    resume, doctor = (read(f"playbooks/{name}.yml") for name in ("resume", "doctor"))
    return {
        "verify": read("roles/verify/defaults/main.yml")["verify_slurm_controllers"],
        "rollout": read("roles/rollout/defaults/main.yml")["rollout_slurm_controller"],
        "resume": next(play["vars"]["resume_controllers"] for play in resume if "resume_controllers" in str(play)),
        "doctor": doctor[1]["vars"]["doctor_controllers"],
    }


@pytest.mark.parametrize(("variables", "hosts"), CASES)
@pytest.mark.parametrize("user", ["verify", "rollout", "resume", "doctor"])
def test_the_controllers(user: str, variables: dict[str, Any], hosts: list[str]) -> None:
    # Tests have no collection ansible.builtin.
    text = expressions()[user].replace("ansible.builtin.", "")
    found = Templar(DataLoader(), variables=variables).template(trust_as_template(text))
    assert found == ((hosts or [""])[0] if user == "rollout" else hosts)
