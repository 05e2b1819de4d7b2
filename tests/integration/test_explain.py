# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvlink-explain against real slurmctlds 24.11 and 26.05: the exact text of each situation, and random clusters.

RECORD=FILE writes what Slurm printed, which the unit test answers from.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import slurm_evidence
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import topology_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_corpus
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from . import pages
from .commands import LOCAL, environment
from .explain_table import BATCH, DRAIN, FOUR, GPU, HOUR, SITUATIONS, UNKNOWN, WAIT, Situation
from .slurm_site import FILE, wait_for
from .slurmctld import EACH_SUITE, ENTER, SUITES, Slurmctld, sandbox
from .stage import Stage

pytestmark = pytest.mark.lab

# And the minutes that are left, which depend on the machine's load.
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d|(?<=--time=)\d+")
CASES = int(os.environ.get("CASES", "12"))
SEED = int(os.environ.get("SEED", "0"))


def configure(made: Slurmctld, blocks: tuple[tuple[str, str], ...], base: int, *conf: str) -> None:
    """A cluster of these blocks, with the program in bin_dir."""
    nodes = made.nodes(",".join(hostlist for _name, hostlist in blocks))
    settings = ("ResumeTimeout=3600", "SuspendTime=-1", "SchedulerParameters=batch_sched_delay=0")
    made.configure(nodes, *settings, *conf, plugin="topology/block" if made.suite == "trixie" else "")
    topology = Topology("nvlink", blocks=tuple(slurm_corpus.block(*one) for one in blocks), block_sizes=(base,))
    text = topology_files.render([topology], FILE[made.suite].partition(".")[2])
    (made.conf_dir / FILE[made.suite]).write_text(text)
    made.start()
    for name in ("sinfo", "sbatch"):
        inside = f"nsenter -t {made.pid} {' '.join(ENTER)} sh -c 'cd /; exec \"$@\"' sh {name}"
        made.program(name, f'exec {inside} "$@"')
    program = made.bin_dir / "nvlink-explain"
    program.write_bytes(probe.program(sys.executable, "explain/program"))
    program.chmod(0o755)


