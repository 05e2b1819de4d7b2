# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of the day-two pages, run unchanged while trays are added, removed, replaced and fail.

All tests share one lab. A command that is added to a page, or removed, fails the test of that page.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.deadline import descendants

from . import pages
from .commands import environment
from .conftest import CHECKOUT, LAB, RunningLab, lab_command, running_lab
from .test_lab import wait_until

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import imex

pytestmark = [pytest.mark.lab, pytest.mark.long]

ENTRY = "docs/day-two.md"
NEW = "r01t04"
# Print what a run may change on the Slurm controller and on a tray, without what changes by itself.
SLURM = "sinfo -hNo '%N %E'; scontrol -o show reservation; scontrol show topology; cat /etc/slurm/*.*"
# A test may make nvidia-smi hang.
DRIVER = "timeout 20 nvidia-smi -q -x | grep driver_ver"
TRAY = f"systemctl is-active nvidia-imex; cat /etc/nvidia-imex/*; {DRIVER}; ls /etc/apt/*.d"
CHANGED = re.compile(r"^(\S+) +: .*?changed=(\d+)", re.MULTILINE)
PIPE = '#!/bin/sh\nexec {python} {lab} exec --name {name} ctl -- {program} "$@"\n'
# The site's own tasks on a tray; the lab's command line stands in for a package manager.
LAB_TASK = """\
- name: {title}
  ansible.builtin.command:
    argv: ["{{{{ ansible_playbook_python }}}}", {lab}, {verb}, --name, {name}, "{{{{ inventory_hostname }}}}", {more}]
  delegate_to: localhost
  vars:
    ansible_connection: local
  changed_when: true
"""
PAUSE = """\
- name: Never end
  ansible.builtin.pause:
    seconds: 600
"""


class Site(pages.Shell):
    """A copy of examples/site, and the lab that it manages."""

    def __init__(self, folder: Path, racks: RunningLab) -> None:
        # The tests count the changed tasks in the recap of Ansible's own callback, and ansible.cfg sets another one.
        super().__init__(folder, ANSIBLE_STDOUT_CALLBACK="default")
        self.racks = racks
        shutil.copytree(CHECKOUT / "examples" / "site", folder, dirs_exist_ok=True)
        (folder / "fabric.json").unlink()
        (folder / "hosts.yml").write_text(racks.inventory.read_text())
        self.hook()
        self.type("git init -q")

    def hook(self, more: str = "") -> None:
        """Write the hook that installs a driver, with `more` after its task."""
        (self.folder / "driver.yml").write_text(self.task("set", "'driver_version={{ rollout_driver }}'") + more)

    def task(self, verb: str, more: str = "") -> str:
        return LAB_TASK.format(title=f"Lab {verb}", lab=LAB, verb=verb, name=self.racks.name, more=more)

    @property
    def fabric(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "fabric.json").read_text())
        return document

    def clique(self, tray: str) -> str:
        name: str = self.fabric["trays"][tray]["clique"]
        return name

    def drained(self) -> dict[str, str]:
        """Drained node -> its reason."""
        lines = self.racks.exec("ctl", "sinfo", "-hRN", "-o", "%N|%E").stdout.split("\n")
        return dict(line.split("|") for line in lines if line)

    def unfinished(self, rollout: str) -> dict[str, str]:
        """Clique -> its state in the progress file."""
        path = self.folder / f"fabric.rollout-{rollout}.json"
        cliques = json.loads(path.read_text())["cliques"] if path.exists() else {}
        return {name: row["state"] for name, row in cliques.items()}

    def snapshot(self) -> dict[str, str]:
        """Everything that a run may change: fabric files, Slurm, and the trays of the fabric file."""
        files = {path.name: path.read_text() for path in self.folder.glob("fabric*")}
        scripts = {"ctl": SLURM, **dict.fromkeys(self.fabric["trays"], TRAY)}
        shown = {
            host: self.racks.exec(host, "sh", "-c", script, check=False).stdout for host, script in scripts.items()
        }
        return files | shown

    def changes_nothing(self, command: str) -> None:
        """Run a command in check mode, by itself or by the page."""
        before = self.snapshot()
        self.type(command)
        assert self.snapshot() == before

    def fails(self, command: str) -> str:
        """The output of a command that must fail."""
        with pytest.raises(AssertionError) as failure:
            self.type(command)
        return " ".join(str(failure.value).split())

    def imex(self, tray: str) -> str:
        return self.racks.exec(tray, "systemctl", "is-active", "nvidia-imex", check=False).stdout.strip()

    def replace(self, tray: str) -> None:
        """Replace the hardware under the same name."""
        self.racks.stop(tray)
        self.start(tray)
        self.racks.set(tray, *(f"gpu{gpu}.gpu_uuid=GPU-11111111-0000-4000-8000-{gpu:012d}" for gpu in range(4)))

    def start(self, *trays: str) -> None:
        """Boot trays. Does not wait for an idle node in Slurm as the lab does: a drained node never becomes idle."""
        for tray in trays:
            lab_command("start", "--name", self.racks.name, "--timeout=0.1", tray, check=False)
        for tray in trays:
            wait_until(lambda tray=tray: self.booted(tray), f"{tray} has booted", 120)

    def booted(self, tray: str) -> bool:
        state = self.racks.exec(tray, "systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")


