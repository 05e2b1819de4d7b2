# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Block topology with real slurmctlds 24.11 and 26.05: they agree with the linter, failures roll back, jobs stay."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf_folder, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import sandbox as isolation
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import linter, plan_gates, planning, topology_files
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_corpus
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_corpus import CASES, Case
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import faults

from .commands import ansible, unchanged
from .conftest import LabFactory
from .slurm_site import (
    FILE,
    RACKS,
    SPLIT,
    Site,
    apply,
    configure,
    contents,
    differs,
    fabric,
    module,
    plan,
    slurm_of,
    start,
    state,
    submit,
    survey,
    task,
    wait_for,
    write,
)
from .slurmctld import EACH_SUITE, SUITES, Slurmctld, sandbox

pytestmark = pytest.mark.lab

# One tray of the first rack stands in the second.
MOVED = (slurm_corpus.block("r01", "r01t[01-17]"), slurm_corpus.block("r02", "r01t18,r02t[01-18]"))
TREE = slurm_corpus.tree("top l[1-2]", *slurm_corpus.LEAVES)[0]
FLAT = slurm_corpus.flat()
newer = pytest.mark.parametrize("slurmctld", ["forky"], indirect=True)


@pytest.fixture(params=EACH_SUITE)
def slurmctld(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Slurmctld]:
    """A slurmctld of either version that runs the two racks."""
    with sandbox(request.param, tmp_path / "slurm") as made:
        start(made)
        yield made


@pytest.fixture(params=EACH_SUITE, scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurmctld]:
    """One slurmctld of each version for tests that load files of their own: each first writes all that it needs."""
    with sandbox(request.param, tmp_path_factory.mktemp("shared") / "slurm") as made:
        start(made)
        yield made


# ------------------------------------------------------------------------------------------ linter against daemon


def corpus() -> Iterator[ParameterSet]:
    """Each case on each release that has its settings; in `make test` the first one of each result on the newest."""
    for suite, version in sorted(SUITES.items()):
        known = set()
        for case in CASES:
            codes = case.codes((*version, 5))
            if codes is not None:
                quick = suite == "forky" and codes not in known
                known.add(codes)
                yield pytest.param(suite, case, id=f"{suite}-{case.name}", marks=() if quick else pytest.mark.long)


@pytest.mark.parametrize(("shared", "case"), list(corpus()), indirect=["shared"])
def test_linter_and_slurmctld_agree(shared: Slurmctld, case: Case) -> None:
    version = slurm_of(shared).version()
    candidate = case.candidate(version)
    start_of_log = shared.log.stat().st_size
    configure(shared, case)
    text = topology_files.render([candidate.topology, *candidate.others], candidate.style)
    (shared.conf_dir / FILE[shared.suite]).write_text(text)
    refused = not shared.reconfigure()
    try:
        log = shared.log.read_text()[start_of_log:]
        linted = [(rule, worded(found)) for rule, found in linter.hits(candidate)]
        if any(rule.slurmctld == "fatal" for rule, _found in linted):
            assert refused, f"the linter calls it fatal, slurmctld accepted it: {linted}"
            assert "fatal: " in log
        if refused:
            assert any(found["severity"] == "error" for _rule, found in linted), f"the linter accepted it: {log}"
        if all(rule.slurmctld in ("silent", "warning") for rule, _found in linted):
            assert not refused, f"the linter calls it loadable: {log}"
        warned = {
            "slurm_node_unknown": "Invalid hostnames in block configuration",
            "tray_unplaced": "lack access",
        }
        for code, text in warned.items():
            if not refused and code in case.codes(version):
                assert text in log
        if not refused and not any(found["severity"] == "error" for _rule, found in linted):
            # Our reader and our own making of aggregates agree with what slurmctld made of it.
            desired = candidate.topology
            if not desired.block_sizes and candidate.style == "yaml":
                assert not survey(shared).runs.blocks("nvlink").block_sizes
            else:
                assert differs(shared, desired) == ""
    finally:
        # An accepted file stays until the next one; slurmctld runs none that it has refused.
        if refused:
            write(shared)
            assert shared.reconfigure()


def test_hostlists_are_read_as_scontrol_reads_them(shared: Slurmctld) -> None:
    valid = ["r[01-02]t[01-18],cpu1", "a[1-2]b[3,5-6]c[007-011]d", "x-1.y[2-3]z a[9-11]", "a[09-11,009]", "a[01-1]"]
    odd = ["[1-2]", "a[1-2]]", "a[1-2", "a[]", "a[x]", "a[3-1]", "a[1-3/2]", "a[1-100000]", "a[1-65536]"]
    for hostlist in (*valid, *odd):
        answer = shared.run("scontrol", "show", "hostnames", hostlist)
        try:
            ours = expand(hostlist)
        except HostlistError:
            assert "Invalid hostlist" in answer.stdout + answer.stderr, hostlist
        else:
            theirs = answer.stdout.split()
            assert ours == theirs if hostlist.count("[") < 2 else sorted(ours) == sorted(theirs), hostlist


