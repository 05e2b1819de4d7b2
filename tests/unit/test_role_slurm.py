# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Expressions and templates of the role slurm: files, why a unit does not start, what is a Slurm of
somebody else. Its controllers are named by a group, a host or a pattern, for those that delegate to them too.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_lines

CHECKOUT = Path(__file__).resolve().parents[2]
ROLE = CHECKOUT / "roles/slurm"
ADVICE = "[2026-11-23T05:00:00] error: Database settings not recommended values: innodb_lock_wait_timeout"
SILENT = "it does not listen on port 6819 after 120 s"


def trusted(value: Any) -> Any:
    """Text of the role's files is a template."""
    if isinstance(value, dict):
        return {key: trusted(row) for key, row in value.items()}
    if isinstance(value, list):
        return [trusted(row) for row in value]
    return trust_as_template(value) if isinstance(value, str) else value


def templar(variables: dict[str, Any]) -> Templar:
    loader = DataLoader()
    role = loader.load_from_file(str(ROLE / "vars/main.yml"))
    return Templar(loader, variables={**trusted(role), **variables})


def template(value: Any, variables: dict[str, Any]) -> Any:
    return templar(variables).template(trusted(value))


def why(lines: list[str], **results: Any) -> str:
    tasks = DataLoader().load_from_file(str(ROLE / "tasks/unit.yml"))
    block = next(task["block"] for task in tasks if "block" in task)
    fail = next(task for task in block if "ansible.builtin.fail" in task)
    given = {
        "_slurm_unit": "slurmdbd.service",
        "_slurm_unit_port": 6819,
        "_slurm_unit_file": {},
        "_slurm_started": {},
        "slurm_timeout": 120,
        "_slurm_logged": {"stdout_lines": lines},
        **trusted(fail["vars"]),
        **results,
    }
    return str(template(fail["ansible.builtin.fail"]["msg"], given))


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([ADVICE], SILENT),
        (["error: mysql_real_connect failed: 2003 no host", ADVICE], "mysql_real_connect failed: 2003 no host"),
        (["fatal: bad plugin", ADVICE, "error: later"], "bad plugin"),
        ([], SILENT),
    ],
)
def test_advice_is_no_cause(lines: list[str], cause: str) -> None:
    assert why(lines) == f"slurmdbd.service does not start ({cause}): correct that first."
    started = why(lines, _slurm_started={"msg": "its job failed"})
    assert (
        started == f"slurmdbd.service does not start ({cause.replace(SILENT, 'its job failed')}): correct that first."
    )


@pytest.mark.parametrize(
    ("files", "state", "database", "found"),
    [
        ([], ["nvlink_state_id", "job_state"], True, ""),
        (["/etc/slurm/slurm.conf", "/etc/slurm/slurmdbd.conf"], [], True, "/etc/slurm/slurm.conf was not written by"),
        ([], ["clustername", "job_state"], True, "/state has the state of a slurmctld that slurm_bringup has not conf"),
        (["/etc/slurm/slurmdbd.conf"], [], True, "/etc/slurm/slurmdbd.conf was not written by slurm_bringup, which"),
        # Another host's slurmdbd is used, and this file stays.
        (["/etc/slurm/slurmdbd.conf"], [], False, ""),
    ],
)
def test_a_slurm_of_somebody_else_is_found(files: list[str], state: list[str], database: bool, found: str) -> None:
    given = {
        "slurm_conf_dir": "/etc/slurm",
        "slurm_state_dir": "/state",
        "slurm_accounting": database,
        "slurm_controllers": ["ctl"],
        "inventory_hostname": "ctl",
        "_slurm_unmarked": {"stdout_lines": files},
        "_slurm_verified": {"skipped": True},
        "_slurm_state_names": {"stdout_lines": state},
    }
    rows = template("{{ _slurm_foreign }}", given)
    assert [row[: len(found)] for row in rows[:1]] == ([found] if found else [])


