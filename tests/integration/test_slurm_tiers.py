# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tiers on the lab: real slurmdbd and MariaDB, real slurmctld 24.11 and 26.05, jobs of real users."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import topology_files
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_corpus

from .commands import ansible
from .conftest import RunningLab, running_lab
from .slurm_site import FILE, install_explain, wait_for
from .slurm_site import fabric as fabric_of
from .slurmctld import EACH_SUITE

pytestmark = pytest.mark.lab

# Tests that do not depend on Slurm's version run with the newer one.
newer = pytest.mark.parametrize("cluster", ["forky"], indirect=True)
CLIQUES = {"r01a": ("r01t01", "r01t02"), "r01b": ("r01t03", "r01t04", "r01t05")}
INCLUDE = "/etc/slurm/nvlink_partitions.conf"
BLOCKS = tuple(slurm_corpus.block(name, ",".join(trays)) for name, trays in CLIQUES.items())
# On 24.11 no block may be below the base size, so it is that of the smallest; on 26.05 that of the largest.
TOPOLOGY = {
    "trixie": topology_files.render([Topology(blocks=BLOCKS, block_sizes=(2,))], "conf"),
    "forky": topology_files.render([Topology("nvlink", blocks=BLOCKS, block_sizes=(3,)), slurm_corpus.flat()], "yaml"),
}
USERS = {"alice": 2001, "bob": 2002, "carol": 2003}
# The site's own objects: nothing here may ever change them.
SITE = """\
sed -i 's/^PartitionName=all .*/& AllowGroups=root/' /etc/slurm/slurm.conf
sacctmgr -i -Q add qos site Priority=7 GrpTRES=node=1 Flags=NoReserve
sacctmgr -i -Q add account other Description=other Organization=other
sacctmgr -i -Q modify account other set QOS+=site
mkdir -p /opt/site && cp /etc/slurm/slurm.conf /opt/site/
scontrol reconfigure
"""

GOLD: dict[str, Any] = {
    "name": "gold",
    "blocks": ["r01a"],
    "exclusive": "topo",
    "priority_tier": 10,
    "max_time": "1-00:00:00",
    "qos": {
        "priority": 1000,
        "grp_tres": {"node": 2, "cpu": 8},
        "max_wall": "12:00:00",
        "flags": ["DenyOnLimit"],
        "preempt": ["bronze"],
    },
    "accounts": ["research"],
}
BRONZE: dict[str, Any] = {
    "name": "bronze",
    "cliques": ["r01b"],
    "qos": {"priority": 10, "preempt_mode": "requeue", "usage_factor": 0.5},
    "partition_qos": {"max_jobs_per_user": 2},
    "users": [{"name": "bob", "account": "students"}],
}
# The first reconfigure meets a slurmctld that answers nothing any more.
HANGING_SCONTROL = """\
mkdir -p /opt/hang && cd /opt/hang && rm -f stopped
for program in sacctmgr squeue slurmctld; do ln -sf $(command -v $program) $program; done
cat > scontrol <<END
#!/bin/sh
if [ "\\$1" = reconfigure ] && [ ! -e /opt/hang/stopped ]; then
    systemctl show --value --property=MainPID slurmctld > /opt/hang/stopped
    kill -STOP \\$(cat /opt/hang/stopped)
fi
exec $(command -v scontrol) "\\$@"
END
chmod +x scontrol
"""
MEMBERS = [{"name": "alice", "account": "research"}, {"name": "carol", "account": "research"}]
TIERS = [{**GOLD, "users": MEMBERS}, BRONZE]


