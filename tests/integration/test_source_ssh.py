# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The source ssh against trays of the lab: facts, reasons for missing facts, and gateways."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ClusterShell
import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import probe

from .commands import ansible
from .conftest import RunningLab

pytestmark = pytest.mark.lab
STATE = Path("/run/nvlink-lab")


@pytest.fixture
def config(own_four_trays: RunningLab) -> Path:
    """The ssh_config of the lab."""
    return STATE / own_four_trays.name / "ssh_config"


def inventory(directory: Path, config: Path, hosts: str = "r01t[01-04]", **options: Any) -> Path:
    file = directory / "live.nvlink.yml"
    ssh = {"hosts": hosts, "ssh_options": ["-F", str(config)], **options}
    file.write_text(json.dumps({"plugin": "rackscale.nvlink.fabric", "sources": ["ssh"], "ssh": ssh}))
    return file


def errors_of(file: Path) -> str:
    """Standard error of an ansible-inventory --list that may fail, on one line."""
    return " ".join(ansible("ansible-inventory", "-i", file, "--list", check=False).stderr.split())


def hosts(file: Path) -> tuple[dict[str, Any], str]:
    """(the hosts' vars, standard error) of ansible-inventory --list, as JSON."""
    done = ansible("ansible-inventory", "-i", file, "--list")
    variables: dict[str, Any] = json.loads(done.stdout)["_meta"]["hostvars"]
    return variables, " ".join(done.stderr.split())


def test_the_graph_is_a_live_query(own_four_trays: RunningLab, config: Path, tmp_path: Path) -> None:
    done = ansible("ansible-inventory", "-i", inventory(tmp_path, config), "--graph", "-v")
    assert "ssh: 4 of 4 trays done, 4 returned facts" in done.stdout + done.stderr
    assert done.stdout.count("_1:") == done.stdout.count("_2:") == 1
    listed, errors = hosts(inventory(tmp_path, config))
    assert errors == ""
    cliques = {name: variables["nvlink_clique"].rpartition(".")[2] for name, variables in listed.items()}
    assert cliques == {"r01t01": "1", "r01t02": "1", "r01t03": "2", "r01t04": "2"}


def test_ansibles_cache_replaces_the_query(own_four_trays: RunningLab, config: Path, tmp_path: Path) -> None:
    file = inventory(tmp_path, config)
    kept = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(tmp_path / "cache")}
    file.write_text(json.dumps({**json.loads(file.read_text()), **kept}))
    progress = "ssh: 4 of 4 trays done"
    first, again, flushed = (
        ansible("ansible-inventory", "-i", file, "--graph", "-v", *more) for more in ((), (), ("--flush-cache",))
    )
    assert [progress in done.stdout + done.stderr for done in (first, again, flushed)] == [True, False, True]
    graphs = [done.stdout[done.stdout.index("@all:") :] for done in (first, again, flushed)]
    assert graphs[0].count("r01t0") == 8
    assert graphs == [graphs[0]] * 3


@pytest.mark.parametrize("setting", ["nvml=ok", "nvml=no_library", "health=unhealthy", "gpu1.lost=true"])
def test_the_probe_and_the_module_return_the_same(own_four_trays: RunningLab, config: Path, setting: str) -> None:
    own_four_trays.set("r01t02", setting)
    try:
        argv = ["/usr/bin/ssh", "-F", str(config), "r01t02"]
        command = f"exec /usr/bin/python3 {' '.join(probe.FLAGS)} -c '{probe.BOOTSTRAP}'"
        sent = probe.packed("auto", "nvidia-smi", 20.0, 60)
        printed = probe.facts_in(
            subprocess.run([*argv, command], input=sent, stdout=subprocess.PIPE, check=True).stdout
        )
        module = ansible(
            "ansible", "-i", own_four_trays.inventory, "r01t02", "-m", "rackscale.nvlink.fabric_facts"
        ).stdout
    finally:
        own_four_trays.set("r01t02", "nvml=ok", "health=healthy", "gpu1.lost=false")
    assert printed is not None
    gathered = json.loads(module.partition("=>")[2])["ansible_facts"]["nvlink_fabric"]
    assert printed.pop("observed_at") <= gathered.pop("observed_at")
    assert printed == gathered


def test_faulty_trays_are_reported_and_do_not_delay_others(
    own_four_trays: RunningLab, config: Path, tmp_path: Path
) -> None:
    own_four_trays.set("r01t02", "nvml=hang", "smi=hang")
    own_four_trays.stop("r01t03")
    try:
        listed, errors = hosts(inventory(tmp_path, config, timeout=1, connect_timeout=3, command_timeout=20))
    finally:
        own_four_trays.set("r01t02", "nvml=ok", "smi=ok")
        own_four_trays.start("r01t03")
    states = {name: variables["nvlink_state"] for name, variables in listed.items()}
    assert (states["r01t01"], states["r01t03"], states["r01t04"]) == ("present", "unplaced", "present")
    assert "ssh: 1 of 4 trays returned no facts" in errors
    assert "r01t03" in errors


