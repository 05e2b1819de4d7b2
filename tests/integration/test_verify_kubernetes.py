# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify a site that has Kubernetes alone, on a real API server; test_verify.py has each fault of that layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from nvlab import scenario
from nvlab.kubernetes import nodes, plane
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible
from .conftest import OLDEST_KUBERNETES
from .workloads import FOUR

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long]


def write_fabric(file: Path, texts: dict[str, str]) -> None:
    """Four trays in two cliques. texts: tray -> the text of its clique."""
    made = fabrics.fabric(racks=1, trays=4, split=(1,))
    made.domains["r01"]["cluster_uuid"] = texts["r01t01"].partition(".")[0]
    assert {tray: made.clique_text(row["clique"]) for tray, row in made.trays.items()} == texts
    file.write_bytes(fabric_file.serialise(made))


def verify(kubeconfig: Path, folder: Path, **more: Any) -> tuple[list[tuple[str, str, list[str]]], dict[str, Any]]:
    """The failures of the playbook verify for folder/fabric.json, which queries no tray; and the verdict."""
    given = {
        "fabric_file": str(folder / "fabric.json"),
        "verdict_file": str(folder / "verdict.json"),
        "verify_kubeconfig": str(kubeconfig),
        **more,
    }
    command = ("-i", "localhost,", "rackscale.nvlink.verify", "--tags", "quick", "-e", json.dumps(given))
    local = json.dumps({"ansible_connection": "local"})
    done = ansible("ansible-playbook", *command, "-e", local, check=False)
    assert (folder / "verdict.json").exists(), done.stdout + done.stderr
    verdict = json.loads((folder / "verdict.json").read_text())
    assert (done.returncode == 0) is verdict["ok"], done.stdout + done.stderr
    return [(row["layer"], row["code"], row["trays"]) for row in verdict["failures"]], verdict


@OLDEST_KUBERNETES
def test_a_site_with_kubernetes_alone_is_verified_by_it(control_plane: ControlPlane, tmp_path: Path) -> None:
    plane.add_trays(control_plane, scenario.parse(FOUR))
    known = control_plane.api().items(nodes.PATH)
    texts = {node["metadata"]["name"]: node["metadata"]["labels"][nodes.CLIQUE] for node in known}
    write_fabric(tmp_path / "fabric.json", texts)
    found, verdict = verify(control_plane.kubeconfig, tmp_path)
    assert found == []
    checked = {layer for layer, state in verdict["layers"].items() if state == "checked"}
    assert checked == {"fabric_file", "kubernetes"}

    control_plane.kubectl("label", "node", "r01t03", "--overwrite", f"{nodes.CLIQUE}={texts['r01t01']}")
    found, _verdict = verify(control_plane.kubeconfig, tmp_path)
    assert found == [("kubernetes", "k8s_clique_label_wrong", ["r01t03"])]

    # The administrator's kubeconfig, with a closed port.
    document = yaml.safe_load(control_plane.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "unreachable.yml").write_text(yaml.safe_dump(document))
    found, _verdict = verify(tmp_path / "unreachable.yml", tmp_path, verify_timeout=3)
    assert found == [("kubernetes", "k8s_unreachable", [])]