class Cluster:
    """A lab with Slurm accounting, and the module run on it as a playbook would."""

    def __init__(self, racks: RunningLab, suite: str, fabric: Path) -> None:
        self.racks = racks
        self.suite = suite
        self.fabric = fabric
        self.output = ""

    def run(self, *command: str, check: bool = True) -> str:
        return self.racks.exec("ctl", *command, check=check).stdout

    def shell(self, script: str, check: bool = True) -> str:
        return self.run("bash", "-c", script, check=check)

    def apply(self, tiers: list[dict[str, Any]], *flags: str, ok: bool = True, **more: Any) -> dict[str, Any]:
        """The module's result; with ``ok`` it must not fail, without it must."""
        options = {"fabric_file": str(self.fabric), "manage_conf": True, "create_accounts": True, "timeout": 60}
        arguments = json.dumps({**options, "tiers": tiers, **more})
        module = ("-m", "rackscale.nvlink.slurm_tiers", "-a", arguments, *flags)
        done = ansible("ansible", "slurm_controller", "-i", self.racks.inventory, *module, check=False)
        assert (done.returncode == 0) is ok, done.stdout + done.stderr
        self.output = done.stdout + done.stderr
        match = re.search(r"ctl \| \S+ => (\{.*\})", done.stdout, re.DOTALL)
        assert match, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(match.group(1))
        return result

    def records(self) -> str:
        """All of slurmdbd that tiers could change, and the running partitions."""
        qos = "Name,Description,Priority,GrpTRES,MaxWall,MaxJobsPU,Flags,Preempt,PreemptMode,UsageFactor"
        return self.shell(
            f"sacctmgr -nP show qos format={qos}; sacctmgr -nP show account format=Account,Description;"
            " sacctmgr -nP show assoc wopi format=Account,User,Partition,QOS;"
            " scontrol -o show partition | sed 's/TotalCPUs.*//'; cat /etc/slurm/slurm.conf;"
            f" cat {INCLUDE} 2>/dev/null || true"
        )

    def qos(self, name: str, columns: str) -> str:
        return self.run("sacctmgr", "-nP", "show", "qos", name, f"format={columns}").strip()

    def partition(self, name: str) -> dict[str, str]:
        text = self.run("scontrol", "-o", "show", "partition", name, check=False)
        return dict(re.findall(r"(\w+)=(\S*)", text))

    def submit(self, user: str, *arguments: str, check: bool = True) -> str:
        """The job's number; without check also ``refused:`` and the error of sbatch."""
        options = ("--parsable", "--chdir=/tmp", "--output=/dev/null", *arguments)
        command = ("runuser", "-u", user, "--", "sbatch", *options)
        deadline = time.monotonic() + 120
        while True:
            done = self.racks.exec("ctl", *command, check=False)
            # It may have started again, after a reconfigure.
            if "Unable to contact slurm controller" not in done.stderr or time.monotonic() > deadline:
                break
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout.strip() if done.returncode == 0 else f"refused: {done.stderr.strip()}"

    def job(self, number: str) -> tuple[str, str, str]:
        """State, nodes (as scontrol lists them) and the reason of a job."""
        text = self.run("squeue", "-h", "-t", "all", "-j", number, "-o", "%T|%N|%r").strip()
        state, nodes, reason = text.split("|")
        return state, nodes, reason

    def until(self, number: str, state: str) -> tuple[str, str, str]:
        wait_for(lambda: self.job(number)[0] == state)
        return self.job(number)

    def stays(self, number: str) -> None:
        """Wait until slurmctld has considered a job and left it pending: from then on the job has a reason."""
        wait_for(lambda: self.job(number)[2] != "None")
        assert self.job(number)[0] == "PENDING"

    def end_jobs(self) -> None:
        self.shell(
            "scancel -u alice; scancel -u bob; scancel -u carol;"
            'for i in $(seq 300); do [ -z "$(squeue -h)" ] && exit 0; sleep 0.2; done; squeue; exit 1'
        )