def test_a_wrong_key_and_a_closed_port_have_different_reasons(
    own_four_trays: RunningLab, config: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    lines = [line for line in config.read_text().splitlines() if "IdentityFile" not in line]
    strange = tmp_path / "ssh_config"
    strange.write_text("\n".join([*lines, f"  IdentityFile {key}"]) + "\n")
    assert "authentication refused: r01t[01-04]" in errors_of(inventory(tmp_path, strange))
    strange.write_text(config.read_text().replace(str(config.parent / "known_hosts"), "/dev/null"))
    assert "its host key is not known: r01t[01-04]" in errors_of(inventory(tmp_path, strange))
    assert "4 of 4 trays returned no facts" in errors_of(inventory(tmp_path, config, port=2222, connect_timeout=3))


def test_trays_of_the_fabric_file_are_read(own_four_trays: RunningLab, config: Path, tmp_path: Path) -> None:
    """One run of the controller's own, one with a tray down: nothing is lost."""
    fabric = tmp_path / "fabric.json"
    more = ["-e", f"fabric_file={fabric}", "-e", "fabric_hosts=trays", "-e", "fabric_accept=gates"]
    ansible("ansible-playbook", "-i", own_four_trays.inventory, "rackscale.nvlink.discover", *more)
    file = tmp_path / "both.nvlink.yml"
    options = {"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file", "ssh"], "fabric_file": str(fabric)}
    file.write_text(json.dumps({**options, "ssh": {"ssh_options": f"-F {config}", "connect_timeout": 3}}))
    own_four_trays.stop("r01t04")
    try:
        listed, errors = hosts(file)
    finally:
        own_four_trays.start("r01t04")
    assert {name: variables["nvlink_state"] for name, variables in listed.items()} == {
        "r01t01": "present",
        "r01t02": "present",
        "r01t03": "present",
        "r01t04": "stale",
    }
    assert "1 of 4 trays returned no facts" in errors


@pytest.fixture
def topology(own_four_trays: RunningLab, config: Path, tmp_path: Path) -> Iterator[Path]:
    """A topology in which ctl leads to the trays, and on ctl the keys to reach them, but no ClusterShell."""
    directory = config.parent
    file = tmp_path / "topology.conf"
    file.write_text(f"[routes]\n{socket.gethostname().partition('.')[0]}: ctl\nctl: r01t[01-04]\n")
    direct = "".join(line for line in config.read_text().splitlines(keepends=True) if "Proxy" not in line)
    texts = {"ssh_config": direct, **{name: (directory / name).read_text() for name in ("key", "known_hosts")}}
    for name, text in texts.items():
        _send(config, f"umask 077; mkdir -p {directory}; cat > {directory}/{name}", text.encode())
    yield file
    _send(config, "rm -rf /usr/lib/python3/dist-packages/ClusterShell", b"")


def _send(config: Path, command: str, content: bytes) -> None:
    subprocess.run(["/usr/bin/ssh", "-F", str(config), "ctl", command], input=content, check=True)


def _install_clustershell(config: Path, version: str) -> None:
    """The controller's ClusterShell on ctl, under a version."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if "__pycache__" in member.name else member

    directory = Path(ClusterShell.__file__).parent
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(directory, "ClusterShell", filter=plain)
    target = "/usr/lib/python3/dist-packages"
    _send(config, f"tar x --no-same-owner -C {target}", packed.getvalue())
    if version != ClusterShell.__version__:
        _send(config, f"echo \"__version__ = '{version}'\" >> {target}/ClusterShell/__init__.py", b"")


def test_a_gateway_needs_the_same_clustershell(
    own_four_trays: RunningLab, config: Path, topology: Path, tmp_path: Path
) -> None:
    file = inventory(tmp_path, config, topology=str(topology))
    own = ClusterShell.__version__
    assert "gateway ctl has no ClusterShell for /usr/bin/python3" in errors_of(file)
    _install_clustershell(config, "1.8.4")
    assert f"gateway ctl has ClusterShell 1.8.4 and this controller {own}" in errors_of(file)


def test_trays_are_read_through_a_gateway(
    own_four_trays: RunningLab, config: Path, topology: Path, tmp_path: Path
) -> None:
    _install_clustershell(config, ClusterShell.__version__)
    direct, _errors = hosts(inventory(tmp_path, config))
    through, errors = hosts(inventory(tmp_path, config, topology=str(topology)))
    assert (through, errors) == (direct, "")
    own_four_trays.stop("ctl")
    try:
        errors = errors_of(inventory(tmp_path, config, topology=str(topology), connect_timeout=3))
    finally:
        own_four_trays.start("ctl")
    assert "gateways ctl cannot be used" in errors
    assert "4 of 4 trays returned no facts (its gateway cannot be used: r01t[01-04])" in errors
