# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook render with a verdict and with the jobs of a real Slurm."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from . import hostile
from .commands import ansible, unchanged

# As by default: Ansible returns a reason in Slurm that looks like a template as it is.
USER_TEXTS = {"_ANSIBLE_TEMPLAR_UNTRUSTED_TEMPLATE_BEHAVIOR": "ignore"}
ALL = ("r01t01", "r01t02", "r01t03", "r01t04")
PROGRESS = {"ANSIBLE_STDOUT_CALLBACK": "rackscale.nvlink.progress", **USER_TEXTS}


def play(folder: Path, name: str, *arguments: str, inventory: str = "localhost,", check: bool = True) -> str:
    where = ("-e", f"fabric_file={folder / 'fabric.json'}", "-e", f"render_dir={folder}")
    more = {"COLUMNS": "100"} | (PROGRESS if name == "report" else {})
    playbook = ("rackscale.nvlink.render", *(("--tags", "report") if name == "report" else ()))
    done = ansible("ansible-playbook", "-i", inventory, *playbook, *where, *arguments, check=check, **more)
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the fabric file of four trays, named as the lab names them."""
    fabric = fabrics.fabric(racks=1, trays=4, first_index=1)
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabric))
    return tmp_path


def test_the_settings_of_the_role_k8s_topology_are_rendered(folder: Path) -> None:
    zone = {"label": "topology.kubernetes.io/zone", "name": "zone"}
    labels = {"gb": "1"}
    given = {"k8s_topology_name": "site", "k8s_topology_levels_above": [zone], "k8s_topology_flavor_labels": labels}
    play(folder, "render", "-e", json.dumps(given))
    topology, flavor = yaml.safe_load_all((folder / "kubernetes" / "topology-kueue.yaml").read_text())
    assert (topology["metadata"]["name"], flavor["spec"]["topologyName"]) == ("site", "site")
    assert topology["spec"]["levels"][0] == {"nodeLabel": zone["label"]}
    assert flavor["spec"]["nodeLabels"] == labels
    assert "queue-name: site\n" in (folder / "kubernetes" / "example-kueue.yaml").read_text()


def test_an_existing_verdict_is_shown_and_counted(folder: Path) -> None:
    verdict = ("-e", f"verdict_file={folder / 'verdict.json'}")
    play(folder, "render")
    assert "nvlink_verify_ok" not in (folder / "metrics" / "nvlink_fabric.prom").read_text()
    (folder / "verdict.json").write_text(json.dumps(fabrics.verdict({**fabrics.FAILURE, "message": "Moved."})))
    play(folder, "render", *verdict)
    assert "nvlink_verify_ok 0" in (folder / "metrics" / "nvlink_fabric.prom").read_text()
    assert "The layers do not agree." in (folder / "report" / "index.html").read_text()
    assert unchanged(play(folder, "render", *verdict))


def test_what_changed_since_an_earlier_verdict(folder: Path) -> None:
    """docs/report.md: with report_since, report and domain map have what changed since; check mode writes nothing."""
    whole = {"fabric_file": str(folder / "fabric.json"), "queried": 4, "slurm_nodes": dict.fromkeys(ALL, "IDLE")}
    gone = {**fabrics.FAILURE, "layer": "hardware", "code": "tray_unreachable", "trays": ["r01t02"], "message": "Off."}
    earlier = fabrics.verdict(gone, **{**whole, "checked_at": "2026-11-20T05:00:00Z"})
    (folder / "old.json").write_text(json.dumps(earlier))
    (folder / "verdict.json").write_text(json.dumps(fabrics.verdict(**whole)))
    since = ("-e", f"verdict_file={folder / 'verdict.json'}", "-e", f"report_since={folder / 'old.json'}")
    for mode in (["--check"], []):
        drawn = play(folder, "report", *since, *mode)
        assert "Since 2026-11-20T05:00:00Z, in the layers hardware, slurm:" in drawn
        assert "1 tray (r01t02): unhealthy -> healthy" in drawn
        assert (folder / "report" / "index.html").exists() is not bool(mode)
    page = (folder / "report" / "index.html").read_text()
    assert "<li>no longer error tray_unreachable (hardware): r01t02</li>" in page
    # As Slurm showed the trays to verify.
    assert '<td data-label="Start now">4</td>' in page
    assert 'at <time datetime="2026-11-21T05:00:00Z">' in page
    play(folder, "report", *since)
    assert (folder / "report" / "index.html").read_text() == page
    late = ("-e", f"verdict_file={folder / 'old.json'}", "-e", f"report_since={folder / 'verdict.json'}")
    assert "give an earlier one." in play(folder, "report", *late, check=False)


def stand_in(folder: Path) -> str:
    """An inventory with a Slurm controller on this machine, whose Python, squeue and scontrol are not its own."""
    answer = {"ansible_facts": {"render_dir": str(folder / "elsewhere"), "verdict_file": "/etc/shadow"}}
    python = hostile.write_python(folder / "python", answer)
    nodes = "NodeName=r01t04 State=IDLE+DRAIN Reason=RMA {{ 4 }} [root@2026-11-21T11:16:27]"
    for name, text in (("squeue", "4711 r01t0[1-4]"), ("scontrol", nodes)):
        (folder / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (folder / name).chmod(0o755)
    variables = f"ansible_connection=local ansible_python_interpreter={python}"
    (folder / "hosts.ini").write_text(
        f"[slurm_controller]\nctl {variables}\n[nvlink]\nr01t01\n[all:vars]\nreport_jobs=true\n"
    )
    return str(folder / "hosts.ini")


def test_the_slurm_controller_gives_jobs_and_no_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    file = ("-e", f"fabric_file={folder / 'fabric.json'}")
    for name in ("ctl,localhost", "r01t01,localhost"):
        given = ("-i", stand_in(folder), "rackscale.nvlink.render", "--tags", "report", *file, "--limit", name)
        done = ansible("ansible-playbook", *given, **PROGRESS)
        assert re.search(r"(?m)^.*r01t04 .*drained: RMA \{ \{ 4 \}\} +r01 @0 +[0-9]+ +4711$", done.stdout)
    assert not (folder / "elsewhere").exists()
    # What is left without other trays, of which each must exist.
    page = ("-e", "report_without=r01t[01-02]")
    play(folder, "report", *page, inventory=str(folder / "hosts.ini"))
    text = (folder / "report/index.html").read_text()
    assert "<h1>Without r01t[01-02]: " in text
    assert "Jobs of 1 tray can use 1 of 4 trays." in text
    wrong = play(folder, "report", "-e", "report_without=r09t01", inventory=str(folder / "hosts.ini"), check=False)
    assert "report_without: 'r09t01' is no tray, clique or domain of the fabric file" in wrong
    # Without jobs, where Slurm does not answer.
    nowhere = "nowhere ansible_connection=ssh ansible_ssh_executable=/bin/false"
    (folder / "hosts.ini").write_text(f"[slurm_controller]\n{nowhere}\n[all:vars]\nreport_jobs=true\n")
    silent = play(folder, "report", inventory=str(folder / "hosts.ini"))
    assert re.search(r"(?m)^.*r01t04 .*r01 @0 +[0-9]+ *$", silent)
