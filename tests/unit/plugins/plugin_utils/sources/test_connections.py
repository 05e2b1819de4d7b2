# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""With a stand-in of ssh whose behaviour the host name selects, as in test_ssh."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.subsets import FACTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import connections
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.hosts import Hosts
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets, standin_text
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays

SSH = """#!/bin/sh
for command in "$@"; do host=$last; last=$command; done
echo "$@" > "$SCRATCH/$host.arguments"
answer() { echo "nvlink-facts-2:$1:nvlink-facts-end"; }
case $host in
noise*) head -c 1048577 /dev/zero; exec sleep 60 ;;
hang*) exec sleep 60 ;;
killed*) kill -9 $$ ;;
cut*) echo 'nvlink-facts-2:{"ansible_facts": {"nvlink_fabric": {"attached": tr' ;;
foreign*) answer '{"ansible_facts": {"nvlink_fabric": {}, "fabric_file": "own.json"}, "findings": [],
  "warnings": ["of the tray"], "_ansible_delegated_vars": {}, "deprecations": ["too"]}' ;;
odd*) answer '{"ansible_facts": {"nvlink_fabric": {"gpu_count": "four"}}, "findings": [{"code": "no_such_code"}]}' ;;
known*) answer '{"ansible_facts": {"nvlink_fabric": {"attached": true}}, "findings": []}' ;;
*) exec /bin/sh -c "$command" ;;
esac
"""
SUDO = '#!/bin/sh\n[ "$1" = -n ] || exit 1\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'


class Recorder:
    """Keeps the messages of a run."""

    def __init__(self) -> None:
        self.warned: list[str] = []

    def v(self, msg: str) -> None: ...

    def warning(self, msg: str) -> None:
        self.warned.append(msg)


class HostVars(dict[str, Any]):
    """The variables of hosts, as Ansible's."""

    def raw_get(self, name: str) -> Any:
        return self[name]


