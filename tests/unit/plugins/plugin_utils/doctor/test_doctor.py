# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the playbook doctor: versions, causes, clocks, ports, and how equal ones are one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import (
    controller,
    environment,
    host_checks,
    matrix,
    peer_hosts,
    plan_steps,
    results,
    unanswered,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.controller import Controller
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.host_checks import Report, Site
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.results import OK, check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, INFO, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.site import Inventory
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

CHECKOUT = Path(__file__).resolve().parents[5]
DRIVER = "580.95.05"


def report(
    gpus: int = 4,
    driver: str | None = DRIVER,
    imex_package: str | None = f"{DRIVER}-1",
    is_tray: bool = True,
    **more: Any,
) -> Report:
    """The report of a host on which all is well."""
    versions = {"driver": driver, "imex": None, "imex_package": imex_package, "slurmd": "24.11.5", "findings": []}
    gpu = {"driver_version": driver, "gpus": [{"index": number} for number in range(gpus)], "findings": []}
    facts = {"nvlink_fabric": gpu, "nvlink_versions": versions}
    answer = {
        "times": {"started": 0.0, "ended": 1.0},
        "clock": {"low": -0.5, "high": 0.2},
        "python": "3.12.3",
        "user": "root",
        "root": True,
        "ansible_facts": facts if is_tray else {},
        "findings": [],
        "imex": {"program": True, "candidate": None, "offered": []},
        "connects": [],
        **more,
    }
    return host_checks.report("r01t01", answer, is_tray)


def found(site: Site) -> list[tuple[str, str, str, str]]:
    """The checks that are neither ok nor skipped."""
    rows = [(row["code"], row["severity"], row["node"], row["message"]) for row in host_checks.checks(site)]
    return [row for row in rows if row[1] not in (OK, results.SKIPPED)]


# ------------------------------------------------------------------------------------------------------------ versions


@pytest.mark.parametrize(
    ("part", "version", "status"),
    [
        ("slurm", "24.11.5", OK),
        ("slurm", "23.11.10", ERROR),
        ("slurm", "26.11.0", INFO),
        ("kubernetes", "v1.38.0-rc.1", INFO),
        ("slurm", "26.05.0-0rc1", OK),
        ("tray_python", "3.6.8", ERROR),
        ("tray_python", "", INFO),
    ],
)
def test_older_than_supported_is_an_error_and_newer_than_tested_an_information(
    part: str, version: str, status: str
) -> None:
    assert matrix.evaluate(part, version)[0] == status


def test_the_matrix_agrees_with_the_requirements_and_the_readme() -> None:
    offline = (CHECKOUT / "docs" / "offline.md").read_text()
    assert dict(re.findall(r"'([\w.]+):>=([\d.]+)'", offline)) == matrix.COLLECTIONS
    requirements = [(CHECKOUT / f"requirements{of}.txt").read_text() for of in ("", "-kubernetes")]
    assert "kubernetes>" not in requirements[0]
    listed = dict(re.findall(r"^([\w-]+)>=([\d.]+)$", "".join(requirements), re.MULTILINE))
    core = yaml.safe_load((CHECKOUT / "meta" / "runtime.yml").read_text())["requires_ansible"].removeprefix(">=")
    # A certified collection does not list ansible-core among its libraries.
    assert {**listed, "ansible-core": core} == matrix.LIBRARIES
    readme = (CHECKOUT / "README.md").read_text()
    for part, title in {"slurm": "Slurm", "kubernetes": "Kubernetes"}.items():
        row = re.search(rf"^\| {title} \| (.*?) \|", readme, re.MULTILINE)
        assert row
        assert tuple(re.findall(r"\d+\.\d+", row[1])) == matrix.PARTS[part].tested
    hardware = (CHECKOUT / "docs" / "contributing" / "hardware.md").read_text()
    assert all(version in hardware for version in (*matrix.PARTS["driver"].tested, matrix.PARTS["driver"].oldest))


# ---------------------------------------------------------------------------------------------------------- controller


def evaluated(given: Controller, trays: int = 18, **variables: Any) -> list[tuple[str, str, str]]:
    names = {f"r01t{number:02d}": "" for number in range(trays)}
    rows = controller.checks(given, Inventory(names, [], variables))
    return [(row["code"], row["severity"], row["message"]) for row in rows if row["severity"] != OK]