@pytest.mark.parametrize(
    ("rc", "stdout", "stderr", "foreign"),
    [
        # Another file of the package differs.
        (1, "S.5....T.  c /etc/slurm/cgroup.conf", "", []),
        (1, "S.5....T.  c /etc/slurm/slurm.conf", "", ["/etc/slurm/slurm.conf"]),
        (1, "", "error: cannot open Packages database", ["/etc/slurm/slurm.conf"]),
        (2, "", "", ["/etc/slurm/slurm.conf"]),
    ],
)
def test_the_example_of_a_package_is_nobodys_slurm(rc: int, stdout: str, stderr: str, foreign: list[str]) -> None:
    given = {
        "_slurm_unmarked": {"stdout_lines": ["/etc/slurm/slurm.conf"]},
        "_slurm_verified": {"rc": rc, "stdout": stdout, "stderr": stderr},
    }
    assert template("{{ _slurm_unmarked_files }}", given) == foreign


@pytest.mark.parametrize(
    ("first", "here", "check", "same"),
    [
        ("MQ==", {"content": "MQ=="}, False, True),
        ("MQ==", {"content": "Mg=="}, False, False),
        # A folder that is not mounted, and a first controller that has no ID.
        ("MQ==", {"failed": True}, False, False),
        ("", {"failed": True}, False, False),
        ("", {"content": "MQ=="}, False, False),
        ("", {"failed": True}, True, True),
        ("MQ==", {"failed": True}, True, False),
    ],
)
def test_another_controller_needs_the_same_state_folder(first: str, here: Any, check: bool, same: bool) -> None:
    """A takeover without the state of the first one would cancel all jobs."""
    given = {"_slurm_first_id": first, "_slurm_state_here": here, "ansible_check_mode": check}
    assert passes("Fail where StateSaveLocation is another folder", given) is same


@pytest.mark.parametrize(
    ("owner", "same"), [({"pw_name": "slurm"}, True), ({"pw_name": "mysql"}, False), ({"uid": 64030}, False)]
)
def test_slurm_has_the_same_uid_on_all_controllers(owner: dict[str, Any], same: bool) -> None:
    assert passes("Fail where SlurmUser has another UID", {"_slurm_state_owner": {"stat": owner}}) is same


def passes(name: str, given: dict[str, Any]) -> Any:
    """Whether an assertion of another controller passes."""
    tasks = DataLoader().load_from_file(str(ROLE / "tasks/shared.yml"))[1]["block"]
    (condition,) = (task["ansible.builtin.assert"]["that"] for task in tasks if task["name"] == name)
    return template(f"{{{{ {condition} }}}}", given)


def test_hidden_names_are_no_state_of_a_slurmctld(tmp_path: Path) -> None:
    tasks = DataLoader().load_from_file(str(ROLE / "tasks/foreign.yml"))
    task = next(task for task in tasks if task.get("register") == "_slurm_state_names")
    argv = template(task["ansible.builtin.command"]["argv"], {"slurm_state_dir": str(tmp_path)})
    for name in (".snapshot", "lost+found"):
        (tmp_path / name).mkdir()
    assert subprocess.check_output(argv, text=True) == ""
    (tmp_path / "job_state").touch()
    assert subprocess.check_output(argv, text=True) == "job_state\n"


TRAYS = {"gpus": {"r01t[01-18]": 4, "r02t01": 1}, "memory_per_cpu": 6094, "channels": 2047}
HOSTS = {"ctl1": "198.51.100.2", "ctl2": ""}


def rendered(name: str, **variables: Any) -> str:
    """A file of slurmctld from its template, with the role's defaults and these variables of the site."""
    defaults = DataLoader().load_from_file(str(ROLE / "defaults/main.yml"))
    given = {
        **trusted(defaults),
        "slurm_controllers": list(HOSTS),
        "slurm_controller_addresses": HOSTS,
        "_slurm_trays": TRAYS,
        **variables,
    }
    text = trust_as_template((ROLE / f"templates/{name}.j2").read_text())
    return str(templar(given).copy_with_new_env(searchpath=[str(ROLE / "templates")]).template(text))