# ------------------------------------------------------------------------------------------------------- apply


def test_a_refused_topology_is_rolled_back(slurmctld: Slurmctld) -> None:
    job = submit(slurmctld, "r01t01", "r01t02")
    before = state(slurmctld)
    bad = plan(slurmctld, RACKS, block_sizes=(18, 54))
    assert [found["code"] for found in bad.stopped_by()] == ["slurm_block_size"]
    # As if the linter had not known it.
    actions.begin()
    with pytest.raises(SlurmError) as caught:
        apply(bad)
    path, scontrol = slurmctld.conf_dir / FILE[slurmctld.suite], f"run {slurmctld.bin_dir}/scontrol reconfigure"
    words = [row.partition(" (")[0] for row in actions.done()]
    assert words[:3] == [f"write {path}", scontrol, f"restore {path}"]
    assert set(words[3:]) == {scontrol}
    assert "slurmctld refused the new topology (Invalid BlockSizes value" in str(caught.value)
    assert str(caught.value).endswith("; the old files were restored, and slurmctld runs as before.")
    assert state(slurmctld) == before
    # What lies there now also starts, and the job is still there.
    slurmctld.kill_slurmctld()
    slurmctld.launch()
    assert state(slurmctld) == before
    assert slurmctld.run("squeue", "-h", "-o", "%A %N").stdout.split() == [job, "r01t[01-02]"]


@newer
def test_a_refused_file_of_an_interrupted_run_is_rolled_back(slurmctld: Slurmctld) -> None:
    """Killed between writing and loading, with the valid file as .previous."""
    path = slurmctld.conf_dir / FILE[slurmctld.suite]
    before, bad = state(slurmctld), plan(slurmctld, RACKS, block_sizes=(18, 54))
    conf_folder.Files(bad.observed.main).put(str(path), bad.writes[str(path)].encode())
    again = plan(slurmctld, RACKS, block_sizes=(18, 54))
    assert (again.writes, again.reconfigure) == ({}, True)
    with pytest.raises(SlurmError, match=r"the old files were restored, .* runs as before\."):
        apply(again)
    assert state(slurmctld) == before


@pytest.mark.long
def test_a_kill_at_any_system_call_of_an_apply_is_finished_by_the_next(tmp_path: Path) -> None:
    """Of the calls that change files or start processes; a scontrol that runs already ends by itself."""
    with sandbox("trixie", tmp_path / "slurm") as slurmctld:
        start(slurmctld)
        path = slurmctld.conf_dir / FILE[slurmctld.suite]
        folder = str(slurmctld.conf_dir)
        for step, (blocks, size) in zip(range(200), itertools.cycle([(SPLIT, 9), (RACKS, 18)]), strict=False):
            before, desired = path.read_bytes(), plan(slurmctld, blocks, block_sizes=(size,))
            after = desired.writes[str(path)].encode()

            def locked(desired: planning.Plan = desired) -> None:
                with conf_folder.locked(folder, 5):
                    apply(desired)

            killed = faults.run(locked, step, faults.CHANGING).killed
            assert path.read_bytes() in (before, after)
            with conf_folder.locked(folder, 5):
                apply(plan(slurmctld, blocks, block_sizes=(size,)))
            assert path.read_bytes() == after
            assert differs(slurmctld, desired.topology) == ""
            visible = {name for name in contents(slurmctld) if not name.startswith(".")}
            assert visible == {"slurm.conf", path.name, f"{path.name}.previous"}
            if not killed:
                assert step > 10
                return
    pytest.fail("the apply never ends")


# ------------------------------------------------------------------------------------- slurm.conf and its plugin


def test_settings_are_managed_in_a_file_of_their_own(slurmctld: Slurmctld) -> None:
    path = slurmctld.conf_dir / FILE[slurmctld.suite]
    path.unlink()
    configure(slurmctld, plugin="", prolog="")
    assert slurmctld.reconfigure()
    site = (slurmctld.conf_dir / "slurm.conf").read_text()
    first = plan(slurmctld, RACKS, manage_conf=True)
    assert not first.stopped_by()
    apply(first)
    config = slurm_of(slurmctld).config()
    assert config["prologflags"] == "Alloc"
    if slurmctld.suite == "trixie":
        assert config["topologyplugin"] == "topology/block"
    assert (slurmctld.conf_dir / "slurm.conf").read_text() == site + "Include nvlink_topology.conf\n"
    assert not plan(slurmctld, RACKS, manage_conf=True).changed
    # It also starts from nothing.
    slurmctld.kill_slurmctld()
    slurmctld.launch()
    assert not plan(slurmctld, RACKS, manage_conf=True).changed


