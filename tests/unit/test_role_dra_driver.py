# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines that the playbook kubernetes ends with, and the values of the role dra_driver, which may have secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

CHECKOUT = Path(__file__).resolve().parents[2]
TASKS = CHECKOUT / "roles/dra_driver/tasks"
NEXT = " Next: x."
TOPOLOGY = [{"action": "create", "what": "Topology nvlink of kai.scheduler", "why": ""}]


@pytest.mark.core
@pytest.mark.parametrize(
    ("registered", "lines"),
    [
        (
            {"dra_driver_released": {"changed": False, "skipped": True}},
            [f"Kubernetes: no changes.{NEXT}"],
        ),
        (
            {"dra_driver_removed": {"changed": True}},
            [
                "Removed the DRA driver",
                f"Kubernetes: 1 change.{NEXT}",
            ],
        ),
        (
            {
                "dra_driver_applied": {"changed": True, "results": []},
                "dra_driver_released": {"changed": True},
                "k8s_topology_result": {"changed": True, "changes": TOPOLOGY * 40},
                "ansible_check_mode": True,
            },
            [
                "Applied the CRDs of the DRA driver",
                "Installed or upgraded the DRA driver",
                *["create Topology nvlink of kai.scheduler"] * 38,
                "and 2 more",
                f"Kubernetes: 42 changes (dry run).{NEXT}",
            ],
        ),
    ],
)
def test_the_last_task_shows_what_changed(registered: dict[str, Any], lines: list[str]) -> None:
    path = CHECKOUT / "playbooks" / "phases" / "kubernetes.yml"
    task = DataLoader().load_from_file(str(path), trusted_as_template=True)[-1]["tasks"][-1]
    variables = {"ansible_check_mode": False, "next_step": NEXT, **task["vars"], **registered}
    templar = Templar(DataLoader(), variables=variables)
    assert templar.template(task["ansible.builtin.debug"]["msg"]) == lines
    follows = ["imex"] if "dra_driver_removed" in registered else ["verify", "-e", "verify_kubeconfig=~/.kube/config"]
    assert templar.template(task["vars"]["dra_driver_next"]) == follows


def test_the_results_that_it_reads_are_registered() -> None:
    roles = [path for role in ("dra_driver", "k8s_topology") for path in CHECKOUT.glob(f"roles/{role}/tasks/*.yml")]
    registered = {
        task.get("register") for path in roles for task in yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    }
    book = yaml.load((CHECKOUT / "playbooks" / "phases" / "kubernetes.yml").read_text(), Loader=yaml.CSafeLoader)
    variables = book[-1]["tasks"][-1]["vars"]
    words = set(re.findall(r"\b(?:dra_driver|k8s_topology)_\w+", str(variables)))
    words -= variables.keys() | {"dra_driver_kubeconfig", "k8s_topology_kubeconfig"}
    assert words <= registered
    assert len(words) == 6


@pytest.mark.core
def test_a_text_in_the_values_has_its_own_characters() -> None:
    """For Helm, which reads YAML, two escapes of a character beyond 16 bits are two wrong ones."""
    tasks = DataLoader().load_from_file(str(TASKS / "preflight.yml"), trusted_as_template=True)
    content = next(task["ansible.builtin.copy"]["content"] for task in tasks if "ansible.builtin.copy" in task)
    values = {"podAnnotations": {"team": "\N{ROCKET}"}}
    written = Templar(DataLoader(), variables={"item": {"values": values}}).template(content)
    assert json.loads(written) == values
    assert "\N{ROCKET}" in written


@pytest.mark.parametrize("name", ["imex", "main"])
def test_chart_and_values_are_removed_at_every_end(name: str) -> None:
    """A play that follows imex.yml may be left out by its tags, or have no tray left."""
    block = next(task for task in DataLoader().load_from_file(str(TASKS / f"{name}.yml")) if "always" in task)
    (clean,) = block["always"]
    assert (clean["ansible.builtin.import_tasks"], clean.get("when")) == ("clean.yml", None)