@pytest.mark.parametrize(
    ("variables", "collection", "library"),
    [
        ({"dra_driver_shape": "all_dra"}, "kubernetes.core", "kubernetes"),
        ({"imex_tls": "ca"}, "community.crypto", ""),
        ({"imex_network": ["10.0.0.0/8"]}, "", "netaddr"),
        ({"fabric_sources": ["ssh"]}, "", "ClusterShell"),
        ({"fabric_sources": [["topograph", "ssh_known"]]}, "", "urllib3"),
    ],
)
def test_only_what_the_variables_need_must_be_installed(
    variables: dict[str, Any], collection: str, library: str
) -> None:
    nothing = Controller({"ansible-core": "2.20.1", "fastjsonschema": "2.21"})
    assert evaluated(nothing) == []
    rows = evaluated(nothing, **variables)
    wanted = [("collections", collection), ("libraries", library)]
    assert [name for name, _status, _text in rows] == [name for name, what in wanted if what]
    for (_name, status, text), what in zip(rows, (what for _name, what in wanted if what), strict=True):
        assert status == ERROR
        assert text.startswith(f"{what} is not installed and {next(iter(variables))} needs it: ")


def test_each_library_of_this_environment_is_found() -> None:
    installed = environment.read().installed
    assert [name for name in matrix.LIBRARIES if not installed[name]] == []


def test_an_old_ansible_core_is_named_with_the_python_that_a_newer_one_needs() -> None:
    """Ansible warns of it too, without a remedy."""
    rows = evaluated(Controller({**matrix.LIBRARIES, "ansible-core": "2.19.14"}))
    assert [row[1] for row in rows] == [WARNING]
    assert "ansible-core is 2.19.14, older than 2.20.0, the oldest that is supported" in rows[0][2]
    assert "with Python 3.12 or later" in rows[0][2]


def test_the_settings_of_ansible_cfg_are_named_with_their_section() -> None:
    rows = evaluated(Controller(dict(matrix.LIBRARIES), list(controller.CONFIG), processors=16), trays=36)
    texts = " ".join(text for _name, _status, text in rows)
    for words in (
        "any_unparsed_is_failed = true in [inventory]",
        "host_key_checking = false",
        "forks is 5 for 36 trays, so each task takes 8 rounds; set forks = 36",
    ):
        assert words in texts
    assert [status for _name, status, text in rows if "forks" in text] == [INFO]
    assert {status for _name, status, text in rows if "forks" not in text} == {WARNING}
    assert evaluated(Controller(dict(matrix.LIBRARIES))) == []


# --------------------------------------------------------------------------------------------------------------- hosts