@pytest.mark.long
@pytest.mark.parametrize(
    ("suite", "manage", "expected"),
    [
        ("trixie", True, ["override", "done"]),
        ("trixie", False, ["move", "change", "reconfigure", "done"]),
        ("forky", True, ["override", "remove", "done"]),
    ],
)
def test_a_running_tree_becomes_blocks_where_each_message_is_obeyed(
    suite: str, manage: bool, expected: list[str], tmp_path: Path
) -> None:
    """No message may end slurmctld: 24.11 does not start where file and plugin do not fit."""
    with sandbox(suite, tmp_path / "slurm") as slurmctld:
        configure(slurmctld, plugin="topology/tree")
        path, conf = slurmctld.conf_dir / "topology.conf", slurmctld.conf_dir / "slurm.conf"
        path.write_text("SwitchName=top Nodes=r01t[01-18],r02t[01-18]\n")
        slurmctld.start()
        site, job, done, override = Site(slurmctld, tmp_path), submit(slurmctld, "r01t01", "r01t02"), [], []
        site.write({"r01": "r01t[01-18]", "r02": "r02t[01-18]"})
        if (suite, manage) == ("trixie", True):
            before = contents(slurmctld)
            with pytest.raises(SlurmError, match=r"the old files were restored, and slurmctld runs as before\."):
                apply(plan(slurmctld, RACKS, block_sizes=(18, 54), manage_conf=True))
            assert (contents(slurmctld), survey(slurmctld).plugin) == (before, "topology/tree")
        while "done" not in done:
            assert len(done) < 5, done
            # The sandbox of the gate live_changes_lost cannot run in another one.
            given = {"slurm_topology_override": [*override, "live_changes_lost"]}
            played = site.play(slurm_topology_manage_conf=manage, **given)
            output = " ".join((played.stdout + played.stderr).split())
            if found := re.search(r"override\\? \(variable slurm_topology_override\) to (\S+)", output):
                done, override = [*done, "override"], found[1].split(",")
            elif "move it away without a restart" in output:
                done = [*done, "move"]
                path.rename(tmp_path / "tree.conf")
            elif "change that line, without a restart" in output:
                done = [*done, "change"]
                conf.write_text(conf.read_text().replace("topology/tree", "topology/block"))
            elif "run scontrol reconfigure" in output:
                done = [*done, "reconfigure"]
                assert slurmctld.reconfigure()
            elif "topology.conf is no longer read" in output and "remove" not in done:
                done = [*done, "remove"]
                path.unlink()
            else:
                done, override = [*done, "done"], []
                assert played.returncode == 0, output
            assert slurmctld.answers(0), done
            assert slurmctld.run("squeue", "-h", "-o", "%A %N").stdout.split() == [job, "r01t[01-02]"]
        assert done == expected
        assert unchanged(site.play(slurm_topology_manage_conf=manage).stdout)
        slurmctld.kill_slurmctld()
        slurmctld.launch()
        assert "BlockName=r02 " in slurmctld.run("scontrol", "show", "topology").stdout
        assert slurmctld.run("squeue", "-h", "-o", "%A %N").stdout.split() == [job, "r01t[01-02]"]
        if (suite, manage) == ("trixie", True):
            assert "\n#TopologyPlugin=topology/tree\n" in conf.read_text()
            assert "SwitchName=top" in path.with_name("topology.conf.previous").read_text()


@pytest.mark.long
def test_the_tree_of_a_topology_conf_moves_to_topology_yaml(tmp_path: Path) -> None:
    """26.05 would read the new topology.yaml instead of the topology.conf with the site's tree."""
    with sandbox("forky", tmp_path / "slurm") as slurmctld:
        configure(slurmctld, plugin="topology/tree")
        (slurmctld.conf_dir / "topology.conf").write_text(
            "SwitchName=top Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=r01t[01-18]\n"
            "SwitchName=leaf2 Nodes=r02t[01-18] LinkSpeed=100\n"
        )
        slurmctld.start()
        stopped = plan(slurmctld, RACKS, override=()).stopped_by()
        assert [found["code"] for found in stopped] == ["cluster_default_changes"]
        kept = plan(slurmctld, RACKS, override=(), cluster_default="default")
        assert kept.stopped_by() == []
        moved = plan(slurmctld, RACKS)
        # Until then topology.conf is the site's only copy.
        assert "other_file" not in [found["case"] for found in moved.findings]
        assert "topology default: the tree of topology.conf, 3 switches, moves here" in moved.difference
        assert "cluster default: default -> nvlink" in moved.difference
        apply(moved)
        running = slurm_of(slurmctld).topologies((26, 5, 5))
        assert [(known.name, known.kind, known.cluster_default) for known in running] == [
            ("nvlink", "block", True),
            ("default", "tree", False),
        ]
        assert "r02t[01-18]" in json.dumps(running[1].body)
        after = plan(slurmctld, RACKS, override=())
        assert (after.changed, "other_file" in [found["case"] for found in after.findings]) == (False, True)
        # A topology of the site is not replaced by one of its name.
        assert "slurm_topology_foreign" in [
            found["code"] for found in plan(slurmctld, RACKS, name="default").stopped_by()
        ]


# ---------------------------------------------------------------------------------- the playbook


@pytest.fixture
def site(slurmctld: Slurmctld, tmp_path: Path) -> Site:
    return Site(slurmctld, tmp_path)