def test_the_sites_settings_override_the_defaults_in_any_case() -> None:
    conf = rendered(
        "slurm.conf",
        slurm_settings={
            "selecttypeparameters": "CR_Core",
            "HealthCheckInterval": None,
            "PriorityType": "priority/multifactor",
        },
        slurm_conf_lines=["NodeName=login CPUs=4"],
    )
    assert conf.startswith(
        node_lines.HEADER + "SlurmctldHost=ctl1(198.51.100.2)\nSlurmctldHost=ctl2\nClusterName=nvlink\n"
    )
    assert "selecttypeparameters=CR_Core\n" in conf
    assert conf.lower().count("selecttypeparameters") == 1
    assert "HealthCheckInterval" not in conf
    assert "PriorityType=priority/multifactor\n" in conf
    assert "DefMemPerCPU=6094\n" in conf
    assert conf.endswith(
        "\nInclude nvlink_nodes.conf\n"
        "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\nNodeName=login CPUs=4\n"
    )
    cgroup = rendered("cgroup.conf", slurm_cgroup_settings={"ConstrainDevices": False})
    expected = ["CgroupPlugin=autodetect", "ConstrainCores=yes", "ConstrainRAMSpace=yes", "ConstrainDevices=NO"]
    assert cgroup.splitlines()[1:] == expected


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({}, ["NodeName=r01t[01-18] Name=gpu File=/dev/nvidia[0-3]", "NodeName=r02t01 Name=gpu File=/dev/nvidia0"]),
        (
            {"slurm_gpu_type": "gb200", "_slurm_trays": {"gpus": {"r02t01": 1}}},
            ["NodeName=r02t01 Name=gpu Type=gb200 File=/dev/nvidia0"],
        ),
        ({"slurm_gres": "autodetect"}, ["AutoDetect=nvml"]),
        ({"slurm_gres": "none"}, []),
    ],
)
def test_slurmd_finds_the_gpus_as_the_site_says(variables: dict[str, Any], lines: list[str]) -> None:
    assert rendered("gres.conf", **variables) == "".join(f"{line}\n" for line in [node_lines.HEADER[:-1], *lines])


def test_without_gres_no_file_names_gpus() -> None:
    given = {"slurm_gres": "none", "slurm_imex": False, "slurm_accounting_host": "", "slurm_health_check": ""}
    text = "".join(rendered(name, **given) for name in ("slurm.conf", "gres.conf", "cgroup.conf"))
    assert not any(word in text.lower() for word in ("gres", "gpu", "imex", "accounting", "healthcheck"))


def test_a_partition_without_a_name_is_one_sentence() -> None:
    assert "PartitionName=a Nodes=ALL\n" in rendered(
        "slurm.conf", slurm_partitions=[{"PartitionName": "a", "Nodes": "ALL"}]
    )
    with pytest.raises(AnsibleError, match="An entry of slurm_partitions has no name: add the key name"):
        rendered("slurm.conf", slurm_partitions=[{"Nodes": "ALL"}])


def settings(**variables: Any) -> dict[str, str]:
    return cluster.settings(rendered("slurm.conf", **variables))


def test_tiers_turn_on_the_settings_that_they_need() -> None:
    assert "accountingstorageenforce" not in settings()
    tiers = [{"name": "all", "all": True}, {"name": "gold", "qos": {"priority": 10}}]
    made = settings(slurm_tiers=tiers)
    assert made["accountingstorageenforce"] == "associations,limits,qos"
    assert made["enforcepartlimits"] == "ALL"
    assert int(made["priorityweightqos"]) > 0
    assert "preempttype" not in made
    made = settings(slurm_tiers=[*tiers, {"name": "x", "qos": {"preempt": ["gold"]}}])
    assert (made["preempttype"], made["preemptmode"]) == ("preempt/qos", "REQUEUE")
    made = settings(slurm_tiers=tiers, slurm_settings={"accountingstorageenforce": "limits", "PriorityWeightQOS": None})
    assert made["accountingstorageenforce"] == "limits", "a site's settings win"
    assert "priorityweightqos" not in made