def changed(done: subprocess.CompletedProcess[str]) -> int:
    counts = CHANGED.findall(done.stdout.partition("PLAY RECAP")[2])
    assert counts
    number = sum(int(count) for _host, count in counts)
    if number:
        # pytest shows this output if an assertion on the number fails.
        print(done.stdout)
    return number


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Four trays with Slurm, of which the tray NEW is off."""
    folder, programs = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("bin")
    with running_lab(tmp_path_factory.mktemp("lab")) as racks, pytest.MonkeyPatch.context() as patch:
        lab_command("packages", "--name", racks.name, str(imex.packages()))
        pipe = programs / "scontrol"
        pipe.write_text(PIPE.format(python=sys.executable, lab=LAB, name=racks.name, program="scontrol"))
        pipe.chmod(0o755)
        patch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        racks.stop(NEW)
        yield Site(folder, racks)


@pytest.fixture
def whole(site: Site) -> Site:
    """The site with all four trays placed and none drained; the first test that runs brings this about."""
    site.start(NEW)
    if not (site.folder / "fabric.json").exists() or NEW not in site.fabric["trays"]:
        site.type(pages.commands(ENTRY)[0])
    site.racks.exec("ctl", "scontrol", "update", "nodename=r01t[01-04]", "state=resume", check=False)
    site.type("git add -A && git commit -qm 'The fabric' --allow-empty")
    return site


def test_site_configures_everything_and_its_second_run_changes_nothing(site: Site) -> None:
    first, check, again, waves = pages.commands(ENTRY)
    output = site.type(first).stdout
    assert [site.clique(f"r01t0{tray}") for tray in (1, 2, 3)] == ["r01a", "r01a", "r01b"]
    assert "BlockName=r01a" in site.racks.exec("ctl", "scontrol", "show", "topology").stdout
    assert site.imex("r01t01") == "active"
    assert output.index("[Check what this run names]") < output.index("[Read the GPUs]")
    # The default of Ansible from core 2.24: nothing of it may depend on facts as variables.
    for command in (check, f"export ANSIBLE_INJECT_FACT_VARS=false; {again}", waves):
        assert changed(site.type(command)) == 0, command
    assert site.unfinished("imex") == {}


def test_a_new_tray_and_a_replaced_tray_are_put_into_service(site: Site) -> None:
    check, resume, drain, resume_again, show = pages.commands("docs/day-two/tray.md")
    site.start(NEW)
    before = (site.folder / "fabric.json").read_bytes()
    assert f"{NEW}: drained (nvlink: resume)" in site.type(check).stdout
    assert ((site.folder / "fabric.json").read_bytes(), site.drained()) == (before, {})
    output = site.type(resume).stdout
    assert (site.clique(NEW), site.drained(), site.imex(NEW)) == ("r01b", {}, "active")
    assert output.index(f"{NEW}: drained (nvlink: resume)") < output.index(f"{NEW}: resumed")
    site.type(drain)
    assert site.drained() == {NEW: "nvlink: replaced"}
    site.racks.stop(NEW)
    assert "has acknowledged it until 2099-12-24" in site.type("ansible-playbook rackscale.nvlink.verify").stdout
    site.type("ansible-playbook rackscale.nvlink.site")
    site.start(NEW)
    site.replace(NEW)
    assert "replaced" in site.type(resume_again).stdout
    assert site.fabric["trays"][NEW]["gpu_uuids"][0].startswith("GPU-11111111")
    assert (site.clique(NEW), site.drained(), site.imex(NEW)) == ("r01b", {}, "active")
    assert "DRAIN" not in site.type(show).stdout
    assert "acknowledged" not in (site.folder / "fabric.state.json").read_text()


def test_a_tray_that_fails_its_test_stays_drained(whole: Site) -> None:
    site = whole
    site.type("ansible-playbook rackscale.nvlink.drain -e drain_trays=r01t04")
    output = site.fails(
        """ansible-playbook rackscale.nvlink.resume -e resume_trays=r01t04 -e '{"rollout_test": ["false"]}'"""
    )
    assert "r01b (failed: r01t04, its test false failed" in output
    kept = site.drained()
    assert re.fullmatch(r"nvlink: drain : drained by root@20[\d:T-]+, test failed", kept[NEW])
    assert site.racks.exec("ctl", "scontrol", "show", "reservation").stdout.strip() == "No reservations in the system"
    site.racks.set(NEW, "clique=1")
    assert NEW in site.fails(
        "ansible-playbook rackscale.nvlink.rollout -e rollout_name=resume -e rollout_trays=r01b"
        """ -e '{"rollout_steps": ["verify", "resume"], "rollout_reason": "drain"}'"""
    )
    assert NEW in site.drained(), "its GPUs report another partition than the fabric file"
    site.racks.set(NEW, "clique=2")
    site.type("ansible-playbook rackscale.nvlink.resume -e resume_trays=r01b")
    assert (site.drained(), site.unfinished("resume")) == ({}, {})


def test_a_tray_outside_the_default_partition_is_tested(whole: Site) -> None:
    """Tiers may leave blocks out of the default partition, in which srun starts a job that names none."""
    scontrol = functools.partial(whole.racks.exec, "ctl", "scontrol")
    scontrol("create", "PartitionName=second", "Nodes=r01t04")
    scontrol("update", "PartitionName=all", "Nodes=r01t[01-03]")
    whole.type("ansible-playbook rackscale.nvlink.drain -e drain_trays=r01t04 -e drain_reason=fan")
    whole.type("ansible-playbook rackscale.nvlink.resume -e resume_trays=r01t04")
    scontrol("update", "PartitionName=all", "Nodes=ALL")
    scontrol("delete", "PartitionName=second")
    assert (whole.drained(), whole.unfinished("resume")) == ({}, {})


def test_a_driver_rollout_continues_after_a_killed_run_and_a_dead_tray(whole: Site) -> None:
    site = whole
    rollout, resume = pages.commands("docs/day-two/driver.md")
    # The run is killed once the first clique has the new driver and before anything else.
    site.hook(PAUSE)
    mark = str(site.folder / "fabric.rollout")
    killed(site, rollout, until=lambda: driver(site, "r01t02") == "595.58.03" and "pid" in storage.held(mark))
    assert storage.held(mark) == "", "the process of a killed run is gone"
    assert site.unfinished("driver") == {"r01a": "started", "r01b": "pending"}
    assert site.drained() == dict.fromkeys(("r01t01", "r01t02"), "nvlink: driver")
    assert (site.imex("r01t01"), site.imex("r01t03")) == ("inactive", "active")
    # The rollout continues, and a tray of the other clique dies during it.
    site.hook(site.task("stop") + f"  when: inventory_hostname == '{NEW}'\n")
    output = site.fails(resume)
    assert "Rollout driver: 1 clique unfinished: r01b (failed:" in output
    assert (site.unfinished("driver"), site.imex("r01t01")) == ({"r01b": "failed"}, "active")
    assert "r01t01" not in site.drained()
    # The tray had lost only its power.
    site.start(NEW)
    site.hook()
    site.type(resume)
    assert (site.unfinished("driver"), site.drained()) == ({}, {})
    assert {site.imex(f"r01t0{tray}") for tray in range(1, 5)} == {"active"}
    assert {driver(site, f"r01t0{tray}") for tray in range(1, 5)} == {"595.58.03"}
    assert not list(site.folder.glob("fabric.rollout.lock*"))


def driver(site: Site, tray: str) -> str:
    found = re.search(r"<driver_version>(.*)</driver_version>", site.racks.exec(tray, "nvidia-smi", "-q", "-x").stdout)
    assert found
    return found[1]


def killed(site: Site, command: str, until: Any, seconds: float = 300) -> None:
    """Start a command; kill it and all processes that it has started as soon as `until` returns true."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=site.folder,
        env=environment(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + seconds
        while not until():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.5)
    finally:
        # Ansible's workers have sessions of their own and survive their parent.
        for pid in (process.pid, *descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(30)


def test_a_rack_is_removed_and_returned_while_the_other_works(whole: Site) -> None:
    drain, discover, resume = pages.commands("docs/day-two/rack.md")
    whole.type(drain)
    assert whole.drained() == dict.fromkeys(("r01t03", NEW), "nvlink: moved")
    before = (whole.folder / "fabric.json").read_bytes()
    for tray in ("r01t03", NEW):
        whole.racks.stop(tray)
    whole.type(discover)
    assert (whole.folder / "fabric.json").read_bytes() == before
    assert "ran" in whole.racks.exec("ctl", "srun", "-N2", "-w", "r01t[01-02]", "echo", "ran").stdout
    for tray in ("r01t03", NEW):
        whole.start(tray)
    whole.type(resume)
    assert (whole.drained(), whole.imex("r01t03"), whole.unfinished("resume")) == ({}, "active", {})


def test_the_owner_of_imex_changes_and_changes_back(whole: Site) -> None:
    check, away, back = pages.commands("docs/day-two/imex-owner.md")
    whole.changes_nothing(check)
    whole.type(away)
    assert whole.imex("r01t01") == "inactive"
    whole.type(back)
    assert (whole.imex("r01t01"), whole.drained()) == ("active", {})


def test_an_earlier_fabric_file_is_restored(whole: Site) -> None:
    back, check, apply = pages.commands("docs/day-two/restore.md")
    yesterday = (whole.folder / "fabric.json").read_bytes()
    document = whole.fabric
    document["trays"][NEW]["clique"] = "r01a"
    (whole.folder / "fabric.json").write_text(json.dumps(document, sort_keys=True, indent=1) + "\n")
    whole.type("git commit -qam 'A mistake'")
    whole.type(back)
    assert (whole.folder / "fabric.json").read_bytes() == yesterday
    whole.changes_nothing(check)
    whole.type(apply)


def test_a_spare_replaces_a_broken_tray(whole: Site) -> None:
    check, reserve, promote, resume, again = pages.commands("docs/day-two/spares.md")
    whole.changes_nothing(check)
    assert spares(whole) == {}
    whole.type(reserve)
    assert spares(whole) == {"r01a": "r01t02", "r01b": NEW}
    returns_with_its_clique(whole)
    whole.type(promote)
    assert (spares(whole), whole.drained()) == ({"r01a": "r01t02"}, {"r01t03": "nvlink: broken"})
    whole.type(resume)
    whole.type(again)
    assert (spares(whole), whole.drained()) == ({"r01a": "r01t02", "r01b": NEW}, {})
    whole.type("ansible-playbook rackscale.nvlink.drain --tags spares -e spares_active=0")
    assert spares(whole) == {}


def returns_with_its_clique(site: Site) -> None:
    """r01t01 is tested together with the spare r01t02, which is idle and stays in its reservation."""
    site.racks.exec("ctl", "scontrol", "update", "nodename=r01t01", "state=drain", "reason=nvlink: clique")
    options = '{"rollout_steps": ["resume"], "rollout_test_timeout": %d, "rollout_clique_test": ["bash", "-c", "%s"]}'
    resume = "ansible-playbook rackscale.nvlink.rollout -e rollout_name=resume -e rollout_trays=r01a"
    resume += f" -e rollout_reason=clique -e '{options}'"
    started = time.monotonic()
    failed = site.fails(resume % (60, "exit $((40 + SLURM_NNODES))"))
    assert "its test bash with clique r01a failed (srun: error: " in failed
    assert "exit code 42" in failed, "both trays of the clique took part"
    assert site.drained() == {"r01t01": "nvlink: test failed"}
    assert "with clique r01a failed (no answer in time)" in site.fails(resume % (5, "sleep 600"))
    wait_until(lambda: not site.racks.exec("ctl", "squeue", "-h").stdout, "no job is left", 20)
    assert "nvlink_test" not in site.racks.exec("ctl", "scontrol", "show", "reservation").stdout
    site.type(resume % (60, "test $SLURM_NNODES = 2"))
    print(f"three returns with the clique: {time.monotonic() - started:.0f} s")
    assert (site.drained(), spares(site)) == ({}, {"r01a": "r01t02", "r01b": NEW})


def spares(site: Site) -> dict[str, str]:
    """Block -> the node of its spare reservation."""
    shown = site.racks.exec("ctl", "scontrol", "-o", "show", "reservation").stdout
    return dict(re.findall(r"ReservationName=nvlink_spare_(\S+) .* Nodes=(\S+) ", shown))


def test_a_tray_is_renamed_and_then_removed(whole: Site) -> None:
    check, rename, discover, rollout, remove, slurm, last = pages.commands("docs/day-two/rename.md")
    hosts = (whole.folder / "hosts.yml").read_text()
    before = whole.fabric["trays"][NEW]
    whole.changes_nothing(check)
    whole.type(rename)
    names = f"tray4:\n          fabric_slurm_node: {NEW}\n          fabric_kubernetes_node: {NEW}"
    (whole.folder / "hosts.yml").write_text(hosts.replace(f"{NEW}:", names))
    for command in (discover, rollout, f"{rollout} -e tray_reading=ssh"):
        assert changed(whole.type(command)) == 0, command
    assert {**whole.fabric["trays"]["tray4"], "why": ""} == {**before, "why": ""}
    for command in (remove, slurm):
        whole.type(command)
    # What is due is read by ssh, and changed by Ansible.
    assert changed(whole.type(f"{last} -e tray_reading=ssh")) > 0
    assert sorted(whole.fabric["trays"]) == ["r01t01", "r01t02", "r01t03"]
    (whole.folder / "hosts.yml").write_text(hosts)


def test_two_partitions_are_joined_by_hand(whole: Site) -> None:
    check, change, commit, rollback = pages.commands("docs/day-two/partition.md")
    by_hand = f" -e partition_by=hand -e imex_owner=domain -e '{json.dumps({'nvlink_partitions': {'r01': [4]}})}'"
    whole.changes_nothing(check + by_hand)
    assert "no change of NVLink partitions has begun" in whole.fails(rollback + by_hand)
    journal = whole.folder / "fabric.partition-r01.jsonl"
    with ThreadPoolExecutor(1) as person:
        running = person.submit(whole.type, change + by_hand)
        wait_until(lambda: journal.exists() and '"gpus"' in journal.read_text(), "the run waits for the GPUs", 200)
        for tray in ("r01t03", NEW):
            whole.racks.set(tray, "clique=1")
        running.result()
    whole.type(commit)
    assert changed(whole.type(check + by_hand)) == 0
    assert whole.drained() == {}
    assert len({whole.clique(tray) for tray in whole.fabric["trays"]}) == 1


def test_teardown_leaves_slurm_as_it_was(whole: Site) -> None:
    check, teardown = pages.commands("docs/day-two/teardown.md")
    whole.changes_nothing(check)
    # A job on one tray keeps IMEX on all trays of its clique, and the blocks.
    job = whole.racks.exec("ctl", "sbatch", "--parsable", "-w", "r01t01", "--wrap=sleep 900").stdout.strip()
    wait_until(lambda: "r01t01" in whole.racks.exec("ctl", "squeue", "-h", "-tR").stdout, "the job runs", 60)
    before = {host: shown for host, shown in whole.snapshot().items() if not host.startswith("fabric")}
    assert "(failed: r01t0" in whole.fails(teardown)
    assert before.items() <= whole.snapshot().items()
    whole.racks.exec("ctl", "scancel", job)
    whole.type(teardown)
    shown = whole.racks.exec("ctl", "sh", "-c", "ls /etc/slurm; grep -i include /etc/slurm/slurm.conf || true").stdout
    assert not [line for line in shown.splitlines() if "nvlink" in line or "topology." in line]
    assert {whole.imex(f"r01t0{tray}") for tray in range(1, 5)} == {"inactive"}
    assert "ran" in whole.racks.exec("ctl", "srun", "-N4", "echo", "ran").stdout
    assert changed(whole.type(teardown)) == 0