def test_the_playbook_shows_and_applies_moves_and_is_idempotent(site: Site) -> None:
    site.write({"r01": "r01t[01-18]", "r02": "r02t[01-18]"})
    assert unchanged(site.play().stdout)
    # r02 is cut into two NVLink partitions, and its tray 1 is swapped into the first rack.
    site.write({"r01": "r01t[01-18],r02t01", "r02": "r02t[02-09]", "r02b": "r02t[10-18]"})
    before = state(site.slurmctld)
    stopped = site.play()
    assert stopped.returncode != 0
    assert (
        "Block r02 would shrink from 18 to 8 nodes: check the fabric file, or set override (variable"
        " slurm_topology_override) to" in stopped.stdout
    )
    assert state(site.slurmctld) == before
    split = {"slurm_topology_override": "base_shrinks,block_shrinks,live_changes_lost"}
    shown = site.play("--check", "--diff", **split)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    for line in ("r02t01: r02 -> r01", "block r02b: new at position 2, 9 trays: r02t[10-18]"):
        assert line in shown.stdout.splitlines()
    assert "changed=1" in shown.stdout
    assert state(site.slurmctld) == before
    applied = site.play(**split)
    assert "changed=1" in applied.stdout, applied.stdout + applied.stderr
    assert "Nodes=r01t[01-18],r02t01 " in site.slurmctld.run("scontrol", "show", "topology").stdout
    after = state(site.slurmctld)
    assert unchanged(site.play().stdout)
    assert state(site.slurmctld) == after


@pytest.mark.long
@newer
def test_state_absent_removes_the_topology(site: Site) -> None:
    slurmctld = site.slurmctld
    site.write({"r01": "r01t[01-18]", "r02": "r02t[01-18]"})
    absent = {"slurm_topology_state": "absent", "slurm_topology_timeout": 90}
    before = state(slurmctld)
    shown = site.play("--check", "--diff", **absent)
    assert "changed=1" in shown.stdout, shown.stdout + shown.stderr
    assert state(slurmctld) == before
    assert "changed=1" in site.play(**absent).stdout
    after = contents(slurmctld)
    assert not [name for name in after if "topology" in name or "previous" in name], after.keys()
    assert b"nvlink" not in after["slurm.conf"]
    assert "BlockName" not in slurmctld.run("scontrol", "show", "topology").stdout
    assert unchanged(site.play(**absent).stdout)


@newer
def test_a_result_lists_what_was_done(slurmctld: Slurmctld) -> None:
    path = slurmctld.conf_dir / FILE[slurmctld.suite]
    would, did, again = (module(slurmctld, MOVED, *more) for more in (["--check"], [], []))
    assert (would["changed"], would["actions"]) == (True, [])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    about = f"(mode {path.stat().st_mode & 0o7777:04o}, {path.stat().st_size} bytes, sha256 {digest})"
    assert did["actions"] == [f"write {path} {about}", f"run {slurmctld.bin_dir}/scontrol reconfigure"]
    assert (again["changed"], again["actions"]) == (False, [])


def test_info_returns_the_running_topology(slurmctld: Slurmctld) -> None:
    before = state(slurmctld)
    result = task("slurm_topology_info", slurmctld)
    assert not result["changed"]
    assert [(block["name"], len(block["nodes"])) for block in result["topology"]["blocks"]] == [
        ("r01", 18),
        ("r02", 18),
    ]
    assert result["topology"]["block_sizes"] == [18]
    assert result["file"] == {"path": str(slurmctld.conf_dir / FILE[slurmctld.suite]), "exists": True, "running": True}
    assert result["findings"] == []
    assert state(slurmctld) == before
    path = slurmctld.conf_dir / FILE[slurmctld.suite]
    path.write_text(path.read_text().replace("r02t[01-18]", "r02t[02-18],r01t01"))
    result = task("slurm_topology_info", slurmctld)
    assert result["file"]["running"] is False
    assert [finding["code"] for finding in result["findings"]] == ["slurm_topology_differs"]


