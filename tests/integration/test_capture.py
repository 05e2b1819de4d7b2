# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A support bundle of a site, and a lab that answers as that site did."""

from __future__ import annotations

import json
import re
import stat
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from . import pages
from .commands import ansible
from .conftest import running_lab

sys.path.insert(0, str(pages.CHECKOUT / "tests" / "lab"))
from nvlab import bundle

pytestmark = [pytest.mark.lab, pytest.mark.long]
FACTS = ("backend", "driver_version", "attached", "clique_id", "slot_number", "tray_index", "host_id", "gpu_count")
OF_GPU = ("index", "name", "pci_bus_id", "module_id", "mig_enabled", "recovery_action")


class Captured(NamedTuple):
    folder: Path
    checked: str
    printed: str
    facts: dict[str, dict[str, Any]]
    serial: str

    @property
    def file(self) -> Path:
        return self.folder / "site.tar.gz"


def facts_of(inventory: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Tray -> backend -> the facts that the module reads there."""
    found: dict[str, dict[str, Any]] = {}
    for backend in ("nvml", "nvidia_smi"):
        tree = folder / backend
        options = ("-m", "rackscale.nvlink.fabric_facts", "-a", f"backend={backend}", "--tree", tree)
        ansible("ansible", "-i", inventory, "trays", *options, check=False)
        for file in sorted(tree.iterdir()):
            answer = json.loads(file.read_text())
            if "ansible_facts" in answer:
                found.setdefault(file.name, {})[backend] = answer["ansible_facts"]["nvlink_fabric"]
    return found


def comparable(facts: dict[str, Any]) -> dict[str, Any]:
    """What anonymising does not change."""
    gpus = [
        {**{key: gpu[key] for key in OF_GPU}, "fabric": {**gpu["fabric"], "cluster_uuid": None}}
        for gpu in facts["gpus"]
    ]
    codes = [found["code"] for found in facts["findings"]]
    return {**{key: facts[key] for key in FACTS}, "gpus": gpus, "codes": codes}


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Four trays in two cliques: one with a lost GPU, one with the NVML of a newer driver, one without power."""
    folder = tmp_path_factory.mktemp("site")
    with running_lab(folder) as racks:
        racks.set("r01t02", "gpu1.lost=true", "health=unhealthy")
        racks.set("r01t03", "nvml=only_v4")
        racks.stop("r01t04")
        file = f"capture_file={folder / 'site.tar.gz'}"
        run = ("-i", racks.inventory, "rackscale.nvlink.doctor", "--tags", "capture", "-e", file)
        checked = ansible("ansible-playbook", *run, "--check").stdout
        assert not (folder / "site.tar.gz").exists()
        printed = ansible("ansible-playbook", *run).stdout
        facts = facts_of(racks.inventory, tmp_path_factory.mktemp("facts"))
        serial = facts["r01t01"]["nvml"]["chassis_serial"]
    return Captured(folder, checked, printed, facts, serial)


def test_a_bundle_names_all_hosts_and_holds_no_name_of_the_site(captured: Captured) -> None:
    mapping = captured.folder / "site.mapping.json"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (captured.file, mapping)] == [0o600, 0o600]
    table = json.loads(mapping.read_text())
    files = bundle.load(captured.file)
    whole = "\n".join([*files, *files.values()])
    uuids = {gpu["uuid"][4:] for backends in captured.facts.values() for gpu in backends["nvml"]["gpus"] if gpu["uuid"]}
    assert uuids <= set(table["UUIDs"])
    for original in (*uuids, captured.serial, "198.51.100.", "r01t", "nvlink-lab"):
        assert original not in whole
    trays = json.loads(files["bundle.json"])["trays"]
    names = [table["names"][f"r01t0{number}"] for number in (1, 2, 3, 4)]
    assert [trays[name]["problem"] for name in names] == [None, None, None, "unreachable"]
    codes = [row["code"] for row in json.loads(files[f"trays/{names[1]}/facts.json"])["findings"]]
    assert "gpu_lost" in codes
    [config] = [text for path, text in files.items() if re.fullmatch("slurm/[a-z]+/config.txt", path)]
    assert re.search(r"SelectType +=\s*select/cons_tres", config)
    assert "SlurmUser" not in config
    # Shown to the user before it leaves, and in check mode, too.
    for printed, done in ((captured.printed, "is"), (captured.checked, "would be")):
        assert f"The bundle {done} {captured.file}" in printed
        assert "Without an answer: r01t04; the bundle names them." in printed
        assert re.search(r"Replaced: UUIDs \(\d+\), ", printed)


def test_a_lab_from_a_bundle_answers_as_its_trays_did(captured: Captured, tmp_path: Path) -> None:
    files = bundle.load(captured.file)
    names = json.loads((captured.folder / "site.mapping.json").read_text())["names"]
    with running_lab(tmp_path, captured.file, option="--from") as racks:
        facts = facts_of(racks.inventory, tmp_path / "facts")
        for tray, backends in captured.facts.items():
            for backend, expected in backends.items():
                assert comparable(facts[names[tray]][backend]) == comparable(expected)
        printed = racks.exec(names["r01t02"], "nvidia-smi", "-q", "-x").stdout
        assert printed == files[f"trays/{names['r01t02']}/nvidia-smi.xml"]
        hosts = racks.status()["hosts"]
        assert not hosts[names["r01t04"]]["running"]
