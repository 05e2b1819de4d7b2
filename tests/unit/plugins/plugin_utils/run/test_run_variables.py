# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables of a run are evaluated: extra ones by their option, those of the inventory by few hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.utils.context_objects import CLIArgs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import run_variables

TRAYS = [f"r{rack:03}t{tray:02}" for rack in range(100) for tray in range(18)]
GROUPS = {"all": TRAYS, **{f"rack{rack:03}": TRAYS[rack * 18 : rack * 18 + 18] for rack in range(100)}}


class Hostvars:
    """Counts what is read."""

    def __init__(self, more: dict[str, dict[str, Any]]) -> None:
        self.more, self.read = more, []  # type: ignore[var-annotated]

    def __contains__(self, host: str) -> bool:
        return True

    def raw_get(self, host: str) -> dict[str, Any]:
        self.read.append(host)
        return {"inventory_hostname": host, "groups": GROUPS, **self.more.get(host, {})}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def start(
        hostvars: Hostvars, extra: dict[str, Any] | None = None, playbook: str = "imex", own: bool = True
    ) -> tuple[list[str], list[str]]:
        given = tmp_path / "extra.json"
        given.write_text(json.dumps(extra or {"site_name": "x"}))
        options = {"extra_vars": (f"@{given}", "site_hall=3"), "inventory": (str(tmp_path / "hosts.yml"), "a,")}
        monkeypatch.setattr(context, "CLIARGS", CLIArgs(options))
        monkeypatch.setattr(run_variables, "load_extra_vars", lambda _loader: {**(extra or {}), "site_hall": 3})
        loader = DataLoader()
        loader.set_basedir(str(tmp_path))
        return run_variables.check(
            loader, {"hostvars": hostvars, "groups": GROUPS, "ansible_play_hosts_all": TRAYS}, playbook, own
        )

    return start


def test_one_host_of_each_group_and_those_with_a_file_are_read_first(run: Any, tmp_path: Path) -> None:
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "r007t09.yml").touch()
    (tmp_path / "host_vars" / "r007t10").mkdir()
    (tmp_path / "host_vars" / "retired.yml").touch()
    hostvars = Hostvars({"r007t10": {"imex_onwer": "none"}})
    assert run(hostvars) == (
        [],
        ["imex_onwer (variable of r007t10) is a variable that nothing reads; did you mean imex_owner?"],
    )
    assert hostvars.read[:3] == ["localhost", "r007t09", "r007t10"]
    assert {members[0] for members in GROUPS.values()} - set(hostvars.read[: 1 + 2 + 99]) == {"r007t00"}
    assert len(hostvars.read) == run_variables.MAX_HOSTS


def test_an_extra_variable_is_an_error_and_names_its_file(run: Any) -> None:
    hostvars = Hostvars({"localhost": {"fabric_colour": "red"}})
    assert run(hostvars, {"fabric_colour": "red", "imex_list_port": "abc"}) == (
        [
            "fabric_colour (-e @extra.json) is a variable that nothing reads; correct its name or remove it.",
            "imex_list_port (-e @extra.json) is 'abc', write an integer.",
        ],
        [],
    )


@pytest.mark.parametrize(
    ("playbook", "name", "meant"),
    [
        ("imex", "allow_jobs", "imex_allow_jobs"),
        ("slurm", "manage_conf", "slurm_tiers_manage_conf or slurm_topology_manage_conf"),
        ("drain", "wait", "drain_wait"),
        ("verify", "create_accounts", "slurm_tiers_create_accounts"),
    ],
)
def test_an_option_of_a_module_names_the_variable_of_its_role(run: Any, playbook: str, name: str, meant: str) -> None:
    sentence = f"{name} (-e @extra.json) is a variable that nothing reads; did you mean {meant}?"
    assert run(Hostvars({}), {name: True}, playbook) == ([sentence], [])
    # A role of the site, or a template, may read it.
    assert run(Hostvars({}), {name: True}, playbook, own=False) == ([], [])
    assert run(Hostvars({"localhost": {"site_x": f"{{{{ {name} }}}}"}}), {name: True}, playbook) == ([], [])


def test_a_value_of_the_inventory_matters_where_the_playbook_reads_it(run: Any) -> None:
    wrong = {"localhost": {"imex_list_port": "abc"}}
    assert run(Hostvars(wrong))[0] == ["imex_list_port (variable of localhost) is 'abc', write an integer."]
    assert run(Hostvars(wrong), playbook="render") == ([], [])


def test_facts_are_no_variables_of_the_inventory(run: Any) -> None:
    facts = {"imex_onwer": "x", "imex_list_port": "abc"}
    assert run(Hostvars({"localhost": {**facts, "ansible_facts": facts}})) == ([], [])


def test_an_extra_variable_that_the_inventory_reads_in_a_template_passes(run: Any) -> None:
    assert run(Hostvars({}), {"fabric_net": "10.0.0.0/8"})[0] != []
    hostvars = Hostvars({"r003t01": {"imex_network": "{{ fabric_net }}"}})
    assert run(hostvars, {"fabric_net": "10.0.0.0/8"}) == ([], [])