@pytest.mark.long
def test_jobs_and_configless_trays_survive_a_new_topology(lab: LabFactory, tmp_path: Path) -> None:
    """A cluster without any topology gets one while jobs run, after a rehearsal; then trays move."""
    with lab("four-forky.yml") as racks:
        file = tmp_path / "fabric.json"
        cached = "/var/spool/slurmd/conf-cache/topology.yaml"

        def play(blocks: dict[str, str], **more: Any) -> subprocess.CompletedProcess[str]:
            file.write_text(json.dumps(fabric(blocks)))
            variables = {"fabric_file": str(file), "slurm_topology_manage_conf": True, **more}
            arguments = ("-i", racks.inventory, "rackscale.nvlink.slurm", "-e", json.dumps(variables))
            return ansible("ansible-playbook", *arguments, check=False)

        def submit(nodes: str, command: str = "srun sleep 300") -> str:
            arguments = ("sbatch", "--parsable", "-w", nodes, "-o", "/tmp/%j.out", "--wrap", command)
            return racks.exec("ctl", *arguments).stdout.strip()

        def running_on(job: str) -> str:
            return racks.exec("ctl", "squeue", "-h", "-j", job, "-t", "RUNNING", "-o", "%N").stdout.strip()

        job = submit("r01t[01-04]")
        wait_for(lambda: running_on(job) == "r01t[01-04]")
        whole = {"r01": "r01t[01-02]", "r02": "r01t[03-04]"}
        # A rehearsal with a required job stops the apply.
        stopped = play(whole, slurm_topology_rehearse_jobs=[{"nodes": 5, "required": True}])
        assert "would be pending for ever" in " ".join(stopped.stdout.split())
        assert "BlockName" not in racks.exec("ctl", "scontrol", "show", "topology", check=False).stdout
        first, again = play(whole).stdout, play(whole).stdout
        assert "changed=1" in first
        assert " loads the new files and places jobs on 2 of 2 blocks." in first
        assert unchanged(again)
        assert "ehearsal" not in again
        assert racks.exec("ctl", "pgrep", "-fc", isolation.FOLDER, check=False).stdout.strip() == "0"
        assert "BlockName=r02 " in racks.exec("ctl", "scontrol", "show", "topology").stdout
        assert running_on(job) == "r01t[01-04]"
        names = racks.exec("r01t01", "ls", "/var/spool/slurmd/conf-cache").stdout.split()
        assert {"nvlink_topology.conf", cached.rpartition("/")[2]} <= set(names)
        busy = ("ctl", "sinfo", "-h", "-t", "mix,alloc", "-o", "%N")
        wait_for(lambda: racks.exec(*busy).stdout.strip() == "r01t[01-04]")

        # A job on a moving tray stops the change with a message; with allow_moving_jobs the job continues.
        stopped = play({"r01": "r01t01", "r02": "r01t[02-04]"})
        assert stopped.returncode != 0
        assert f"1 job runs on trays that change their block (job {job} of root on r01t02)" in stopped.stdout
        allowed = {"slurm_topology_allow_moving_jobs": True, "slurm_topology_block_sizes": [3]}
        assert "changed=1" in play({"r01": "r01t01", "r02": "r01t[02-04]"}, **allowed).stdout
        assert "r01t[02-04]" in racks.exec("r01t01", "cat", cached).stdout
        assert "changed=1" in play({"r01": "r01t[01-02]", "r02": "r01t[03-04]"}, **allowed).stdout
        assert running_on(job) == "r01t[01-04]"
        assert (
            "BlockName=r02 BlockIndex=1 Nodes=r01t[03-04] " in racks.exec("ctl", "scontrol", "show", "topology").stdout
        )
        racks.exec("ctl", "scancel", job)
        address = submit("r01t02", "echo $SLURM_TOPOLOGY_ADDR")
        wait_for(lambda: racks.exec("r01t02", "cat", f"/tmp/{address}.out", check=False).stdout != "")
        output = racks.exec("r01t02", "cat", f"/tmp/{address}.out").stdout.strip()
        assert output == "r01.r01t02"
        assert "r01t[03-04]" in racks.exec("r01t01", "cat", cached).stdout

        # A tray without power does not stop a reconfigure, and jobs on the others continue.
        job = submit("r01t[01-02]")
        wait_for(lambda: running_on(job) == "r01t[01-02]")
        racks.stop("r01t04")
        assert "changed=1" in play({"r01": "r01t[01-02]", "r02": "r01t03", "r02b": "r01t04"}, **allowed).stdout
        assert "BlockName=r02b BlockIndex=2 Nodes=r01t04 " in racks.exec("ctl", "scontrol", "show", "topology").stdout
        wait_for(lambda: "r02b" in racks.exec("r01t01", "cat", cached).stdout)
        assert running_on(job) == "r01t[01-02]"
        # The tray comes back into its block.
        racks.start("r01t04")
        racks.exec("ctl", "scontrol", "update", "nodename=r01t04", "state=resume", check=False)
        wait_for(lambda: "r02b" in racks.exec("r01t04", "cat", cached, check=False).stdout)
        racks.exec("ctl", "scancel", job)