def test_programs_of_jobs_and_channels_are_named() -> None:
    made = settings(slurm_imex_dev_major=4)
    assert "taskprolog" not in made
    assert made["switchparameters"] == "imex_channel_count=2047,imex_dev_major=4"
    made = settings(imex_job_prolog_dir="/p", imex_owner="job", imex_job_policy="run")
    programs = ("/p/*", "/etc/slurm/epilog.d/*", "/usr/local/libexec/nvlink-imex-job")
    assert (made["prolog"], made["epilog"], made["taskprolog"]) == programs


GROUPS = {"all": ["ctl", "ctl2", "r01t01"], "slurm_controller": ["ctl2"], "controllers": ["ctl", "ctl2"]}
NO_SLURM = {"all": ["r01t01"]}
CASES = [
    ({"groups": GROUPS}, ["ctl2"]),
    ({"groups": NO_SLURM}, []),
    ({"groups": GROUPS, "slurm_controller_hosts": "controllers"}, ["ctl", "ctl2"]),
    # Not of a group, and no tray would be drained without it.
    ({"groups": GROUPS, "slurm_controller_hosts": "ctl"}, ["ctl"]),
    ({"groups": GROUPS, "slurm_controller_hosts": "controllers:!slurm_controller"}, ["ctl"]),
    ({"groups": GROUPS, "slurm_controller_hosts": "nobody"}, []),
]


def expressions() -> dict[str, str]:
    loader = DataLoader()

    def read(path: str) -> Any:
        return loader.load_from_file(str(CHECKOUT / path))

    resume, doctor = (read(f"playbooks/{name}.yml") for name in ("resume", "doctor"))
    return {
        "verify": read("roles/verify/defaults/main.yml")["verify_slurm_controllers"],
        "rollout": read("roles/rollout/defaults/main.yml")["rollout_slurm_controller"],
        "resume": next(play["vars"]["resume_controllers"] for play in resume if "resume_controllers" in str(play)),
        "doctor": doctor[1]["vars"]["doctor_controllers"],
    }


@pytest.mark.parametrize(("variables", "hosts"), CASES)
@pytest.mark.parametrize("user", ["verify", "rollout", "resume", "doctor"])
def test_the_controllers(user: str, variables: dict[str, Any], hosts: list[str]) -> None:
    # Tests have no collection ansible.builtin.
    text = expressions()[user].replace("ansible.builtin.", "")
    found = Templar(DataLoader(), variables=variables).template(trust_as_template(text))
    assert found == ((hosts or [""])[0] if user == "rollout" else hosts)


@pytest.mark.parametrize(("program", "said"), [({"changed": True}, "1 change (dry run)"), ({}, "no changes (dry run)")])
def test_the_summary_counts_nvlink_explain(program: dict[str, Any], said: str) -> None:
    (play,) = DataLoader().load_from_file(str(CHECKOUT / "playbooks/phases/slurm.yml"))
    summary = next(task for task in play["tasks"] if task["name"] == "Summary")
    given = {"slurm_topology_explain_program": program, "inventory_hostname": "ctl", "next_step": ""}
    run = {"ansible_check_mode": True, "ansible_diff_mode": False}
    lines = template(summary["ansible.builtin.debug"]["msg"], {**given, **run, **trusted(summary["vars"])})
    wrote = ["write /usr/local/bin/nvlink-explain"] if program else []
    assert lines == [*wrote, f"Slurm on ctl: {said}."]
