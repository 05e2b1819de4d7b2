# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, HostError
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    boot,
    domain,
    firewall,
    formats,
    installing,
    job_files,
    job_host,
    packages,
    processes,
    reporting,
    slurm_jobs,
    starting,
    survey,
    tray,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import daemon, state
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import slurmd
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import difference
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex import imex_fleet


def tray_of(desired: domain.DesiredState, check: bool = False) -> tray.Tray:
    return tray.Tray(desired, Host(check), reporting.Options(desired.owner, job=desired.job))


def due(desired: domain.DesiredState, found: Any, **more: Any) -> Any:
    """The row of a tray with this report, and the codes of its findings."""
    row = difference.difference(desired, {**found, **more}, True)
    return row, [note["code"] for note in row["findings"]]


@pytest.mark.parametrize("record", [None, {"clique": "r01", "generation": 1, "sha256": "0" * 64}])
def test_a_tray_with_another_list_or_record_does_not_start(monkeypatch: pytest.MonkeyPatch, record: Any) -> None:
    """Something else may have written it since stop_and_write."""
    desired = domain.DesiredState("domain", "r01", ("192.0.2.1", "192.0.2.2"))
    for sha256 in (desired.sha256, "0" * 64):
        monkeypatch.setattr(starting, "sha256_of", lambda _path, found=sha256: found)
        monkeypatch.setattr(starting, "read_record", lambda: record)
        one = tray_of(desired)
        with pytest.raises(HostError, match="is not the node list of clique r01; find what else writes that file"):
            starting.start(one, 1, False)
        assert one.host.changes == []


CONTACT = "slurm_load_jobs error: Unable to contact slurm controller"