@pytest.mark.long
def test_a_clique_that_is_split_gives_a_tier_its_small_block(lab: LabFactory, tmp_path: Path) -> None:
    """discover, accept and slurm with slurm_topology_split; a job in the small block; then the split is taken back."""
    scenario, file = tmp_path / "scenario.yml", tmp_path / "fabric.json"
    racks_of = [{"name": "r01", "trays": 4}, {"name": "r02", "trays": 2}]
    scenario.write_text(json.dumps({"suite": "forky", "racks": racks_of}))
    small = {"name": "interactive", "blocks": ["r01-2"]}
    whole = {"name": "rack", "cliques": ["r01"]}

    with lab(scenario) as racks:

        def play(playbook: str, check: bool = True, **given: Any) -> str:
            variables = {"fabric_file": str(file), "slurm_topology_manage_conf": True, "fabric_accept": "gates"}
            variables.update({"slurm_tiers_manage_conf": True, **given})
            arguments = ("-i", racks.inventory, f"rackscale.nvlink.{playbook}", "-e", json.dumps(variables))
            done = ansible("ansible-playbook", *arguments, check=check)
            return done.stdout + done.stderr

        def blocks() -> list[tuple[str, str]]:
            text = racks.exec("ctl", "scontrol", "show", "topology").stdout
            return re.findall(r"^BlockName=(\S+) BlockIndex=\d+ Nodes=(\S*) ", text, re.MULTILINE)

        play("discover")
        assert "changed=1" in play("slurm")
        assert blocks() == [("r01", "r01t[01-04]"), ("r02", "r02t[01-02]")]
        before = file.read_bytes()

        refused = play("discover", check=False, slurm_topology_split={"r01": [2, 1]})
        assert (
            "slurm_topology_split: the sizes [2, 1] of r01 are 3 trays in all, and the fabric file has 4 there"
            in " ".join(refused.split())
        )
        assert file.read_bytes() == before
        said = play("discover", slurm_topology_split={"r01": [2, 2]})
        assert "block none -> r01-2" in said
        tiers = [small, whole]
        # In one clique no gate objects, and the base block size that the other rack would have had is named.
        said = " ".join(play("slurm", slurm_tiers=tiers).split())
        assert "The base block size of all blocks is 2 instead of 4, since r01, r01-2 have fewer trays" in said
        assert unchanged(play("slurm", slurm_tiers=tiers))
        assert blocks() == [("r01", "r01t[01-02]"), ("r02", "r02t[01-02]"), ("r01-2", "r01t[03-04]")]
        variables = ("ansible-inventory", "-i", str(tmp_path / "fabric.nvlink.yml"), "--list")
        (tmp_path / "fabric.nvlink.yml").write_text(
            json.dumps({"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": str(file)})
        )
        hosts = json.loads(ansible(*variables).stdout)["_meta"]["hostvars"]
        assert [hosts[f"r01t0{tray}"]["nvlink_block"] for tray in (1, 2, 3, 4)] == ["r01"] * 2 + ["r01-2"] * 2
        assert {hosts[f"r01t0{tray}"]["nvlink_clique_name"] for tray in (1, 2, 3, 4)} == {"r01"}

        options = ("--parsable", "--chdir=/tmp", "-o", "/tmp/%j.out", "--exclusive", "-p", "interactive", "-N2")
        command = "echo $SLURM_TOPOLOGY_ADDR; sleep 300"
        job = racks.exec("ctl", "sbatch", *options, "--wrap", command).stdout.strip()
        running = ("ctl", "squeue", "-h", "-t", "RUNNING", "-o", "%N")
        wait_for(lambda: racks.exec(*running).stdout.strip() == "r01t[03-04]")
        wait_for(lambda: racks.exec("r01t03", "cat", f"/tmp/{job}.out").stdout.strip() == "r01-2.r01t03")
        racks.exec("ctl", "scancel", job)
        wait_for(lambda: not racks.exec(*running).stdout.strip())

        play("discover", slurm_topology_split={})
        assert "block r01-2 has no tray, leave it out" in " ".join(play("slurm", False, slurm_tiers=tiers).split())
        play("slurm", slurm_tiers=[whole])
        assert unchanged(play("slurm", slurm_tiers=[whole]))
        assert blocks() == [("r01", "r01t[01-04]"), ("r02", "r02t[01-02]")]
        # The placeholder keeps its position in the file; scontrol prints no nodes of it.
        assert "r01-2" in racks.exec("ctl", "cat", "/etc/slurm/topology.yaml").stdout
        assert unchanged(play("discover", slurm_topology_split={}))


CODE = (
    "import json, sys; from ansible.module_utils import basic;"
    "basic._ANSIBLE_ARGS = json.dumps({'ANSIBLE_MODULE_ARGS': json.loads(sys.argv[1])}).encode();"
    "basic._ANSIBLE_PROFILE = 'legacy';"
    "from ansible_collections.rackscale.nvlink.plugins.modules.slurm_host import main; main()"
)