@pytest.mark.parametrize(
    ("message", "name", "words"),
    [
        (
            "Failed to connect to the host via ssh: root@10.0.0.1: Permission denied (publickey,password).",
            "ssh",
            "Permission denied (publickey,password): install the public key",
        ),
        ("Host key verification failed.", "ssh", "known_hosts"),
        ("ssh: Could not resolve hostname r01t01: Name or service not known", "ssh", "set ansible_host"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection timed out", "ssh", "Connection timed out: check the power"),
        ("Task failed: Missing sudo password", "become", "Missing sudo password: allow sudo"),
        ("alice is not in the sudoers file.  This incident has been reported.", "become", "not in the sudoers file"),
        ("Module result deserialization failed: /bin/sh: 1: sudo: not found", "become", "sudo: not found: install it"),
        ("/bin/sh: 1: /opt/py/bin/python3: not found", "python", "ansible_python_interpreter"),
        (
            "ansible-core requires a minimum of Python version 3.9. Current version: 3.6.8 (default)",
            "python",
            "Current version: 3.6.8: install Python 3.9 or later",
        ),
        ("the {{ moon }} of r01t01", "answer", "the { { moon }} of the host: run ansible"),
    ],
)
def test_the_texts_of_ssh_sudo_and_python_have_one_cause_each(message: str, name: str, words: str) -> None:
    found = unanswered.of("r01t01", message)
    assert (found["code"], found["severity"]) == (name, ERROR)
    assert words in found["message"]


def test_what_a_host_printed_instead_of_a_result_is_part_of_the_problem() -> None:
    answer = {"failed": True, "msg": "No start of json char found", "module_stdout": "/bin/sh: 1: sudo: not found\r\n"}
    printed = {"failed": True, "msg": "No start of json char found: /bin/sh: 1: sudo: not found"}
    assert plan_steps.clocked(answer, 0.0) == printed
    assert plan_steps.clocked({"msg": "timed out", "module_stdout": ""}, 0.0)["msg"] == "timed out"


def test_root_is_an_error_where_roles_need_it_and_an_information_elsewhere() -> None:
    alice = {"r01t01": report(user="alice", root=False)}
    [(name, status, _host, text)] = found(Site(alice, needs_root=True))
    assert (name, status) == ("become", ERROR)
    assert "Ansible runs as alice, and the roles need root: set ansible_become: true" in text
    assert found(Site(alice))[0][1] == INFO


@pytest.mark.parametrize(("low", "high", "status"), [(-9.0, -2.0, None), (-30, -25, WARNING), (400, 402, ERROR)])
def test_a_clock_is_checked_by_the_least_that_it_can_differ(low: float, high: float, status: str | None) -> None:
    rows = found(Site({"r01t01": report(clock={"low": low, "high": high})}))
    assert [row[1] for row in rows] == ([status] if status else [])
    if status == ERROR:
        assert "munge refuses credentials" in rows[0][3]


@pytest.mark.parametrize("times", [None, {}, {"started": None, "ended": None}])
def test_an_answer_without_times_has_no_clock_and_stops_no_other(times: Any) -> None:
    answer = plan_steps.clocked({"times": times, "python": "3.12.3"}, 0.0)
    assert host_checks.report("r01t01", answer, is_tray=True).problem == "its answer has another shape"


def test_a_driver_without_its_parts_is_an_error_with_the_finding() -> None:
    finding = {"code": "driver_missing", "severity": "error", "message": "Load the driver."}
    broken = report(0, None, findings=[finding])
    assert [row[:3] for row in found(Site({"r01t01": broken}))] == [("driver", ERROR, "r01t01")]
    # Its report as the Slurm controller's host has no GPUs.
    both = Site({"r01t01": broken}, {"r01t01": report(is_tray=False)})
    assert ("driver", ERROR, "r01t01") in [row[:3] for row in found(both)]
    rows = [
        {"code": "gpu_lost", "severity": "error", "message": f"GPU {gpu} is lost; reboot.", "gpu": gpu}
        for gpu in (0, 2)
    ]
    [row] = found(Site({"r01t01": report(findings=rows)}))
    assert row == ("nvml", ERROR, "r01t01", "gpu_lost: each of GPUs [0,2] is lost; reboot")
    for none in (report(0), report(ansible_facts={})):
        assert [row[:2] for row in found(Site({"r01t01": none}))] == [("nvml", ERROR)]


@pytest.mark.parametrize(
    ("installed", "imex", "words"),
    [
        (f"1:{DRIVER}-0ubuntu1", {}, ""),
        (None, {"candidate": f"{DRIVER}-1"}, ""),
        ("570.1.1-1", {}, "the role imex installs that version"),
        (
            None,
            {"offered": ["570.1.1"]},
            f"no nvidia-imex of the driver's version {DRIVER} is installed or",
        ),
    ],
)
def test_the_imex_package_of_the_driver_is_at_hand(installed: str | None, imex: dict[str, Any], words: str) -> None:
    rows = found(Site({"r01t01": report(imex_package=installed, imex=imex)}))
    assert [row[:2] for row in rows] == ([("imex_package", WARNING)] if words else [])
    assert all(words in row[3] for row in rows)
    assert found(Site({"r01t01": report(imex_package=installed, imex=imex)}, with_imex=False)) == []


def connect(name: str, port: int, reason: str = "") -> dict[str, Any]:
    return {"name": name, "address": "10.0.0.9", "port": port, "reason": reason}


def test_a_blocked_network_is_one_line_and_only_a_warning_before_the_first_discovery() -> None:
    """Without a fabric file a neighbour may be in another rack, where IMEX needs no connection."""
    tray_names = [f"r01t{number:02d}" for number in range(1, 19)]
    blocked = {
        name: report(
            connects=[
                connect(peer, 50000, "timed out") for peer in peer_hosts.neighbours(name, [dict.fromkeys(tray_names)])
            ]
        )
        for name in tray_names
    }
    for placed, status in ((True, ERROR), (False, WARNING)):
        rows = [row for row in results.rows(host_checks.checks(Site(blocked, placed=placed))) if row["name"] == "ports"]
        assert rows == [
            {
                "name": "ports",
                "status": status,
                "hosts": "r01t[01-18]",
                "message": "port 50000 of 17 neighbours cannot be reached (timed out): open it in the firewalls,"
                " or correct the addresses",
            }
        ]


def test_a_peer_that_did_not_answer_blocks_no_port() -> None:
    rows = [connect("r01t02", 50000, "timed out")]
    site = Site({"r01t01": report(connects=rows), "r01t02": Report("No route to host")}, placed=True)
    assert [row[0] for row in found(site)] == ["ssh"]


def test_the_slurm_controller_is_checked_by_its_version_and_its_ports() -> None:
    slurm = {"version": "23.11.1", "problem": None}
    ctl = report(is_tray=False, slurm=slurm, connects=[connect("r01t01", 6818, "timed out")])
    rows = found(Site({"r01t01": report()}, {"ctl": ctl}))
    assert [(row[0], row[1], row[2]) for row in rows] == [("ports", ERROR, "ctl"), ("versions", ERROR, "ctl")]
    down = report(
        is_tray=False, slurm={"version": "24.11.5", "problem": "scontrol show config failed: check slurmctld."}
    )
    assert found(Site({}, {"ctl": down}))[0][:3] == ("slurm", WARNING, "ctl")
    limited = {"version": "25.11.4", "problem": None, "limits": ["timeout", "x" * 99]}
    [row] = found(Site({}, {"ctl": report(is_tray=False, slurm=limited)}))
    assert row[:3] == ("slurm", WARNING, "ctl")
    assert "Slurm 25.11.4 waits SlurmdTimeout again" in row[3]


def test_each_tray_is_tried_by_as_many_others_and_no_host_connects_without_bound() -> None:
    many = [f"t{number}" for number in range(40)]
    group = dict.fromkeys(many)
    tried = [peer for name in many for peer in peer_hosts.neighbours(name, [group])]
    assert {tried.count(name) for name in many} == {peer_hosts.MAX_PEERS}
    assert all(name not in peer_hosts.neighbours(name, [group]) for name in many)
    assert len(peer_hosts.sample([str(number) for number in range(10_368)])) <= peer_hosts.MAX_SAMPLE
    assert peer_hosts.sample(["a", "b"]) == ["a", "b"]


def test_the_neighbours_of_a_tray_are_those_of_its_clique_with_the_addresses_of_imex() -> None:
    fabric = fabrics.fabric(racks=2, split=())
    trays = {name: f"{name}.mgmt" for name in fabric.trays}
    first, second, *_others = fabric.members[next(iter(fabric.members))]
    placed = peer_hosts.neighbours(first, peer_hosts.groups(trays, fabric))
    assert set(placed) < set(next(iter(fabric.members.values())))
    assert placed[second] == fabric.trays[second]["imex_address"]
    assert peer_hosts.neighbours(first, peer_hosts.groups(trays, None))[second] == f"{second}.mgmt"
    assert peer_hosts.neighbours("other", peer_hosts.groups(trays, fabric)) == {}


# ------------------------------------------------------------------------------------------------------------ releases


def snapshot(*charts: str) -> dict[str, Any]:
    rows = [{"metadata": {"labels": {"helm.sh/chart": chart}}} for chart in charts]
    return {"daemon_sets": rows[:1], "cluster_policies": rows[1:], "gpu_clusters": [], "not_readable": ["No list"]}


def test_the_releases_of_the_dra_driver_and_gpu_operator_are_named() -> None:
    status, text = plan_steps.releases(snapshot("dra-driver-nvidia-gpu-0.5.0", "gpu-operator-v26.7.2"))
    assert (status, text) == (INFO, "installed by dra-driver-nvidia-gpu 0.5.0 and gpu-operator v26.7.2")
    assert (
        plan_steps.releases(snapshot("nvidia-dra-driver-gpu-25.12.0"))[1]
        == "installed by nvidia-dra-driver-gpu 25.12.0"
    )
    status, text = plan_steps.releases(snapshot("cilium-1.2.3"))
    assert status == results.SKIPPED
    assert text.endswith("was found; No list")


# -------------------------------------------------------------------------------------------------------------- output


def test_equal_problems_are_one_row_and_errors_stand_last_above_the_summary() -> None:
    rows = results.rows(
        [
            *(check("ssh", ERROR, "denied", f"r01t{number:02d}") for number in range(1, 19)),
            check("clock", WARNING, "late", "r01t01"),
            check("ssh", OK, "", "r02t01"),
            check("driver", OK, "580", "r02t01"),
        ]
    )
    summary = results.summary(rows, 19, 1)
    assert summary == "This site needs attention: 1 of 19 trays answered, 1 error (ssh), 1 warning (clock)."
    assert results.lines(rows) == ["ok: driver", "warning: clock: r01t01: late.", "error: ssh: r01t[01-18]: denied."]
    many = results.rows(check("answer", ERROR, f"pid {number}", f"t{number}") for number in range(99))
    assert results.lines([*rows, *many])[1] == "61 more lines are not shown; set doctor_file to read them."
    assert len(results.lines([*rows, *many])) == results.MAX_LINES + 2
    assert results.verdict(rows, summary)["ok"] is False
    assert results.verdict(rows[:3], summary)["ok"] is True
