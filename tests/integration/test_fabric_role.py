# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role fabric on trays of the lab, where the driver's daemons are units that sleep."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from .commands import ansible
from .conftest import RunningLab, running_lab

pytestmark = [pytest.mark.lab, pytest.mark.long]

DAEMONS = ("nvidia-persistenced", "nvidia-fabricmanager")
UNIT = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
PARAMS = "/root/params"


class Trays:
    """The lab's first tray as an operator's play addresses it."""

    def __init__(self, racks: RunningLab, folder: Path) -> None:
        self.racks = racks
        self.play = folder / "play.yml"
        self.play.write_text(
            json.dumps([{"hosts": "r01t01", "gather_facts": False, "roles": ["rackscale.nvlink.fabric"]}])
        )

    def role(self, *options: str, check: bool = True, **variables: Any) -> subprocess.CompletedProcess[str]:
        given = {"fabric_driver_params_file": PARAMS, **variables}
        command = ["ansible-playbook", "-i", str(self.racks.inventory), str(self.play), "-e", json.dumps(given)]
        return ansible(*command, *options, check=check)

    def sh(self, script: str) -> str:
        return self.racks.exec("r01t01", "sh", "-c", script, check=False).stdout

    def daemons(self) -> list[str]:
        """Enabled and active, for each daemon."""
        return [
            " ".join(self.sh(f"systemctl is-enabled {name}; systemctl is-active {name}").split()) for name in DAEMONS
        ]


def changed(done: subprocess.CompletedProcess[str]) -> int:
    return int(re.findall(r"changed=(\d+)", done.stdout)[-1])


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Trays of Debian 13, whose image has pip and what Ansible's module needs of it."""
    with running_lab(tmp_path_factory.mktemp("lab"), "four.yml") as racks:
        yield racks


@pytest.fixture
def trays(racks: RunningLab, tmp_path: Path) -> Trays:
    trays = Trays(racks, tmp_path)
    trays.sh(f"printf 'ImexChannelCount: 2048\\nCreateImexChannel0: 0\\n' >{PARAMS}")
    return trays


def test_a_tray_without_daemons_needs_nothing(trays: Trays) -> None:
    assert changed(trays.role()) == 0


def test_the_daemons_are_configured_as_on_a_tray(trays: Trays) -> None:
    units = "/etc/systemd/system"
    for name in DAEMONS:
        trays.sh(f"printf '{UNIT}' >{units}/{name}.service")
    trays.sh(f"systemctl daemon-reload; systemctl enable --now {DAEMONS[1]}")
    before = trays.daemons()
    assert before == ["disabled inactive", "enabled active"]

    assert changed(trays.role("--check")) == 2
    assert trays.daemons() == before
    assert changed(trays.role()) == 2
    assert trays.daemons() == ["enabled active", "disabled inactive"]
    assert changed(trays.role()) == 0


def test_the_fabric_manager_keeps_running_where_no_gpu_reports_a_domain(trays: Trays) -> None:
    """As on an HGX system, whose switches the fabric manager manages."""
    trays.racks.set("r01t01", "state=not_supported")
    trays.sh(f"systemctl enable --now {DAEMONS[1]}")
    try:
        assert changed(trays.role()) == 0
        assert trays.daemons()[1] == "enabled active"
        assert changed(trays.role(fabric_fabricmanager="off")) == 1
    finally:
        trays.racks.set("r01t01", "state=completed")


def test_another_driver_than_required_fails(trays: Trays) -> None:
    required = {"fabric_driver_version": "595.58.03", "fabric_driver_parameters": {"ImexChannelCount": 4096}}
    done = trays.role(check=False, **required)
    assert done.returncode != 0
    assert "r01t01: the loaded driver is 580." in done.stdout
    assert "fabric_driver_version is 595.58.03" in done.stdout
    assert "missing of fabric_driver_parameters: ImexChannelCount: 4096" in done.stdout
    assert changed(trays.role(fabric_driver_parameters={"ImexChannelCount": 2048})) == 0


def test_nvidias_bindings_are_installed_for_the_trays_python(trays: Trays, tmp_path: Path) -> None:
    """From a wheel in a path, as an air-gapped site has it: this environment's own bindings, packed again."""
    wheel = tmp_path / "nvidia_ml_py-13.580.126-py3-none-any.whl"
    about = "nvidia_ml_py-13.580.126.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(pynvml.__file__, "pynvml.py")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: nvidia-ml-py\nVersion: 13.580.126\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", f"pynvml.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    copy = f"src={wheel} dest=/root/{wheel.name}"
    ansible("ansible", "-i", trays.racks.inventory, "r01t01", "-m", "ansible.builtin.copy", "-a", copy)
    expected = {"fabric_nvidia_ml_py": f"/root/{wheel.name}"}
    assert [changed(trays.role(**expected)), changed(trays.role(**expected))] == [1, 0]
    assert trays.sh("python3 -c 'import pynvml; print(pynvml.NVML_SUCCESS)'").strip() == "0"
