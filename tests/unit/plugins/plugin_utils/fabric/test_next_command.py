# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command after a run has what its own command line has, and no secret."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from ansible import constants, context
from ansible.parsing.dataloader import DataLoader
from ansible.utils.context_objects import CLIArgs
from ansible_collections.rackscale.nvlink.plugins.lookup.next_run import LookupModule
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import next_command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """command("verify", inventory=...) is the command that a run with this command line prints, in words."""
    monkeypatch.chdir(tmp_path)

    def printed(*words: str, extra: dict[str, str] | None = None, **arguments: Any) -> list[str]:
        monkeypatch.setattr(context, "CLIARGS", CLIArgs(arguments))
        sentence = next_command.sentence(*words, extra=extra or {})
        assert (sentence[:7], sentence[-1]) == (" Next: ", ".")
        return shlex.split(sentence[7:-1])

    return printed


def test_the_inventories_and_files_of_this_run_are_those_of_the_next(command: Any, tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text("imex_owner: domain")
    (tmp_path / "vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n00")
    hosts = str(tmp_path / "hosts.yml")
    given = {
        "inventory": [hosts, "/srv/more"],
        "extra_vars": (f"@{tmp_path}/site.yml", f"@{tmp_path}/vault.yml", "slurm_database_password=s3cret"),
        "subset": "r01t01",
    }
    assert command("verify", **given, extra={"slurm_database_password": "s3cret"}) == [
        *("ansible-playbook", "-i", "hosts.yml", "-i", "/srv/more", "-e", "@site.yml", "rackscale.nvlink.verify")
    ]
    assert command(
        "imex", "--check", "--diff", inventory=constants.DEFAULT_HOST_LIST, extra={"fabric_file": "/a b.json"}
    ) == [*("ansible-playbook", "-e", '{"fabric_file": "/a b.json"}', "rackscale.nvlink.imex", "--check", "--diff")]
    assert command("resume", "-e", "resume_trays=r01t[1-2]")[-1] == "resume_trays=r01t[1-2]"
    assert command("verify", inventory=[hosts], check=True) == ["the", "same", "command", "without", "--check"]


def test_a_remedy_gets_the_inventory_of_this_run(command: Any) -> None:
    text = "ansible r1,r2 --become -a 'id', then ansible-playbook rackscale.nvlink.resume, with ansible"
    command("verify", inventory=["hosts.yml", "a b/"])
    given = "-i hosts.yml -i 'a b/'"
    whole = (
        f"ansible {given} r1,r2 --become -a 'id', then ansible-playbook {given} rackscale.nvlink.resume, with ansible"
    )
    assert next_command.completed(text) == whole
    command("verify", inventory=constants.DEFAULT_HOST_LIST)
    assert next_command.completed(text) == text


def test_the_fabric_file_is_an_inventory_once_it_lies_beside_the_first(command: Any, tmp_path: Path) -> None:
    hosts, more = str(tmp_path / "hosts.yml"), str(tmp_path / "cluster.nvlink.yml")
    assert "cluster.nvlink.yml" not in command("imex", inventory=[hosts])
    Path(more).touch()
    both = ["ansible-playbook", "-i", "hosts.yml", "-i", "cluster.nvlink.yml", "rackscale.nvlink.imex"]
    assert command("imex", inventory=[hosts]) == command("imex", inventory=[hosts, more]) == both
    # A folder has it already.
    assert "cluster.nvlink.yml" not in command("imex", inventory=[str(tmp_path)])


@pytest.mark.parametrize(
    ("variables", "command"),
    [
        ({"groups": {"slurm_controller": ["ctl"]}}, "rackscale.nvlink.slurm --check --diff."),
        ({"dra_driver_shape": "compute_domains"}, "rackscale.nvlink.kubernetes --check --diff."),
        ({"k8s_topology_schedulers": ["kueue"]}, "rackscale.nvlink.kubernetes --check --diff."),
        ({"groups": {"slurm_controller": ["ctl"]}, "imex_owner": "domain"}, "rackscale.nvlink.site."),
        ({}, "rackscale.nvlink.site."),
    ],
)
def test_what_is_accepted_is_applied_by_the_one_playbook_that_the_site_has(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], command: str
) -> None:
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({}))
    lookup = LookupModule(loader=DataLoader())
    assert lookup.run(["apply"], variables) == [f" Next: ansible-playbook {command}"]