def explain(made: Slurmctld, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{made.bin_dir}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SLURM_CONF": str(made.conf_dir / "slurm.conf")}
    command = [str(made.bin_dir / "nvlink-explain"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def considered(made: Slurmctld) -> bool:
    """Whether slurmctld has considered each job."""
    rows = made.run("squeue", "-h", "-o", "%t %r").stdout.splitlines()
    return "PD None" not in rows


def run(made: Slurmctld, *steps: str) -> None:
    for step in steps:
        if step == WAIT:
            wait_for(lambda: considered(made))
        else:
            done = made.run("sh", "-c", f"cd /; {step}")
            assert done.returncode == 0, (step, done.stderr)


def situations() -> Iterator[ParameterSet]:
    """Each on each release that has it; in `make test` some on the newest."""
    for suite in SUITES:
        for one in SITUATIONS:
            quick = one.quick and suite == "forky"
            if one.of(suite):
                yield pytest.param(suite, one, id=f"{suite}-{one.name}", marks=() if quick else pytest.mark.long)


@pytest.mark.parametrize(("suite", "situation"), list(situations()))
def test_each_situation_has_its_exact_answer(suite: str, situation: Situation, tmp_path: Path) -> None:
    with sandbox(suite, tmp_path / "slurm") as made:
        configure(made, situation.blocks, situation.base, *situation.conf)
        run(made, *situation.steps)
        if "RECORD" in os.environ:
            record(made, situation, Path(os.environ["RECORD"]))
        said = {question: explain(made, *question.split()) for question in situation.answers}
        assert not [done.stderr for done in said.values() if done.stderr]
        texts = {question: TIME.sub("TIME", done.stdout).replace(UNKNOWN, "") for question, done in said.items()}
        assert texts == situation.of(suite)
        first = next(iter(situation.answers))
        document = json.loads(explain(made, *first.split(), "--json").stdout)
        assert document["sentence"] == said[first].stdout.splitlines()[0]


@pytest.mark.parametrize("suite", EACH_SUITE)
def test_a_user_without_root_sees_what_slurm_shows_him(suite: str, tmp_path: Path) -> None:
    with sandbox(suite, tmp_path / "slurm") as made:
        configure(made, FOUR, 4, GPU, "PrivateData=jobs")
        shutil.copy(made.bin_dir / "nvlink-explain", made.conf_dir)
        ask = ("python3", "-IS", str(made.conf_dir / "nvlink-explain"))
        user = ("setpriv", "--reuid=65534", "--clear-groups")
        run(made, f"{BATCH} -N4 -w 'r02t[01-04]' {HOUR}", f"scontrol update nodename=r01t02 {DRAIN}", WAIT)
        run(made, f"{BATCH} --uid=65534 -N4 {HOUR}", WAIT)
        said = [made.run(*who, *ask, number) for who, number in ((user, "2"), (user, "1"), ((), "2"))]
    texts = [TIME.sub("TIME", done.stdout).replace(UNKNOWN, "") for done in said]
    assert texts[0] == (
        "Job 2 waits for an operator: it needs 4 trays in one block, and r01t02 is drained: GPU 2 lost, since TIME,"
        " by root.\n"
        "  3 of 8 idle (r01 3)\n"
        "  4 of 8 busy with jobs that you may not see (r02 4)\n"
        "  1 of 8 out of service (r01t02 drained: GPU 2 lost, since TIME, by root)\n"
        "It starts now with 3 trays (sbatch --test-only --nodes=3).\n"
        "Not known: the jobs that PrivateData hides from you.\n"
    )
    assert said[1].stderr.splitlines()[-1] == (
        "nvlink-explain: There is no job 1 in the queue of cluster sandbox: it has ended (sacct -j shows it), or"
        " PrivateData hides it from you."
    )
    # Root sees all, and tests in the name of the user.
    assert texts[2].startswith("Job 2 waits for jobs: job 1 of root, until TIME at the latest; it needs 4 trays")
    assert texts[2].endswith("\nIt starts now with 3 trays (sbatch --test-only --nodes=3).\n")


@pytest.mark.parametrize("suite", EACH_SUITE)
def test_root_learns_from_a_sandbox_what_a_tray_starts_that_is_back(suite: str, tmp_path: Path) -> None:
    question = {"job": "1", "tray": "", "segment": None, "partition": "", "pending": False, "health": {}}
    of_tray = {"job": "", "tray": "r01t02"}
    with sandbox(suite, tmp_path / "slurm") as made:
        configure(made, FOUR, 4, GPU)
        # Of a job that names its trays nothing else can be changed.
        run(made, f"scontrol update nodename=r01t02 {DRAIN}", f"{BATCH} -N4 -w 'r01t[01-04]' {HOUR}", WAIT)
        request = {"explain": question, "conf_dir": str(made.conf_dir)}
        stage = Stage(made)
        said = [stage.start({**request, "explain": {**question, **one}}).communicate() for one in ({}, of_tray)]
    for output, errors in said:
        assert output, errors
        assert json.loads(output)["answer"]["change"] == {
            "sentence": "Job 1 starts now once r01t02 is in service.",
            "confirmed_by": "sbatch --test-only by a slurmctld in a sandbox",
        }


PLAYS = """
mount --make-rprivate /
mount -t tmpfs none /usr/local/bin
mount -t tmpfs none /var/lib
run() { "$@" || exit; echo ---; }
run ansible-playbook -i hosts.yml install.yml --check
run ansible-playbook -i hosts.yml install.yml
run ansible-playbook -i hosts.yml install.yml
run ansible-playbook -i hosts.yml rackscale.nvlink.verify --tags quick -e verify_fail=false
run cat /var/lib/nvlink-explain/health.json
run stat -c %a /usr/local/bin/nvlink-explain /var/lib/nvlink-explain/blocks.json
run setpriv --reuid 65534 --clear-groups /usr/local/bin/nvlink-explain --help
COMMANDS
run ansible-playbook -i hosts.yml install.yml -e slurm_topology_state=absent
run ls /usr/local/bin /var/lib
ansible-playbook -i hosts.yml install.yml -e slurm_explain_hosts=logins -e '{"slurm_topology_explain_on": []}'
"""
"""With folders of its own where the role writes; COMMANDS: those of the page, each after "run"."""
INSTALL = """
- hosts: slurm_controller
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: rackscale.nvlink.slurm_topology, tasks_from: explain}
      vars: {slurm_topology_explain_on: [ctl]}
"""


def test_roles_install_it_verify_has_a_line_and_the_playbook_asks(tmp_path: Path) -> None:
    situation = next(one for one in SITUATIONS if one.name == "whole rack")
    fabric = fabrics.fabric(racks=3, trays=18, split=(), first_index=1)
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabric))
    (tmp_path / "install.yml").write_text(INSTALL)
    with sandbox("forky", tmp_path / "slurm") as made:
        configure(made, situation.blocks, situation.base, *situation.conf)
        run(made, *situation.steps)
        settings = {"slurm_conf_dir": str(made.conf_dir), "slurm_explain": True}
        settings |= dict.fromkeys(("slurm_topology_bin_dir", "verify_slurm_bin_dir"), str(made.bin_dir))
        inventory = {"slurm_controller": {"hosts": {"ctl": LOCAL}}, "all": {"vars": settings}}
        (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
        of_page = "\n".join(f"run {command}" for command in pages.commands("docs/explain.md"))
        command = ["unshare", "-m", "sh", "-c", PLAYS.replace("COMMANDS", of_page)]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(PATH=path), timeout=300
        )
    said = done.stdout.split("---\n")
    # Its last run has a pattern without a host.
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert [re.findall(r"changed=(\d)", text) for text in said[:3]] == [["3"], ["3"], ["0"]]
    assert "1 tray is out of service and 1 job waits for it: see ansible-playbook rackscale.nvlink.explain." in said[3]
    assert json.loads(said[4]).keys() == {"schema_version", "at", "trays"}
    assert said[5].split() == ["755", "644"]
    assert "usage: nvlink-explain" in said[6]
    assert "Job 3 waits for an operator: it needs 18 trays in one block, and r03t07 is drained" in said[7]
    assert "It starts now with 17 trays (sbatch --test-only --nodes=17)." in said[7]
    assert "r03t07 of block r03 is drained" in said[8]
    answer = json.loads((tmp_path / "waiting.json").read_text())
    assert (answer["kind"], answer["waits_for"]) == ("queue", "operator")
    assert said[11].split() == ["/usr/local/bin:", "/var/lib:"]
    assert "slurm_explain_hosts: the pattern logins matches no host of the inventory; name the login nodes." in said[12]


def record(made: Slurmctld, situation: Situation, path: Path) -> None:
    """Add what Slurm printed; of its settings those that are read."""
    known = json.loads(path.read_text()) if path.exists() else {}
    reads = {name: read for name, read in slurm_evidence.READS.items() if name != "limits"}
    printed = {
        name: made.run(*read.command).stdout.replace(slurm_evidence.SEPARATOR, "\x1f") for name, read in reads.items()
    }
    keep = re.compile("SLURM_VERSION|PrivateData|SwitchParameters|ClusterName")
    printed["settings"] = "".join(f"{line}\n" for line in printed["settings"].splitlines() if keep.match(line))
    printed["now"] = made.run("date", "+%Y-%m-%dT%H:%M:%S").stdout.strip()
    known[f"{made.suite} {situation.name}"] = printed
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


# --------------------------------------------------------------------------------------------------- random clusters


@pytest.mark.long
@pytest.mark.parametrize("suite", EACH_SUITE)
def test_no_answer_contradicts_slurmctld_and_what_it_names_starts_the_job(suite: str, tmp_path: Path) -> None:
    """Each case: some trays drained, some busy for some minutes, and a job that waits."""
    wrong: list[str] = []
    for seed in range(SEED, SEED + CASES):
        chance = random.Random(f"{suite} {seed}")
        counts = [chance.randint(4, 6) for _block in range(chance.randint(2, 5))]
        blocks = tuple((f"r{at:02d}", f"r{at:02d}t[01-{number:02d}]") for at, number in enumerate(counts, 1))
        trays = [f"r{at:02d}t{tray:02d}" for at, number in enumerate(counts, 1) for tray in range(1, number + 1)]
        chance.shuffle(trays)
        with sandbox(suite, tmp_path / "slurm") as made:
            configure(made, blocks, 4, GPU)
            gone = trays[: chance.randint(0, 4)]
            busy = trays[len(gone) : len(gone) + chance.randint(1, len(trays) - len(gone))]
            steps = [f"scontrol update nodename={fold(gone)} state=drain reason=seed"] if gone else []
            half = len(busy) // 2
            for part in filter(None, (busy[:half], busy[half:])):
                limit = chance.choice(("-t 30", "-t 90", ""))
                # Up to 25.05 a job with a segment names no trays; what all others are leaves these.
                others = fold(tray for tray in trays if tray not in part)
                leave = f"-x {others}" if others else ""
                steps.append(f"{BATCH} -N{len(part)} --segment=1 {leave} {limit} --wrap true")
            segment = chance.choice((0, 1, 2, 3, 4))
            nodes = chance.randint(1, 9) if not segment else segment * chance.randint(1, 4)
            asked = f"-N{nodes} -t 10 {f'--segment={segment}' if segment else ''} --wrap true"
            run(made, *steps, WAIT, WAIT)
            tested = made.run("sh", "-c", f"cd /; sbatch --test-only --exclusive {asked}").stderr
            number = made.run("sh", "-c", f"cd /; {BATCH} {asked}").stdout.strip()
            if not number:
                continue  # refused at once
            wait_for(lambda made=made: considered(made))
            words = [number, *(["--segment", str(segment)] if segment and suite == "trixie" else [])]
            text, found = explain(made, *words).stdout, json.loads(explain(made, *words, "--json").stdout)
            problem = contradiction(made, number, found, tested)
            if problem:
                wrong.append(f"seed {seed} of {suite}, -N{nodes} --segment={segment}: {problem}\n{text}{tested}")
    assert not wrong, "\n".join(wrong)


def contradiction(made: Slurmctld, number: str, found: dict[str, Any], tested: str) -> str:
    """How slurmctld contradicts the answer, in a clause; empty where it does not."""

    def runs() -> bool:
        return made.run("squeue", "-h", "-j", number, "-o", "%t").stdout.strip() == "CF"

    word, sentence = str(found["waits_for"]), str(found["sentence"])
    start = re.search(r"to start at (\S+)", tested)
    if word == "nothing" or runs():
        return "" if word == "nothing" and runs() else f"it {'runs' if runs() else 'waits'}"
    if word == "slurm":
        return "idle trays fit, and it waits"
    if word == "never":
        return "slurmctld would start it" if start else ""
    if found["change"]:
        options = found["change"]["confirmed_by"].removeprefix("sbatch --test-only ")
        key, _equals, value = options.partition("=")
        # Of a job without --ntasks sbatch takes one task a node; an update leaves them.
        update = {"--nodes": (f"NumNodes={value}", f"NumTasks={value}"), "--segment": ()}[key]
        if update and not made.run("scontrol", "update", f"jobid={number}", *update).returncode:
            wait_for(lambda: considered(made))
            return "" if runs() else f"it does not start with {options}"
    if word == "operator":
        drained = re.search(r"and (\S+) (?:is|are) drained", sentence)
        assert drained is not None, sentence
        made.run("scontrol", "update", f"nodename={drained[1]}", "state=undrain")
    for job in re.findall(r"job (\d+) of", sentence):
        made.run("scancel", job)
    try:
        wait_for(runs, 90)
    except AssertionError:
        return "what it names does not start it"
    return ""