@pytest.fixture(scope="module", params=EACH_SUITE)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    suite = request.param
    directory = tmp_path_factory.mktemp(f"tiers-{suite}")
    slurm = {
        "accounting": True,
        "prolog_flags": "Alloc",
        "files": {FILE[suite]: TOPOLOGY[suite]},
        "conf": ["PreemptType=preempt/qos", "PreemptMode=REQUEUE", "PriorityWeightQOS=1000", "MessageTimeout=60"],
    }
    if suite == "trixie":
        slurm["topology_plugin"] = "topology/block"
    cliques = [
        {"id": number + 1, "trays": [int(name[-2:]) for name in names]} for number, names in enumerate(CLIQUES.values())
    ]
    scenario = {"suite": suite, "slurm": slurm, "racks": [{"name": "r01", "trays": 5, "cliques": cliques}]}
    file = directory / "scenario.yml"
    file.write_text(yaml.safe_dump(scenario))
    fabric = directory / "fabric.json"
    fabric.write_text(json.dumps(fabric_of({name: ",".join(names) for name, names in CLIQUES.items()})))
    with running_lab(directory, file) as racks:
        made = Cluster(racks, suite, fabric)
        users = "; ".join(f"useradd -M -u {uid} {name}" for name, uid in USERS.items())
        for host in ("ctl", *(name for names in CLIQUES.values() for name in names)):
            racks.exec(host, "bash", "-c", users)
        made.shell(SITE)
        yield made


@pytest.fixture(autouse=True)
def without_tiers(cluster: Cluster) -> Iterator[None]:
    """Each test begins and ends without tiers and jobs."""
    yield
    cluster.end_jobs()
    cluster.apply([])


@pytest.fixture
def tiers(cluster: Cluster) -> Cluster:
    cluster.apply(TIERS)
    return cluster


def codes(result: dict[str, Any]) -> set[str]:
    return {found["code"] for found in result["findings"]}


def test_tiers_are_applied_and_a_second_run_changes_nothing(cluster: Cluster) -> None:
    before = cluster.records()
    shown = cluster.apply(TIERS, "--check", "--diff")
    assert shown["changed"]
    assert cluster.records() == before
    changes = shown["changes"]
    assert [line.split(":")[0] for line in changes] == [
        "qos bronze",
        "qos bronze_limits",
        "qos gold",
        "account research",
        "user alice of account research",
        "user carol of account research",
        "account students",
        "user bob of account students",
        "account research",
        "user alice of account research",
        "user carol of account research",
        "user bob of account students",
        "partition gold",
        "partition bronze",
        *(["slurm.conf"] if "Include" not in before else []),
    ]
    assert all(f"{line}\n" in cluster.output for line in changes)
    applied = cluster.apply(TIERS)
    assert applied["changed"]
    assert applied["changes"] == changes
    again = cluster.apply(TIERS)
    assert not again["changed"]
    assert again["changes"] == []
    assert not again["reconfigured"]
    assert cluster.qos("gold", "Priority,GrpTRES,MaxWall,Flags,Preempt") == (
        "1000|cpu=8,node=2|12:00:00|DenyOnLimit|bronze"
    )
    gold, bronze = cluster.partition("gold"), cluster.partition("bronze")
    assert (gold["Nodes"], gold["AllowQos"], gold["PriorityTier"]) == ("r01t[01-02]", "gold", "10")
    assert gold["Exclusive" if cluster.suite == "forky" else "ExclusiveTopo"] in ("TOPO", "YES")
    assert (bronze["Nodes"], bronze["QoS"]) == ("r01t[03-05]", "bronze_limits")
    assert gold.get("Topology") == ("nvlink" if cluster.suite == "forky" else None)


@pytest.mark.long
@newer
def test_manual_changes_of_tiers_are_overwritten_and_the_sites_objects_kept(tiers: Cluster) -> None:
    before = tiers.records()
    tiers.shell(
        "sacctmgr -i -Q modify qos gold set Priority=1 GrpTRES=mem=100,node=7 MaxJobsPU=3 Flags=NoDecay;"
        "sacctmgr -i -Q modify qos gold set PreemptMode=cancel GraceTime=60 UsageFactor=2;"
        "sacctmgr -i -Q modify account where Name=research set QOS-=gold;"
        "scontrol update partition=bronze AllowQos=ALL PriorityTier=7;"
        f"echo '# mine' >> {INCLUDE}"
    )
    assert tiers.records() != before
    shown = tiers.apply(TIERS, "--check")
    assert any("Priority 1 -> 1000" in line for line in shown["changes"]), shown["changes"]
    tiers.apply(TIERS)
    assert tiers.records() == before
    assert not tiers.apply(TIERS)["changed"]


