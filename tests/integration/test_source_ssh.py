# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The source ssh against trays of the lab: facts, reasons for missing facts, and gateways."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ssh

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
    assert "ssh: 4 of 4 trays done, 4 answered" in done.stdout + done.stderr
    assert done.stdout.count("_1:") == done.stdout.count("_2:") == 1
    listed, errors = hosts(inventory(tmp_path, config))
    through, more = hosts(inventory(tmp_path, config, jump={"r01t[01-03]": "ctl"}))
    assert (errors, more, through) == ("", "", listed), "through a gateway as without it"
    cliques = {name: variables["nvlink_clique"].rpartition(".")[2] for name, variables in listed.items()}
    assert cliques == {"r01t01": "1", "r01t02": "1", "r01t03": "2", "r01t04": "2"}


@pytest.mark.long
def test_a_wrong_key_and_a_closed_port_have_different_reasons(
    own_four_trays: RunningLab, config: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    lines = [line for line in config.read_text().splitlines() if "IdentityFile" not in line]
    strange = tmp_path / "ssh_config"
    strange.write_text("\n".join([*lines, f"  IdentityFile {key}"]) + "\n")
    assert "4 trays (r01t[01-04]): Permission denied" in errors_of(inventory(tmp_path, strange))
    strange.write_text(config.read_text().replace(str(config.parent / "known_hosts"), "/dev/null"))
    # The words of a reason differ between releases of OpenSSH.
    assert re.search(r"4 trays \(r01t\[01-04\]\): [^;]*host key", errors_of(inventory(tmp_path, strange)))
    assert "4 of 4 trays returned no facts" in errors_of(inventory(tmp_path, config, port=2223, connect_timeout=10))
    errors = errors_of(inventory(tmp_path, config, jump="ctl", port=2223))
    assert "4 of 4 trays returned no facts (4 trays (r01t[01-04]): its gateway ctl cannot connect to it)" in errors


@pytest.mark.long
def test_trays_of_the_fabric_file_are_read(own_four_trays: RunningLab, config: Path, tmp_path: Path) -> None:
    """Discovered in two ways with one result, and with a tray down nothing is lost."""
    fabric, by_ssh = tmp_path / "fabric.json", tmp_path / "by-ssh.json"
    ssh = {"hosts": "r01t[01-04]", "ssh_options": ["-F", str(config)]}
    for options in ({"fabric_file": str(fabric)}, {"fabric_file": str(by_ssh), "fabric_sources": [{"ssh": ssh}]}):
        more = json.dumps({"fabric_accept": "gates", **options})
        ansible("ansible-playbook", "-i", own_four_trays.inventory, "rackscale.nvlink.discover", "-e", more)
    assert by_ssh.read_bytes() == fabric.read_bytes()
    file = tmp_path / "both.nvlink.yml"
    options = {"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file", "ssh"], "fabric_file": str(fabric)}
    file.write_text(json.dumps({**options, "ssh": {"ssh_options": f"-F {config}", "connect_timeout": 10}}))
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


# sshd as it is without any configuration of MaxStartups (10:30:100) and MaxSessions (10).
GATEWAY_SSHD = "HostKey /etc/ssh/ssh_host_ed25519_key\nPort 2222\nUsePAM no\nPermitRootLogin prohibit-password\n"


@pytest.fixture
def gateway(own_four_trays: RunningLab) -> str:
    """A gateway on ctl, whose sshd has the defaults of OpenSSH; its log is /run/gateway.log."""
    command = "cat > /run/gateway.conf && exec /usr/sbin/sshd -f /run/gateway.conf -E /run/gateway.log"
    own_four_trays.exec("ctl", "sh", "-c", f"printf %s '{GATEWAY_SSHD}' | ({command})")
    return "root@ctl:2222"


def processes_with(word: str) -> str:
    """The command lines with a word, of processes on this machine."""
    return subprocess.run(["pgrep", "-af", "--", word], stdout=subprocess.PIPE, text=True, check=False).stdout


@pytest.mark.long
def test_200_trays_are_read_through_a_gateway_with_sshds_default_limits(
    own_four_trays: RunningLab, config: Path, gateway: str, tmp_path: Path
) -> None:
    names = [f"n{number:03}" for number in range(200)]
    shared = [f"Host {name}\n  HostName 198.51.100.{11 + number % 4}\n" for number, name in enumerate(names)]
    many = tmp_path / "ssh_config"
    many.write_text("".join(shared) + config.read_text())
    options = {"hosts": "n[000-199]", "ssh_options": ["-F", str(many)], "jump": gateway, "fanout": 64}
    reported = ssh.discover(options, "2026-11-21T05:00:00Z", {}, Display())
    assert {row.tray: row.problem for row in reported.observations if not row.reachable} == {}
    assert [row.tray for row in reported.observations] == names
    log = own_four_trays.exec("ctl", "cat", "/run/gateway.log").stdout
    assert log.count("Accepted publickey") == 1
    assert "MaxStartups" not in log
    assert processes_with(str(many)) == ""
