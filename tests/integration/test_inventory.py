# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin as users meet it: through ansible-inventory and a play."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .commands import ansible

CHECKOUT = Path(__file__).resolve().parents[2]
ACCEPTED = "plugin: rackscale.nvlink.fabric\nsources: [fabric_file]\nfabric_file: fabric.json\n"
CONSTRUCTED = f"""{ACCEPTED}
strict: true
compose:
  ansible_host: nvlink_imex_address | default(inventory_hostname, true)
groups:
  lower_half: nvlink_tray_index is not none and nvlink_tray_index < 2
keyed_groups:
  - key: nvlink_domain_name
    prefix: rack
    default_value: none
    parent_group: racks
"""
R02B = {"r02t03", "r02t04"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The fabric file of two racks, the second one split, and its state, in which a tray has no place."""
    fabric = fabrics.fabric(racks=2, trays=4)
    fabric.trays["r02t03"]["imex_address"] = None
    fabric.trays["r02t03"]["slurm_node"] = "gb2-3"
    hostile = {"code": "x", "severity": "warning", "message": "{{ lookup('pipe', 'touch hacked') }}"}
    spare = {"state": "unplaced", "health": "unknown", "tray_index": None, "gpu_count": 4, "findings": [hostile]}
    state = fabrics.state(fabric, r01t02={"health": "unhealthy"}, r02t04={"state": "stale"}, spare01=spare)
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabric))
    (tmp_path / "fabric.state.json").write_bytes(fabric_file.serialise(state))
    return tmp_path


@pytest.mark.core
def test_ansible_inventory_lists_groups_and_variables_with_those_of_the_site(site: Path) -> None:
    (site / "constructed.nvlink.yml").write_text(CONSTRUCTED)
    done = ansible("ansible-inventory", "-i", site / "constructed.nvlink.yml", "--list", "--export")
    assert not done.stderr
    found = json.loads(done.stdout)
    hosts = {name: set(row["hosts"]) for name, row in found.items() if row.get("hosts")}
    lower, upper = ({f"r01t0{tray}" for tray in trays} for trays in ((1, 2), (3, 4)))
    assert hosts == {
        # Without spare01, whose name nobody has reviewed.
        "nvlink": {*lower, *upper, "r02t01", "r02t02", *R02B},
        "nvlink_clique_r01": {*lower, *upper},
        "nvlink_clique_r02a": {"r02t01", "r02t02"},
        "nvlink_clique_r02b": R02B,
        "nvlink_unplaced": {"spare01"},
        "nvlink_unhealthy": {"r01t02"},
        "nvlink_stale": {"r02t04"},
        "lower_half": {*lower, "r02t01", "r02t02"},
        "rack_r01": {*lower, *upper},
        "rack_r02": {"r02t01", "r02t02", *R02B},
        "rack_none": {"spare01"},
    }
    assert found["nvlink_domain_r02"]["children"] == ["nvlink_clique_r02a", "nvlink_clique_r02b"]
    assert found["racks"]["children"] == ["rack_r01", "rack_r02", "rack_none"]
    assert found["all"]["vars"] == {"nvlink_fabric_file": str(site / "fabric.json")}
    # What the trays of a clique share stands on its group.
    shared = found["nvlink_clique_r02b"]["vars"]
    assert shared == {
        "nvlink_block": "r02b",
        "nvlink_clique": "00000002-1111-4222-8333-444444444444.2",
        "nvlink_clique_id": 2,
        "nvlink_clique_name": "r02b",
        "nvlink_cluster_uuid": "00000002-1111-4222-8333-444444444444",
        "nvlink_domain_name": "r02",
    }
    assert found["nvlink_unplaced"]["vars"] == dict.fromkeys(shared)
    assert found["_meta"]["hostvars"]["r02t03"] == {
        "ansible_host": {"__ansible_unsafe": "r02t03"},
        "nvlink_gpu_count": 4,
        "nvlink_health": "healthy",
        "nvlink_imex_address": None,
        "nvlink_kubernetes_node": "r02t03",
        "nvlink_slurm_node": "gb2-3",
        "nvlink_state": "present",
        "nvlink_tray_index": 2,
    }


@pytest.mark.core
def test_a_play_sees_flat_variables_and_templates_nothing(site: Path) -> None:
    message = "{{ inventory_hostname }}|{{ nvlink_clique }}|{{ nvlink_slurm_node }}"
    hosts = "nvlink_unplaced:nvlink_clique_r02b"
    play = [{"hosts": hosts, "gather_facts": False, "tasks": [{"debug": {"msg": message}}]}]
    (site / "play.yml").write_text(json.dumps(play))
    (site / "accepted.nvlink.yml").write_text(ACCEPTED)
    done = ansible("ansible-playbook", "-i", site / "accepted.nvlink.yml", site / "play.yml")
    reported = {line.split('"')[3] for line in done.stdout.splitlines() if '"msg"' in line}
    assert reported == {
        "spare01||spare01",
        "r02t03|00000002-1111-4222-8333-444444444444.2|gb2-3",
        "r02t04|00000002-1111-4222-8333-444444444444.2|r02t04",
    }


@pytest.mark.core
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sources: [fabric_file\n", "YAML parsing failed"),
        ("sources: [fabric_file]\nfabric_file: new.json\n", "{folder}/new.json: schema_version is 2"),
    ],
)
def test_bad_input_is_one_sentence_and_fails(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "bad.nvlink.yml").write_text(f"plugin: rackscale.nvlink.fabric\n{text}")
    (tmp_path / "new.json").write_text('{"schema_version": 2}')
    done = ansible("ansible-inventory", "-i", tmp_path / "bad.nvlink.yml", "--list", check=False, COLUMNS="1000")
    assert done.returncode != 0
    assert sentence.format(folder=tmp_path) in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"bad.nvlink.yml", "new.json"}


def addresses(folder: Path) -> dict[str, str | None]:
    done = ansible("ansible-inventory", "-i", folder, "--list", "--export", COLUMNS="1000")
    hosts = json.loads(done.stdout)["_meta"]["hostvars"]
    assert (
        "ansible_host of hosts of another inventory is not taken from a live source; set it in that inventory: ctl,"
        " head\n" in done.stderr
    )
    return {name: row.get("ansible_host") for name, row in hosts.items()}


def test_a_live_source_moves_no_host_of_another_source_read_before_or_after(tmp_path: Path) -> None:
    clique, names = "00000002-1111-4222-8333-444444444444.2", ("ctl", "head", "r01t01", "r01t02")
    rows = [{"name": name, "clique": clique, "address": f"192.0.2.{number}"} for number, name in enumerate(names)]
    (tmp_path / "trays.json").write_text(json.dumps(rows))
    fields = {"name": "name", "clique": "clique", "ansible_host": "address"}
    rest = {"file": str(tmp_path / "trays.json"), "trays": "@", "fields": fields}
    for file in ("cmdb.nvlink.yml", "zz.nvlink.yml"):
        folder = tmp_path / file[:2]
        folder.mkdir()
        (folder / file).write_text(json.dumps({"plugin": "rackscale.nvlink.fabric", "sources": ["rest"], "rest": rest}))
        trays = {"hosts": {"ctl": {}, "r01t01": {"ansible_host": "own"}}}
        (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"head": {}}}, "trays": trays}))
        # The last one is of the service alone, as all are before the first fabric file.
        assert addresses(folder) == {"ctl": None, "head": None, "r01t01": "own", "r01t02": "192.0.2.3"}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("head_nodes", "tray head_nodes has the name of a group of the inventory; rename it there"),
        # Refused by the inventory plugin, so in any run of Ansible.
        ("slurm_controller", "trays.slurm_controller is the name of the controller or of a group for Ansible"),
    ],
)
def test_a_tray_takes_no_place_of_a_group_that_is_read_after_it(site: Path, name: str, sentence: str) -> None:
    document = json.loads((site / "fabric.json").read_text())
    document["trays"][name] = {**document["trays"].pop("r01t01"), "ansible_host": "192.0.2.66"}
    (site / "fabric.json").write_text(json.dumps(document))
    folder = site / "inventory"
    folder.mkdir()
    (folder / "cluster.nvlink.yml").write_text(ACCEPTED.replace("fabric.json", "../fabric.json"))
    (folder / "hosts.yml").write_text(json.dumps({name: {"hosts": {"ctl": {"ansible_host": "192.0.2.5"}}}}))
    for playbook in ("doctor", "verify"):
        command = (
            "ansible-playbook",
            "-i",
            folder,
            f"rackscale.nvlink.{playbook}",
            "-e",
            f"slurm_controller_hosts={name}",
        )
        done = ansible(*command, check=False, COLUMNS="1000")
        assert done.returncode != 0
        assert f"{site / 'fabric.json'}: {sentence}" in done.stdout + done.stderr
        assert "192.0.2.66" not in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("example", sorted(path.name for path in (CHECKOUT / "inventory").glob("*.nvlink.yml")))
def test_the_examples_can_be_listed(site: Path, example: str) -> None:
    shutil.copytree(CHECKOUT / "inventory", site, dirs_exist_ok=True)
    done = ansible("ansible-inventory", "-i", site / example, "--graph", "nvlink")
    assert "r01t01" in done.stdout