@pytest.mark.long
@newer
def test_removing_a_tier_removes_only_its_own_objects(tiers: Cluster) -> None:
    site = "sacctmgr -nP show qos site format=Name,Priority,GrpTRES,Flags; sacctmgr -nP show assoc account=other wopi"
    own = tiers.shell(site)
    job = tiers.submit("bob", "-p", "bronze", "--qos=bronze", "--wrap", "sleep 900")
    tiers.until(job, "RUNNING")
    stopped = tiers.apply([TIERS[0]], ok=False)
    assert "jobs_running" in codes(stopped)
    assert f"job {job} of bob" in stopped["msg"]
    assert tiers.partition("bronze")["Nodes"] == "r01t[03-05]"
    assert tiers.job(job)[0] == "RUNNING"
    tiers.end_jobs()
    removed = tiers.apply([{**TIERS[0], "qos": {**GOLD["qos"], "preempt": []}}])
    assert removed["changes"][-3:] == ["partition bronze: removed", "qos bronze: removed", "qos bronze_limits: removed"]
    assert not tiers.partition("bronze")
    assert tiers.qos("bronze", "Name") == ""
    assert tiers.qos("gold", "Name,Preempt") == "gold|"
    assert tiers.shell(site) == own
    # Accounts and users stay: their history is the site's.
    assert "students" in tiers.run("sacctmgr", "-nP", "show", "account", "format=Account").split()


def test_refused_partitions_are_rolled_back(tiers: Cluster) -> None:
    before = tiers.records()
    changed = [
        {**TIERS[0], "qos": {**GOLD["qos"], "priority": 5}, "options": {"TRESBillingWeights": "nonsense=1"}},
        {**BRONZE, "qos": {**BRONZE["qos"], "name": "copper"}},
    ]
    failed = tiers.apply(changed, ok=False)
    assert failed["msg"].startswith(
        "slurmctld refused the new partitions (failed to parse tres weights str 'nonsense=1'); the old files were"
        " restored, and slurmctld"
    )
    # 24.11 with slurmdbd may exit after a failed reconfigure.
    assert failed["msg"].endswith(" runs as before, and the records in slurmdbd were restored.")
    assert tiers.records() == before
    assert "UP" in tiers.run("scontrol", "ping")
    assert not tiers.apply(TIERS)["changed"]


@pytest.mark.long
@pytest.mark.parametrize(("cluster", "signal"), [("trixie", "STOP"), ("forky", "KILL")], indirect=["cluster"])
def test_a_slurmctld_that_hangs_or_ends_is_started_with_the_new_files(tiers: Cluster, signal: str) -> None:
    """As 24.11.5 may hang after "Attempting to reconfigure"."""
    before = tiers.records()
    job = tiers.submit("bob", "-p", "bronze", "--qos=bronze", "--wrap", "sleep 900")
    tiers.until(job, "RUNNING")
    if signal == "KILL":
        tiers.run("scontrol", "reconfigure")  # it saves its state with it
    # Only this long systemd waits for a slurmctld that does not end, instead of 90 s.
    tiers.shell(
        "mkdir -p /run/systemd/system/slurmctld.service.d; cd /run/systemd/system/slurmctld.service.d;"
        "printf '[Service]\\nTimeoutStopSec=5\\n' > stop.conf; systemctl daemon-reload"
    )
    tiers.shell(HANGING_SCONTROL.replace("kill -STOP", f"kill -{signal}"))
    assert tiers.apply([TIERS[0], {**BRONZE, "max_nodes": 2}], bin_dir="/opt/hang", timeout=8)["changed"]
    assert "slurmctld did not answer after scontrol reconfigure and was restarted with the new files" in tiers.output
    stopped = tiers.shell("cat /opt/hang/stopped").strip()
    assert tiers.shell("systemctl show --value --property=MainPID slurmctld").strip() not in ("0", stopped)
    assert "UP" in tiers.run("scontrol", "ping")
    assert tiers.job(job)[0] == "RUNNING"
    assert tiers.records() != before
    assert not tiers.apply([TIERS[0], {**BRONZE, "max_nodes": 2}])["changed"]


