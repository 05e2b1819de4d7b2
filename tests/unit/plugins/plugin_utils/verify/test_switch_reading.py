# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switches of an inventory: their variables, and what a person wrote wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.hosts import Hosts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import switch_reading
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import switch

from ..clients.switch_domain import ONE, TWO, Switches, switches
from ..fabrics import HostVars
from .verify_world import World

FABRIC = World().fabric


def evaluate(template: str, variables: dict[str, Any]) -> Any:
    return Templar(DataLoader(), variables).template(template)


def variables(running: Switches, name: str = ONE, **more: Any) -> dict[str, Any]:
    return {
        "ansible_host": "127.0.0.1",
        "nvue_port": running.servers[running.domain.switches.index(name)].server_port,
        "nvlink_switch_domain": "r01",
        "nvue_user": switch.USER,
        "nvue_password": trust_as_template("{{ vault_switches }}"),
        "vault_switches": switch.PASSWORD,
        "nvue_ca_file": str(running.folder / "ca.crt"),
        **more,
    }


def read(of: dict[str, dict[str, Any]], domains: tuple[str, ...] = ("r01", "r02")) -> dict[str, Any]:
    known = Hosts(HostVars(of), evaluate)
    return switch_reading.read(list(of), known, FABRIC, domains)


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switches]:
    monkeypatch.delenv("NVUE_USER", raising=False)
    monkeypatch.delenv("NVUE_PASSWORD", raising=False)
    with switches(tmp_path / "r01") as running:
        yield running


def test_switches_are_read_with_the_password_of_a_vault(rack: Switches) -> None:
    found = read({ONE: variables(rack), TWO: variables(rack, TWO, nvue_timeout="5.5")})
    assert [(row.switch, row.problem, len(row.partitions)) for row in found["r01"]] == [(ONE, "", 1), (TWO, "", 0)]
    assert read({ONE: variables(rack)}, ("r02",)) == {}


def test_the_login_may_be_of_the_environment_or_a_file(rack: Switches, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = {name: value for name, value in variables(rack).items() if name not in ("nvue_user", "nvue_password")}
    with pytest.raises(SourceError, match="r01sw1: has no login; set nvue_user and nvue_password"):
        read({ONE: bare})
    file = rack.folder / "password"
    file.write_text(f"{switch.PASSWORD}\n")
    monkeypatch.setenv("NVUE_USER", switch.USER)
    assert read({ONE: {**bare, "nvue_password_file": str(file)}})["r01"][0].problem == ""
    monkeypatch.setenv("NVUE_PASSWORD", switch.PASSWORD)
    assert read({ONE: bare})["r01"][0].problem == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nvlink_switch_domain": None}, "r01sw1: nvlink_switch_domain is not set"),
        ({"nvlink_switch_domain": "r1"}, "nvlink_switch_domain is 'r1', which is no NVLink domain of the fabric file"),
        ({"nvlink_switch_domain": ["r01"]}, "nvlink_switch_domain is ['r01'], which is no NVLink domain"),
        ({"nvue_ca_file": "ca.crt"}, "r01sw1: nvue_ca_file is 'ca.crt', write an absolute path"),
        ({"nvue_ca_file": "/none"}, "cannot be used"),
        ({"nvue_timeout": 0}, "r01sw1: nvue_timeout is 0, use a number from 0.1"),
        ({"nvue_timeout": "10s"}, "r01sw1: nvue_timeout is '10s', use a number from 0.1"),
        ({"nvue_user": None}, "r01sw1: nvue_user needs a password"),
        ({"ansible_host": "a b"}, "r01sw1: ansible_host is 'a b'; write a name or an address"),
        ({"ansible_host": "192.0.2.1:8443"}, "ansible_host is '192.0.2.1:8443'; write a name or an address, and"),
        ({"ansible_host": ["192.0.2.1"]}, "; write a name or an address"),
        ({"nvue_port": "44x"}, "r01sw1: nvue_port is '44x'; write a number from 1 to 65535"),
        ({"nvue_port": 99999}, "r01sw1: nvue_port is 99999; write a number from 1 to 65535"),
        ({"nvue_password": trust_as_template("{{ ansible_facts.password }}"), "ansible_facts": {"password": "x"}},
         "nvue_password cannot be evaluated; use variables of the inventory, no facts"),
    ],
)  # fmt: skip
def test_what_a_person_wrote_fails_with_its_name(rack: Switches, change: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceError) as caught:
        read({ONE: variables(rack, **change)})
    assert words in str(caught.value)
    assert switch.PASSWORD not in str(caught.value)


def test_a_tray_is_no_switch(rack: Switches) -> None:
    with pytest.raises(SourceError, match="group nvlink_switches: 'r01t01' is a tray of the fabric file"):
        read({"r01t01": variables(rack)})
    with pytest.raises(SourceError, match="group nvlink_switches: 'gone' is no host of the inventory"):
        switch_reading.read(["gone"], Hosts(HostVars(), evaluate), FABRIC, ("r01",))


def test_evaluate_raises_as_ansible_does() -> None:
    with pytest.raises(AnsibleError):
        evaluate(trust_as_template("{{ nothing }}"), {})


def test_a_certificate_of_another_name_is_reported_with_the_variable_for_it(rack: Switches) -> None:
    [report] = read({ONE: variables(rack, nvue_server_name="other.example")})["r01"]
    assert "Hostname mismatch" in report.problem
    assert report.problem.endswith("of an NVLink switch, set nvue_server_name")