@pytest.mark.parametrize(
    ("script", "seconds", "expected"),
    [
        ('printf "8 (ann)\\n9 (bob)\\n8 (ann)\\n"', 30, (["8 (ann)", "9 (bob)"], None)),
        (f"echo '{CONTACT}' >&2; exit 1", 30, ([], CONTACT)),
        # Long enough for a busy machine to have begun it.
        ("sleep 60", 3.0, ([], "squeue timed out")),
        # A client without a cluster has no jobs.
        ("echo 'fatal: Could not establish a configuration source' >&2; exit 1", 30, ([], None)),
    ],
)
def test_squeue_runs_once_for_the_whole_clique(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, seconds: float, expected: tuple[Any, Any]
) -> None:
    program = tmp_path / "squeue"
    program.write_text(f'#!/bin/sh\necho "$@" "$SLURM_CONF" >> {tmp_path}/calls; {script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    # This machine may run job steps of a lab.
    monkeypatch.setattr(processes, "processes", lambda _wanted: [])
    # squeue does not know of a slurmd that has another slurm.conf than its own.
    monkeypatch.setattr(slurmd, "find", lambda: slurmd.Slurmd("/sched/alps/slurm.conf", "/nowhere"))
    assert slurm_jobs.running_on(["a", "b"], seconds) == expected
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert "--nodelist=a,b" in call
    assert call.endswith(" /sched/alps/slurm.conf")


def test_jobs_that_are_unknown_block_the_stop_of_imex() -> None:
    found = worded(slurm_jobs.blocking_finding([], "squeue timed out", ["a new list"]))
    assert found["code"] == "slurm_unreachable"
    assert found["message"].endswith("; bring slurmctld back, or allow the stop with imex_allow_jobs.")
    other = slurm_jobs.blocking_finding([], "squeue: error: Invalid node name r01t01.example.com", ["a new list"])
    assert "allow_jobs" not in worded(other)["message"]


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The report of a tray with a daemon, which needs no change."""
    observed: dict[str, Any] = {**imex_fleet.tray(), "findings": [], "unit": None, "owners": []}
    monkeypatch.setattr(domain, "difference", lambda *_: ([], []))
    return imex_fleet.report(observed)


@pytest.mark.parametrize(
    ("owner", "record", "service", "asks"),
    [
        ("domain", None, False, True),
        # It leaves the domain, and so may others have.
        ("none", {"clique": "r01", "generation": 3, "sha256": "0"}, False, True),
        ("none", None, True, True),
        ("none", None, False, False),
    ],
)
def test_members_outside_the_run_are_asked_where_a_domain_changes(
    monkeypatch: pytest.MonkeyPatch, owner: str, record: Any, service: bool, asks: bool
) -> None:
    read = imex_fleet.read(**({} if service else {"processes": [], "answers": {}, "unit": None}))
    monkeypatch.setattr(survey, "survey", lambda **_options: read)
    monkeypatch.setattr(reporting, "read_record", lambda: record)
    monkeypatch.setattr(boot, "query", dict.fromkeys)
    options = reporting.Options(owner, outside=["192.0.2.7"], job={**imex_fleet.JOB, "imex_job_python": "/bin/true"})
    assert reporting.report(Host(True), options)["peers"] == ({"192.0.2.7": 50006} if asks else {})


@pytest.mark.parametrize(("local", "expected"), [(True, []), (False, ["imex_no_own_address"])])
def test_a_tray_without_a_line_of_its_own_fails_before_anything_stops(
    running: Any, local: bool, expected: list[str]
) -> None:
    """As where its line and that of another tray are exchanged."""
    desired = domain.DesiredState("domain", "r01", ("198.51.100.11", "198.51.100.12"), "198.51.100.11")
    desired = replace(desired, job=imex_fleet.JOB)
    assert due(desired, running, local=local)[1] == expected
    assert [boot.is_local(entry) for entry in ("127.0.0.1", "198.51.100.11")] == [True, False]


@pytest.mark.parametrize(
    ("major", "count", "loaded", "expected"),
    [
        (None, None, 0, ["imex_channels_not_offered"]),
        (None, 2048, 2048, ["imex_channels_not_offered"]),
        (None, 0, 2048, ["imex_channels_not_offered", "imex_reboot_needed"]),
        (None, 2048, 0, ["imex_reboot_needed"]),
        (234, None, 0, []),
    ],
)
def test_channels_that_the_driver_does_not_offer_fail_unless_a_reboot_brings_them(
    running: Any, major: int | None, count: int | None, loaded: int, expected: list[str]
) -> None:
    """Or the role would say changed, and no device is created."""
    running["facts"]["channels"] = {"major": major, "devices": []}
    entries = ("127.0.0.1",)
    desired = domain.DesiredState("domain", "r01", entries, entries[0], channels=(0,), channel_count=count)
    row, codes = due(replace(desired, job=imex_fleet.JOB), running, params={"ImexChannelCount": loaded})
    assert sorted(codes) == expected
    assert ("create channel0" in row["pending"]) is (major is not None)


@pytest.mark.parametrize("stop", [True, False])
def test_a_member_without_changes_stops_with_its_clique(running: Any, stop: bool) -> None:
    entries = ("192.0.2.1", "192.0.2.2")
    desired = domain.DesiredState("domain", "r01", entries, job=imex_fleet.JOB, manage_firewall=False)
    one = tray_of(desired, check=True)
    assert one.stop_and_write(running, 3, stop)["running"] is not stop
    assert (f"stop {survey.UNIT}" in one.host.changes) is stop
    # Equal differences of several trays are shown once.
    (record,) = [text for path, text in one.host.after.items() if path.endswith("nvlink.json")]
    assert json.loads(record)["since"] == "its time"


def test_what_is_due_is_what_the_change_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = dict.fromkeys((domain.DROP_IN, domain.SOCKET_UNIT, domain.SERVICE_UNIT, formats.CONFIG_FILE), "A=1\n")
    monkeypatch.setattr(survey, "survey", lambda **_options: imex_fleet.read(processes=[], answers={}, unit=None))
    ports = {"name": "ufw", "open": [50000], "opened": {"ufw": [50000, 50099]}}
    monkeypatch.setattr(firewall, "read", lambda *_: ports)
    entries = ("127.0.0.1", "192.0.2.2")
    desired = domain.DesiredState(
        "domain", "r01", entries, entries[0], ("a", "b"), imex_fleet.JOB, texts, channels=(0,), program="#!program\n"
    )
    asked = reporting.Options("domain", files=difference.paths(desired), ports=desired.ports, job=imex_fleet.JOB)
    found = reporting.report(Host(True), asked)
    one = tray_of(desired, check=True)
    one.stop_and_write(found, 0, False, packages.Offer("nvidia-imex", f"{imex_fleet.VERSION}-1"))
    row, _codes = due(desired, json.loads(json.dumps(found)))
    assert row["pending"] == one.host.changes
    assert {"write /usr/local/libexec/nvlink-imex", "open port 50005/tcp in ufw"} <= set(row["pending"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only files of root are as desired")
def test_a_file_of_a_report_differs_as_it_does_on_the_tray(tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("same", "other", "open", "link", "dangling", "folder", "missing")}
    for name in ("same", "other", "open"):
        Path(paths[name]).write_text("other" if name == "other" else "text")
        os.chmod(paths[name], 0o666 if name == "open" else 0o644)
    os.symlink("same", paths["link"])
    os.symlink("nowhere", paths["dangling"])
    os.mkdir(paths["folder"])
    states = {path: known for path in paths.values() if (known := Host(True).state(path)) is not None}
    for data in (b"text", None):
        on_tray, planned = Host(True), difference._Plan(states)
        for path in paths.values():
            if (data, path) != (b"text", paths["dangling"]):
                assert planned.file(path, data) is on_tray.file(path, data)
        assert planned.changes == on_tray.changes
        assert len(planned.changes) == (4 if data else 6)


@pytest.mark.parametrize(("named", "codes"), [(True, []), (False, ["slurm_conf_inconsistent"])])
def test_imex_per_job_writes_the_files_that_slurm_runs_last(tmp_path: Path, named: bool, codes: list[str]) -> None:
    """A slurm.conf that does not name them yet is an error after that, in each run until it does."""
    folders = {"prolog_dir": str(tmp_path / "prolog.d"), "epilog_dir": str(tmp_path / "epilog.d")}
    lines = "Prolog={prolog_dir}/*\nEpilog={epilog_dir}/*\n" if named else ""
    (tmp_path / "slurm.conf").write_text(f"PrologFlags=Alloc\n{lines.format(**folders)}")
    job = {"policy": "drain", "wait": 60, "stop_wait": 20, "min_trays": 2, "max_requeues": 3}
    job |= {"channel0": "auto", "path": [], "python": sys.executable, "slurm_conf": f"{tmp_path}/slurm.conf", **folders}
    job = {f"imex_job_{name}": value for name, value in job.items()}
    texts = {domain.DROP_IN: "x\n", domain.SOCKET_UNIT: "x\n", domain.SERVICE_UNIT: "x\n"}
    entries = ("127.0.0.1", "192.0.2.2")
    desired = domain.DesiredState(
        "job", "r01", entries, entries[0], ("a", "b"), job, texts, manage_package=False, manage_firewall=False
    )
    desired = replace(desired, job_program="AA==")
    one = tray_of(desired, check=True)
    observed = {**imex_fleet.tray(processes=[], answers={}, package=None), "unit": None, "owners": [], "findings": []}
    report = imex_fleet.report(observed, slurm=job_host.read("job", job, desired.nodes))
    found = one.stop_and_write(report, 3, False)
    assert [note["code"] for note in found["findings"]] == codes
    last = [state.SETTINGS_FILE, job_files.PROGRAM, *(f"{folder}/{job_files.NAME}" for folder in folders.values())]
    assert one.host.changes[-4:] == [f"write {path}" for path in last]
    assert {f"write {path}" for path in (domain.TMPFILES, *texts)} == set(one.host.changes[:4])
    settings = json.loads(one.host.after[state.SETTINGS_FILE])
    assert (settings["generation"], settings["members"]) == (3, [["a", "127.0.0.1"], ["b", "192.0.2.2"]])
    assert boot.parse_record(one.host.after[state.SETTINGS_FILE]) == settings
    assert settings["sha256"] == domain.list_digest("job", ("a", "b"), entries)
    reported = ["the findings on slurm.conf (slurm_conf_inconsistent)"] * len(codes)
    observed["version"] = observed["driver_version"]
    assert due(desired, report)[0]["pending"] == [*one.host.changes, *reported]


@pytest.mark.parametrize(
    ("owner", "name", "job", "runs", "expected"),
    [
        ("domain", job_files.NAME, None, False, []),
        ("domain", job_files.NAME, None, True, ["service"]),
        ("domain", "site", None, False, ["prolog"]),
        ("job", job_files.NAME, None, False, ["prolog"]),
        # A daemon that no job started stops.
        ("job", job_files.NAME, None, True, ["service"]),
        ("job", job_files.NAME, "7", True, ["prolog"]),
    ],
)
def test_the_roles_own_prolog_is_no_other_owner(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: str,
    name: str,
    job: str | None,
    runs: bool,
    expected: list[str],
) -> None:
    """With --check IMEX per job is still on the tray; a finding of its own reports the daemon of a job."""
    monkeypatch.setattr(state, "RUN", str(tmp_path))
    if job:
        state.write_state({"job": job})
    unit = imex_fleet.unit(active="active" if runs else "inactive", enabled="disabled")
    changes: dict[str, Any] = {} if runs else {"processes": [], "answers": {}}
    read = imex_fleet.read(prolog_files=[f"/etc/slurm/prolog.d/{name}"], unit=unit, **changes)
    monkeypatch.setattr(survey, "survey", lambda **_options: read)
    observed = reporting.facts(reporting.Options(owner))[0]
    assert [entry["owner"] for entry in observed["owners"]] == expected
    if owner == "job":
        assert bool(domain.difference(domain.DesiredState(owner), observed, None)[1]) is (expected == ["service"])


def test_a_job_that_begins_before_its_daemon_would_stop_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: Any
) -> None:
    """With owner job: a daemon that no job had started, or another package."""
    monkeypatch.setattr(state, "RUN", str(tmp_path))
    monkeypatch.setattr(daemon, "daemons", lambda: [(8, True)])
    monkeypatch.setattr(domain, "difference", lambda *_: ([], ["another owner"]))
    monkeypatch.setattr(tray.Tray, "_stop", lambda *_: pytest.fail("the daemon is stopped"))
    monkeypatch.setattr(job_host, "files_of", lambda *_: {})
    state.write_state({"job": "7"})
    one = tray_of(domain.DesiredState(owner="job", job=imex_fleet.JOB))
    with pytest.raises(job_host.Blocked) as found:
        one.stop_and_write(running, 3, False)
    assert [note["code"] for note in found.value.findings] == ["jobs_running"]


@pytest.mark.parametrize(
    ("version", "expected"), [("570.172", []), ("570.172.08", []), ("570.133", ["imex_version_mismatch"])]
)
def test_an_imex_of_the_drivers_version_needs_no_package(version: str, expected: list[str]) -> None:
    """Where the site installs IMEX itself, the ctl of R570 prints only 570.172 of 570.172.08."""
    desired = domain.DesiredState(owner="domain", manage_package=False)
    observed: Any = {"package": None, "installed": True, "version": version, "driver_version": "570.172.08"}
    offer, findings = installing.offer_of(desired, observed, None)
    assert (offer, [found["code"] for found in findings]) == (None, expected)