@pytest.mark.long
@newer
def test_without_slurmdbd_the_module_fails_in_one_sentence_and_changes_nothing(tiers: Cluster) -> None:
    before = tiers.records()
    tiers.run("systemctl", "stop", "slurmdbd")
    try:
        failed = tiers.apply([GOLD], ok=False)
    finally:
        tiers.run("systemctl", "start", "slurmdbd")
    assert failed["msg"].startswith("slurmdbd does not answer (")
    assert failed["msg"].count(". ") == 0
    assert "Connection refused" in failed["msg"]
    assert failed["msg"].endswith("nothing was changed.")
    assert tiers.records() == before


@newer
def test_users_of_two_tiers_never_share_trays(tiers: Cluster) -> None:
    pending = []
    for user, other in (("alice", "bronze"), ("bob", "gold")):
        for arguments in (("-p", other), ("-p", other, f"--qos={other}"), ("-p", "all")):
            answer = tiers.submit(user, *arguments, "--wrap", "true", check=False)
            if not answer.startswith("refused: "):
                pending.append(answer)  # without EnforcePartLimits Slurm accepts such a job and never starts it
    own = {}
    for user, tier in (("alice", "gold"), ("bob", "bronze")):
        own[user] = tiers.submit(user, "-p", tier, f"--qos={tier}", "-N2", "--wrap", "sleep 900")
    _state, nodes, _reason = tiers.until(own["alice"], "RUNNING")
    assert nodes == "r01t[01-02]"
    _state, nodes, _reason = tiers.until(own["bob"], "RUNNING")
    listed = tiers.run("scontrol", "show", "hostnames", nodes).split()
    assert len(listed) == 2
    assert set(listed) <= set(CLIQUES["r01b"])
    # A node list with the other's trays does not help either.
    answer = tiers.submit("alice", "-p", "gold", "--qos=gold", "-w", "r01t03", "--wrap", "true", check=False)
    if not answer.startswith("refused: "):
        pending.append(answer)
    assert pending
    for number in pending:
        tiers.stays(number)


@pytest.mark.long
def test_a_user_learns_which_limit_holds_a_job(tiers: Cluster, tmp_path: Path) -> None:
    install_explain(tiers.racks.inventory, tmp_path)

    def why(user: str, number: str, reason: str) -> str:
        wait_for(lambda: tiers.run("squeue", "-h", "-j", number, "-o", "%r").startswith(reason))
        # 24.11 forgets the reason for a moment each time it considers the job.
        texts = [""]
        ask = ("runuser", "-u", user, "--", "nvlink-explain", number)
        wait_for(lambda: texts.append(tiers.run(*ask)) or "not been considered" not in texts[-1])
        text = texts[-1].partition("Not known: ")[0]
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", text).replace(f"Job {number} ", "Job ID ")

    gold = ("-p", "gold", "--qos=gold", "-t", "60")
    first = tiers.submit("alice", *gold, "-N2", "--wrap", "sleep 900")
    tiers.until(first, "RUNNING")
    what, used = ("cpu", 8) if tiers.suite == "forky" else ("node", 2)
    within = "one block" if tiers.suite == "forky" else "at most 2 blocks"
    assert why("carol", tiers.submit("carol", *gold, "-N1", "--wrap", "true"), "QOS") == (
        f"Job ID waits for jobs: job {first} of alice, until TIME; QoS gold has {what} {used} of {used} in use.\n"
        f"  {used} of {used} in use of QoS gold, GrpTRES {what} (job {first} of alice) until TIME\n"
    )
    bronze = ("-p", "bronze", "--qos=bronze", "-t", "60", "--exclusive")
    tiers.shell("sacctmgr -i -Q modify account students set GrpTRES=node=2")
    try:
        second = tiers.submit("bob", *bronze, "-N1", "--wrap", "sleep 900")
        tiers.until(second, "RUNNING")
        assert why("bob", tiers.submit("bob", *bronze, "-N2", "--wrap", "true"), "Assoc") == (
            f"Job ID waits for jobs: job {second} of bob, until TIME; account students has node 1 of 2 in use.\n"
            f"  1 of 2 in use of account students, GrpTRES node (job {second} of bob) until TIME\n"
        )
    finally:
        tiers.shell("sacctmgr -i -Q modify account students set GrpTRES=node=-1")
        tiers.end_jobs()
    tiers.shell("scontrol update nodename=r01t05 state=drain reason='GPU 2 lost'")
    try:
        # Confirmed by slurmctld for the user's own job, with its QoS and account.
        assert why("bob", tiers.submit("bob", *bronze, "-N3", "--wrap", "true"), "") == (
            f"Job ID waits for an operator: it needs 3 trays in {within}, and r01t05 is drained: GPU 2 lost, since"
            " TIME, by root.\n  2 of 3 idle (r01b 2)\n"
            "  1 of 3 out of service (r01t05 drained: GPU 2 lost, since TIME, by root)\n"
            "  2 more that it may not use (its partition, --nodelist or --exclude)\n"
            "It starts now with 2 trays (sbatch --test-only --nodes=2).\n"
        )
    finally:
        tiers.shell("scontrol update nodename=r01t05 state=undrain")