@newer
def test_a_terminated_module_restores_the_old_file(slurmctld: Slurmctld, tmp_path: Path) -> None:
    before = state(slurmctld)
    waiting = tmp_path / "waiting"
    slurmctld.program(
        "scontrol",
        f'[ "$1" = reconfigure ] && [ ! -e {waiting} ] && touch {waiting} && exec sleep 8\n'
        f'exec {slurmctld.real("scontrol")} "$@"',
    )
    step = {"step": "transact", "change": plan(slurmctld, SPLIT, block_sizes=(9,)).change()}
    arguments = {**step, "conf_dir": str(slurmctld.conf_dir), "bin_dir": str(slurmctld.bin_dir)}
    command = [sys.executable, "-c", CODE, json.dumps(arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(waiting.exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=240)
    assert state(slurmctld) == before


@pytest.fixture
def forky(tmp_path: Path) -> Iterator[Slurmctld]:
    with sandbox("forky", tmp_path / "slurm") as made:
        yield made


def topology(slurmctld: Slurmctld) -> str:
    return slurmctld.run("scontrol", "show", "topology").stdout


def start_with(slurmctld: Slurmctld, *topologies: Topology) -> None:
    """A slurmctld whose topology.yaml has further topologies."""
    configure(slurmctld)
    mine = Case("").candidate((26, 5, 5)).topology
    (slurmctld.conf_dir / "topology.yaml").write_text(topology_files.render([mine, *topologies], "yaml"))
    slurmctld.start()


# ------------------------------------------------------------------------------------------------------ running jobs


def test_jobs_that_start_on_moving_trays_after_the_plan_stop_it(slurmctld: Slurmctld) -> None:
    elsewhere = submit(slurmctld, "r01t01")
    sizes = {"block_sizes": (9,)}
    early = plan(slurmctld, SPLIT, **sizes)
    # As during a rehearsal of minutes; one stays in one block.
    inside, across = submit(slurmctld, "r02t01", "r02t02"), submit(slurmctld, "r02t09", "r02t10")
    before = state(slurmctld)
    with pytest.raises(SlurmError, match=f"^1 job has started on trays that change .*{across}.*nothing was changed"):
        apply(early)
    early.observed.checksums = {**early.observed.checksums, FILE[slurmctld.suite]: "0"}
    with pytest.raises(conf_folder.Outdated, match=r"Another program has changed .*topology.*: run again"):
        apply(early)
    assert state(slurmctld) == before
    # r02 becomes r02a and r02b.
    stopped = plan(slurmctld, SPLIT, **sizes)
    assert [(row["job"], row["nodes"]) for row in stopped.jobs] == [(across, ["r02t09", "r02t10"])]
    apply(plan(slurmctld, SPLIT, allow_moving_jobs=True, **sizes))
    assert slurmctld.run("squeue", "-h", "-o", "%A").stdout.split() == [across, inside, elsewhere]
    # Nothing moves any more, so nothing stands in the way.
    assert plan(slurmctld, SPLIT, **sizes).jobs == []


# ------------------------------------------------------------------------------------------------ several topologies


def test_an_unlisted_own_topology_is_removed_and_no_other(forky: Slurmctld) -> None:
    """Only what an earlier run has written, by the header of the file, and never while a partition uses it."""
    mine = slurm_corpus.flat("mine")
    start_with(forky, TREE, FLAT)
    apply(plan(forky, RACKS, block_sizes=(18,), others=(FLAT, mine)))
    assert [known.name for known in running_topologies(forky)] == ["nvlink", TREE.name, "flat", "mine"]
    conf = forky.conf_dir / "slurm.conf"
    before = conf.read_text()
    conf.write_text(f"{before}PartitionName=login Nodes=r02t01 Topology=mine\n")
    assert forky.reconfigure()
    desired: dict[str, Any] = {"block_sizes": (18,), "others": ()}
    assert [row["code"] for row in plan(forky, RACKS, **desired).stopped_by()] == ["slurm_conf_inconsistent"]
    conf.write_text(before)
    assert forky.reconfigure()
    removal = plan(forky, RACKS, **desired)
    assert removal.difference == [
        f"topology {name}: removed, since it is no longer listed" for name in ("flat", "mine")
    ]
    apply(removal)
    assert [known.name for known in running_topologies(forky)] == ["nvlink", TREE.name]
    assert not plan(forky, RACKS, **desired).changed
    # A file without that header, as a person writes it, keeps all.
    (forky.conf_dir / "topology.yaml").write_text(topology_files.render([*removal.topologies, FLAT], "yaml"))
    assert plan(forky, RACKS, **desired).difference == []


def running_topologies(slurmctld: Slurmctld) -> list[Topology]:
    return slurm_of(slurmctld).topologies((26, 5, 5))


@pytest.mark.long
def test_ranks_follow_the_blocks_with_manage_conf(slurmctld: Slurmctld) -> None:
    mixed = (
        slurm_corpus.block("odd", "r01t[01-09],r02t[01-09]"),
        slurm_corpus.block("even", "r01t[10-18],r02t[10-18]"),
    )
    by_name = expand("r01t[01-18],r02t[01-18]")
    by_block = [node for block in mixed for node in block.nodes]
    apply(plan(slurmctld, mixed))
    codes = [found["code"] for found in plan(slurmctld, mixed).findings]
    assert codes == ([] if slurmctld.suite == "trixie" else ["slurm_conf_advice"])
    assert gpu_nodes(slurmctld) == by_name
    managed = plan(slurmctld, mixed, manage_conf=True)
    apply(managed)
    after = plan(slurmctld, mixed, manage_conf=True)
    assert (after.changed, after.findings) == (False, [])
    # 24.11 has no such parameter.
    assert gpu_nodes(slurmctld) == (by_name if slurmctld.suite == "trixie" else by_block)


def gpu_nodes(slurmctld: Slurmctld) -> list[str]:
    """The nodes in slurmctld's own order."""
    shown = scontrol.parse_records(slurmctld.run("scontrol", "-o", "show", "nodes").stdout)
    return [record["NodeName"] for record in shown if record["NodeName"].startswith("r")]


# ------------------------------------------------------------------------------------------ two runs, two controllers


@newer
def test_two_applies_at_once_both_succeed_one_after_the_other(slurmctld: Slurmctld) -> None:
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda blocks: module(slurmctld, blocks, block_sizes=[9]), (SPLIT, MOVED)))
    assert [result.get("failed", False) for result in results] == [False, False], results
    # The later one's topology is what stands in the file and runs; nothing of the other is left.
    left = [plan(slurmctld, blocks, block_sizes=(9,)).changed for blocks in (SPLIT, MOVED)]
    assert sorted(left) == [False, True]
    assert sorted(path.name for path in slurmctld.conf_dir.iterdir()) == sorted(
        ["slurm.conf", FILE[slurmctld.suite], f"{FILE[slurmctld.suite]}.previous"]
    )