class Site:
    """Hosts whose ssh is the stand-in above."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reporter = folder, Recorder()
        self.own = {"ansible_ssh_executable": str(folder / "ssh"), "ansible_python_interpreter": sys.executable}

    def read(
        self, hosts: Mapping[str, Mapping[str, Any]], becomes: bool = False, **asked: Any
    ) -> dict[str, dict[str, Any]]:
        def evaluate(template: str, variables: Mapping[str, Any]) -> Any:
            name = template.strip("{} ")
            if name not in variables:
                raise AnsibleError(f"{name} is undefined")
            return variables[name]

        known = HostVars({name: {**self.own, **variables} for name, variables in hosts.items()})
        asked = {"gather_subset": ["gpu"], "backend": "nvml", **asked}
        return connections.read(hosts, connections.of_facts(asked), Hosts(known, evaluate), becomes, self.reporter)

    def arguments(self, host: str) -> str:
        return (self.folder / f"{host}.arguments").read_text()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name, text in {"ssh": SSH, "sudo": SUDO}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    text = standin_text.standin_text(next(iter(fleets.fleet().values())), None)
    (tmp_path / "gpus").write_text(text)
    (tmp_path / nvml.LIBRARY).symlink_to(trays.library())
    monkeypatch.setenv("NVLINK_STANDIN_GPUS", str(tmp_path / "gpus"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    return Site(tmp_path)


def test_a_tray_is_reached_as_ansible_would(site: Site) -> None:
    more = {
        "ansible_host": "{{ address }}",
        "address": "tray9",
        "ansible_user": "admin",
        "ansible_port": 2222,
        "ansible_ssh_private_key_file": "/etc/key",
        "ansible_ssh_common_args": "-F '/a b' -oProxyJump=gw1",
        "ansible_host_key_checking": False,
    }
    results = site.read({"r01t01": more, "tray1": {}}, gather_subset=["all"])
    assert all(row["ansible_facts"].keys() == set(FACTS.values()) for row in results.values())
    words = site.arguments("tray9")
    assert words.startswith("-T -oBatchMode=yes -oControlMaster=no -oControlPath=none -C ")
    for word in ("Port=2222", 'User="admin"', 'IdentityFile="/etc/key"', "StrictHostKeyChecking=no", "ProxyJump=gw1"):
        assert f" -o{word} " in words
    assert "-F /a b " in words
    assert f"exec {sys.executable} -I -S -c" in words
    assert not {"Port", "User", "StrictHostKeyChecking"} & set(site.arguments("tray1").replace("=", "-o").split("-o"))


@pytest.mark.parametrize(
    ("variables", "becomes", "asks"),
    [
        ({"ansible_become": True}, False, True),
        ({}, True, True),
        ({"ansible_become": "false"}, True, False),
        ({"ansible_user": "root"}, True, False),
        ({"ansible_user": "admin"}, True, True),
    ],
)
def test_a_tray_that_ansible_reads_as_root_is_read_by_sudo(
    site: Site, variables: dict[str, Any], becomes: bool, asks: bool
) -> None:
    sudo = str(site.folder / "sudo")
    results = site.read({"tray1": {**variables, "ansible_become_exe": sudo}}, becomes)
    assert results["tray1"]["ansible_facts"]["nvlink_fabric"]["attached"]
    assert (f"exec {sudo} -n -u root -- {sys.executable}" in site.arguments("tray1")) == asks


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("echo 'sudo: a password is required' >&2; exit 1", "sudo -n does not start its Python (sudo: a password is"),
        (
            "echo 'Sorry, user a may not run sudo on b.' >&2; exit 1",
            "(Sorry, user a may not run sudo on b); allow",
        ),
        ("exit 127", "no sudo at "),
        ("echo 'Traceback' >&2; exit 1", "it printed no facts (Traceback)"),
    ],
)
def test_what_sudo_does_not_allow_is_not_said_of_the_facts(site: Site, said: str, words: str) -> None:
    sudo = trays.script(site.folder / "no-sudo", said)
    results = site.read({"tray1": {"ansible_become": True, "ansible_become_exe": str(sudo)}})
    assert words in results["tray1"]["msg"]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ansible_connection": "local"}, "its ansible_connection is 'local'; read it with tray_reading ansible"),
        ({"ansible_ssh_executable": "/no/ssh"}, "'/no/ssh' is not a program on this controller"),
        ({"ansible_become": True, "ansible_become_method": "su"}, "its ansible_become_method is 'su'"),
        ({"ansible_host": "{{ nothing }}"}, "nothing is undefined"),
        ({"ansible_ssh_common_args": "-o 'x"}, "No closing quotation"),
        ({"ansible_facts": {"fabric_file": "x"}}, "The facts of bad set fabric_file, which only the site may set"),
        ({"ansible_facts": {"host_key_checking": False}, "ansible_host_key_checking": False}, "The facts of bad set"),
        ({"ansible_facts": {"room": "x"}, "ansible_host": "{{ room }}", "room": "x"}, "The facts of bad set"),
    ],
)
def test_a_tray_that_is_no_target_has_a_reason(site: Site, variables: dict[str, Any], message: str) -> None:
    results = site.read({"bad": variables, "tray1": {}})
    assert results["bad"]["failed"]
    assert message in results["bad"]["msg"]
    assert not (site.folder / "bad.arguments").exists()
    assert results["tray1"]["ansible_facts"]


def test_hostile_answers_cost_no_other_tray_its_report(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_REST", 8)
    monkeypatch.setattr(connections, "SENDING", 2)
    hostile = ("noise1", "hang1", "killed1", "cut1", "foreign1", "odd1")
    names = [*hostile, *(f"tray{number}" for number in range(1, 5)), *(f"known{number}" for number in range(190))]
    results = site.read({name: {} for name in names}, timeout=2)
    assert list(results) == names
    assert all(results[name]["ansible_facts"]["nvlink_fabric"]["attached"] for name in names if name not in hostile)
    assert {name: results[name].get("msg") for name in hostile[:4]} == {
        "noise1": "it prints more than 1024 KiB",
        "hang1": "no response within 18 s",
        "killed1": "it printed no facts (exit status -9)",
        "cut1": "it printed no facts (exit status 0)",
    }
    assert results["foreign1"].keys() == {"ansible_facts", "findings"}
    assert results["foreign1"]["ansible_facts"] == {"nvlink_fabric": {}}
    assert [row["code"] for row in results["odd1"]["findings"]] == ["tray_answer_invalid"]
    assert [text.partition(":")[0] for text in site.reporter.warned] == ["tray_answer_invalid"] * 2