def test_segments_are_enforced_where_slurm_can(cluster: Cluster) -> None:
    segment, qos = {"default": 2, "max": 2}, {"priority": 1}
    tier = {"name": "wide", "all": True, "default": True, "segment": segment, "qos": qos, "users": MEMBERS}
    result = cluster.apply([tier], segment_script=True)
    advised = [job for job in result["rehearsal"]["outcomes"] if job["kind"] == "site"]
    assert [(job["nodes"], job["segment"], job["outcome"]) for job in advised] == [(4, 2, "placed")]
    if cluster.suite == "trixie":
        assert "slurm_segment" in codes(cluster.apply([{**tier, "segment": {"default": 3}}], ok=False))
        assert "release_old" in codes(result)
        return
    assert {"slurm_conf_note", "slurm_conf_inconsistent"}.isdisjoint(codes(result))
    assert not cluster.apply([tier], segment_script=True)["changed"]
    answer = cluster.submit("alice", "-p", "wide", "--qos=wide", "-N3", "--segment=3", "--wrap", "true", check=False)
    assert answer.startswith("refused: ")
    assert "takes --segment up to 2" in answer
    # Without -p it is the default partition. A chosen segment, and a job that the default does not divide, stay.
    for options, shown in (("-N4", "2"), ("-N4 --segment=1", "1"), ("-N3", ""), ("-N2", "")):
        job = cluster.submit("alice", "--qos=wide", *options.split(), "--wrap", "sleep 900")
        found = re.search(r"SegmentSize=([1-9]\d*)", cluster.run("scontrol", "show", "job", job))
        assert (found.group(1) if found else "") == shown, options


@pytest.mark.long
@newer
def test_state_absent_removes_files_and_qos_and_a_second_run_changes_nothing(tiers: Cluster) -> None:
    before = tiers.records()
    shown = tiers.apply([], "--check", "--diff", state="absent")
    assert (shown["changed"], tiers.records()) == (True, before)
    removed = tiers.apply([], state="absent")
    assert (removed["changed"], removed["changes"]) == (True, shown["changes"])
    assert tiers.shell("ls /etc/slurm | grep -e nvlink_ -e previous || true") == ""
    assert "nvlink_partitions" not in tiers.run("cat", "/etc/slurm/slurm.conf")
    assert (tiers.qos("gold", "Name"), tiers.qos("site", "Name"), tiers.partition("gold")) == ("", "site", {})
    again = tiers.apply([], state="absent")
    assert (again["changed"], again["changes"]) == (False, [])