@pytest.fixture(params=sorted(SUITES))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Slurmctld, Slurmctld]]:
    """Two controllers of one cluster with a shared state folder and a configuration folder each."""
    shared = tmp_path / "state"
    shared.mkdir()
    hosts = {f"ctl{number}": f"127.0.0.{number}" for number in (1, 2)}
    with sandbox(request.param, tmp_path / "1", "ctl1") as first, sandbox(request.param, tmp_path / "2", "ctl2") as two:
        write(first)
        lines = (first.conf_dir / "slurm.conf").read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("SlurmctldHost", "StateSave"))]
        kept += [f"SlurmctldHost={name}({address})" for name, address in hosts.items()]
        kept += [f"StateSaveLocation={shared}", "SlurmctldTimeout=5", "CommunicationParameters=NoCtldInAddrAny", ""]
        for one in (first, two):
            write(one)
            (one.conf_dir / "slurm.conf").write_text("\n".join(kept).replace(str(first.log), str(one.log)))
            one.share(shared)
            one.hosts = hosts
            one.start()
        wait_for(lambda: first.run("scontrol", "ping").stdout.count(" is UP") == 2)
        yield first, two


@pytest.mark.long
def test_a_standby_gets_the_files_after_the_active_controller(
    pair: tuple[Slurmctld, Slurmctld], tmp_path: Path
) -> None:
    first, second = pair
    hosts: dict[str, Any] = {}
    # The standby stands first in the play.
    for one in (second, first):
        python = one.directory / "python"
        python.write_text(f'#!/bin/sh\nexec nsenter -t {one.pid} -u {sys.executable} "$@"\n')
        python.chmod(0o755)
        hosts[one.host] = {
            "ansible_python_interpreter": str(python),
            "slurm_conf_dir": str(one.conf_dir),
            "slurm_topology_bin_dir": str(one.bin_dir),
        }
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"slurm_controller": {"hosts": hosts, "vars": {"ansible_connection": "local"}}}))
    file = tmp_path / "fabric.json"

    def play(blocks: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        file.write_text(json.dumps(fabric(blocks)))
        variables = {
            "fabric_file": str(file),
            "slurm_topology_block_sizes": [9],
            "slurm_topology_override": list(plan_gates.GATES),
            "slurm_topology_rehearse": "never",
        }
        options = ("-i", str(inventory), "rackscale.nvlink.slurm", "-e", json.dumps(variables), *arguments)
        return ansible("ansible-playbook", *options, check=False)

    def changed(done: subprocess.CompletedProcess[str]) -> list[int]:
        assert done.returncode == 0, done.stdout + done.stderr
        return [int(number) for number in re.findall(r"ctl\d .* changed=(\d)", done.stdout)]

    split = {"r01": "r01t[01-18]", "r02": "r02t[01-09]", "r02b": "r02t[10-18]"}
    before = [state(one) for one in pair]
    assert changed(play(split, "--check", "--diff")) == [1, 1]
    assert [state(one) for one in pair] == before
    # The standby alone is refused.
    alone = " ".join(play(split, "--limit", "ctl2").stdout.split())
    assert "active controller ctl1 runs another topology" in alone
    assert [state(one) for one in pair] == before
    assert changed(play(split)) == [1, 1]
    assert changed(play(split)) == [0, 0]
    name = FILE[first.suite]
    assert (first.conf_dir / name).read_bytes() == (second.conf_dir / name).read_bytes()
    # The standby takes over with the new topology, and is the active controller for the next change.
    running = topology(first)
    first.kill_slurmctld()
    wait_for(lambda: "ctl2 is UP" in second.run("scontrol", "ping").stdout and topology(second) == running)
    assert changed(play({"r01": "r01t[01-18]", "r02": "r02t[01-18]"}, "--limit", "ctl2")) == [1]
    assert "Nodes=r02t[01-18] " in topology(second)
