# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role imex on trays of the lab: changes of node lists, trays that are off during a change, TLS, and faults.

Every test ends in a domain that is up, or in one finding that names the cause. All of them share one lab, and each
begins with a domain that is up (fixture `up`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats, packages
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from nvlab import gpus, imex, lab, network, paths

from . import test_isvctl
from .commands import CONFIG, ansible, environment
from .conftest import CHECKOUT, RunningLab, lab_command, running_lab

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))

pytestmark = pytest.mark.lab

TRAYS = ["r01t01", "r01t02", "r01t03", "r01t04"]
# In one step, as an editor does: by a pipe tac would read what the shell has emptied.
TURN_LIST = f'turned=$(tac {formats.NODES_FILE}); echo "$turned" > {formats.NODES_FILE}'
ONE = {"r01": TRAYS}
DRIVER = imex.VERSIONS[0]
DYING = "/run/systemd/system/nvidia-imex.service.d/99-test.conf"
SITE_PROLOG = "/etc/slurm/prolog.d/50-site.sh"
# ssh detects a tray that dies during a task in time, and does not give up one that is slow.
SETTINGS = {
    "ANSIBLE_CONFIG": str(CONFIG),
    "ANSIBLE_TIMEOUT": "20",
    "ANSIBLE_INJECT_INVOCATION": "true",
    "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=60s"
    " -o ServerAliveInterval=5 -o ServerAliveCountMax=4",
}
# The lab's own mounts stay in a soft-reboot.
KEEP_MOUNTS = """
    for at in /opt/nvlink-lab /opt/nvlink-lab-packages/site; do
        unit=/run/systemd/system/$(systemd-escape --path --suffix=mount $at).d
        mkdir -p "$unit" && printf '[Unit]\nDefaultDependencies=no\n' > "$unit/keep.conf"
    done
    systemctl daemon-reload"""


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
    """Wait for a state of the lab; each look costs a process, so not too often."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.25)


class Play(NamedTuple):
    """The result of a run of the role. ``recap``: tray -> its counts."""

    rc: int
    text: str
    recap: dict[str, dict[str, int]]

    @property
    def changed(self) -> int:
        return sum(counts["changed"] for counts in self.recap.values())

    @property
    def failed(self) -> set[str]:
        return {tray for tray, counts in self.recap.items() if counts["failed"]}


class Racks:
    """The lab, its fabric file and the role."""

    def __init__(self, running: RunningLab, folder: Path) -> None:
        self.lab, self.folder = running, folder
        self.fabric = folder / "fabric.json"
        found = re.findall(r"(?m)^ +(r\d\dt\d\d):\n +ansible_host: (\S+)", running.inventory.read_text())
        self.addresses = dict(found)

    def cliques(self, members: dict[str, list[str]]) -> None:
        """The fabric file: clique -> trays."""
        made = fabrics.fabric(racks=1, trays=len(TRAYS), split=()).as_dict()
        (domain,), (clique,), trays = made["domains"].values(), made["cliques"].values(), made["trays"]
        made.update(domains={}, cliques={}, trays={})
        for number, (name, placed) in enumerate(members.items()):
            uuid = f"9f3c0000-0000-4000-8000-{number:012d}"
            made["domains"][name] = {**domain, "cluster_uuid": uuid, "chassis_serials": [str(number)]}
            made["cliques"][name] = {**clique, "domain": name, "block": {"name": name, "position": number}}
            for tray in placed:
                made["trays"][tray] = {**trays[tray], "clique": name, "imex_address": self.addresses[tray]}
        self.fabric.write_text(json.dumps(made))

    def arguments(self, trays: list[str] | None = None, forks: int = 4, **variables: Any) -> list[str]:
        """Of a run of playbook rackscale.nvlink.imex."""
        given: dict[str, Any] = {
            "imex_hosts": ":".join(trays or TRAYS),
            "fabric_file": str(self.fabric),
            "imex_boot_wait": 3,
            **variables,
        }
        start = ["-i", str(self.lab.inventory), "rackscale.nvlink.imex"]
        return [*start, "--forks", str(forks), "-e", json.dumps(given)]

    def role(self, *options: str, trays: list[str] | None = None, forks: int = 4, **variables: Any) -> Play:
        """Run playbook rackscale.nvlink.imex."""
        arguments = self.arguments(trays, forks, **variables)
        done = ansible("ansible-playbook", *arguments, *options, check=False, timeout=600.0, **SETTINGS)
        assert "[DEPRECATION WARNING]" not in done.stderr, done.stderr
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        recap = {
            found.group(1): {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", found.group(2))}
            for found in re.finditer(r"(?m)^(r\d\dt\d\d) +: (ok=.*)$", done.stdout)
        }
        assert recap, done.stdout + done.stderr
        return Play(done.returncode, done.stdout + done.stderr, recap)

    def facts(self, tray: str, **options: Any) -> dict[str, Any]:
        """Its facts nvlink_imex."""
        module = ["-m", "rackscale.nvlink.fabric_facts", "-a", json.dumps({"gather_subset": ["imex"], **options})]
        output = ansible("ansible", tray, "-i", self.lab.inventory, *module).stdout
        result = json.loads(output.partition(f"{tray} | SUCCESS => ")[2])
        assert result["changed"] is False
        found: dict[str, Any] = result["ansible_facts"]["nvlink_imex"]
        return found

    def inside(self, tray: str, script: str) -> subprocess.Popen[str]:
        enter = lab.enter(self.lab.name, tray, ["sh", "-c", script])
        return subprocess.Popen(
            enter, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def on(self, trays: list[str], script: str) -> list[str]:
        """Run a script on several trays at once; the output of each."""
        running = [self.inside(tray, script) for tray in trays]
        printed = [process.communicate(timeout=120) for process in running]
        assert all(process.returncode == 0 for process in running), printed
        return [out for out, _error in printed]

    def read(self, tray: str, script: str) -> str:
        return self.inside(tray, script).communicate(timeout=120)[0].strip()

    def order(self, tray: str, **hooks: str) -> None:
        gpus.change(paths.state_of(self.lab.name) / "hosts" / tray, list(hooks.items()))

    def status(self, tray: str) -> str:
        """The state of the domain by the ctl of one tray."""
        found = re.search(r'"status": "(UP|DEGRADED|DOWN)"\}\s*$', self.read(tray, "nvidia-imex-ctl -N -j"))
        return found.group(1) if found else ""

    def is_up(self, trays: list[str] | None = None) -> bool:
        return all(self.status(tray) == "UP" for tray in trays or TRAYS)

    def lists(self, trays: list[str] | None = None) -> list[str]:
        return self.on(trays or TRAYS, f"cat {formats.NODES_FILE}")

    def record(self, tray: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.read(tray, f"cat {formats.RECORD_FILE}"))
        return found

    def pids(self) -> list[str]:
        return self.on(TRAYS, "systemctl show --property=MainPID --value nvidia-imex")

    def power_off(self, tray: str) -> None:
        """Make a tray look powered off to others: it does not answer, and IMEX does not run."""
        self.on([tray], "systemctl stop nvidia-imex nvlink-imex-list.socket 2>/dev/null; ip link set host0 down")

    def boot(self, tray: str) -> None:
        """Restart all services of a tray, with what a boot clears of /run removed."""
        self.on([tray], KEEP_MOUNTS)
        self.on([tray], "rm -rf /run/nvlink-imex /run/nvidia-imex; ip link set host0 up")
        address = self.addresses[tray]
        wait_for(lambda: lab.ssh_answers(self.lab.name, address), f"{tray} is in the network again")
        # Watched from outside: systemd stops all processes (SIGSTOP) before it kills them, and an nsenter whose child
        # is stopped stops itself for good.
        with contextlib.closing(network.connect(str(network.file_of(self.lab.name)), address, 22, 30)) as link:
            self.on([tray], "systemd-run --quiet --no-block systemctl --no-wall --force soft-reboot")
            with contextlib.suppress(ConnectionError):
                while link.recv(256):
                    pass
        wait_for(lambda: lab.ssh_answers(self.lab.name, address), f"{tray} booted", 180.0)


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    """With a Slurm that runs no prolog."""
    with running_lab(tmp_path_factory.mktemp("lab"), "four-forky.yml") as running:
        lab_command("packages", "--name", running.name, str(imex.packages()))
        yield Racks(running, tmp_path_factory.mktemp("imex"))


def clean(racks: Racks) -> None:
    """Remove the faults of the test before."""
    for tray in TRAYS:
        racks.order(tray, imex="ok", imex_imports="false", imex_block="none", imex_backoff="0", driver_version=DRIVER)
    racks.on(TRAYS, f"rm -f {SITE_PROLOG} {DYING}; systemctl daemon-reload; ip link set host0 up; systemctl start ssh")
    racks.read("ctl", "scancel --user=root")
    wait_for(lambda: racks.read("ctl", "squeue --noheader") == "", "no job is left")


@pytest.fixture
def up(racks: Racks) -> Racks:
    """Four trays of one clique with owner `domain`, up with one node list."""
    clean(racks)
    racks.cliques(ONE)
    if not racks.is_up() or {len(text.split()) for text in racks.lists()} != {4}:
        play = racks.role()
        assert play.rc == 0, play.text
    assert racks.is_up()
    return racks


def journal(racks: Racks, tray: str) -> str:
    return racks.read(tray, "journalctl --unit nvidia-imex --output=cat --no-pager | grep ^nvlink-imex: | tail -1")


# One list for each clique.


def test_from_bare_trays_to_a_domain(racks: Racks) -> None:
    racks.cliques(ONE)
    play = racks.role("--check", "--diff")
    assert play.rc == 0, play.text
    assert play.changed >= 4
    assert formats.NODES_FILE in play.text
    assert (
        racks.on(
            TRAYS,
            f"ls -d /usr/bin/nvidia-imex {domain.PROGRAM} {packages.APT_PIN} {formats.RECORD_FILE} 2>/dev/null || true",
        )
        == [""] * 4
    )

    # No phase waits for the same phase on another tray, so two forks do for four trays.
    play = racks.role("--diff", "-v", forks=2)
    assert (play.rc, play.failed) == (0, set()), play.text
    assert "IMEX: 4 trays, 4 changed." in play.text
    done = ("run systemctl start --no-block nvidia-imex.service", f"write {formats.NODES_FILE} (mode 0644, ")
    assert [play.text.count(f'"{action}') for action in done] == [4, 4]
    assert racks.is_up()
    assert racks.lists() == ["".join(f"{racks.addresses[tray]}\n" for tray in TRAYS)] * 4
    assert [racks.record(tray)["generation"] for tray in TRAYS] == [1] * 4
    versions = racks.on(TRAYS, "dpkg-query -W -f '${Package} ${Version}' nvidia-imex")
    assert versions == [f"nvidia-imex {DRIVER}-1"] * 4
    # 595 is in the repository, but a full upgrade does not install it.
    assert "595." in racks.read(TRAYS[0], "apt-cache madison nvidia-imex")
    assert "Inst nvidia-imex" not in racks.read(TRAYS[0], "apt-get -s dist-upgrade")

    before = racks.pids()
    again = racks.role("-v")
    assert (again.rc, again.changed) == (0, 0), again.text
    assert "IMEX: 4 trays, none changed." in again.text
    assert '"actions": []' in again.text
    assert '"run ' not in again.text
    assert racks.pids() == before


def test_a_reading_by_ssh_starts_no_task_on_a_tray_where_nothing_is_due(up: Racks) -> None:
    by_ssh = up.role(tray_reading="ssh")
    assert by_ssh.rc == 0, by_ssh.text
    assert "IMEX: 4 trays, none changed." in by_ssh.text
    assert list(by_ssh.recap) == TRAYS[:1], "the tasks that run once are shown for the first tray"
    assert "Inspect every tray" not in by_ssh.text
    # Ansible inspects and changes a clique with a change.
    up.on(TRAYS[1:2], f"echo '# edited' >> {formats.CONFIG_FILE}")
    play = up.role("--check", tray_reading="ssh")
    assert play.rc == 0, play.text
    assert f"{TRAYS[1]}: change {formats.CONFIG_FILE}" in play.text
    assert play.recap.keys() == set(TRAYS)
    play = up.role(tray_reading="ssh")
    assert (play.rc, play.failed) == (0, set()), play.text
    assert up.is_up()
    # What cannot be read by ssh is not the same as nothing due. Ansible needs no su here, where root logs in.
    become = {"ansible_become": "{{ inventory_hostname == 'r01t02' }}", "ansible_become_method": "su"}
    play = up.role(tray_reading="ssh", **become)
    assert re.search(r"tray_reading: r01t02: .*; Ansible reads it", " ".join(play.text.split())), play.text
    assert "Inspect every tray" in play.text
    assert (play.rc, play.failed) == (0, set()), play.text
    assert "IMEX: 4 trays, none changed." in play.text


def test_trays_boot_by_themselves_when_their_list_is_confirmed(up: Racks) -> None:
    up.boot(TRAYS[1])
    wait_for(up.is_up, "the domain is up again")
    up.on(TRAYS[:3], "systemctl stop nvlink-imex-list.socket")
    up.boot(TRAYS[3])
    wait_for(lambda: "systemd retries" in journal(up, TRAYS[3]), "the check logs that no member answers")
    assert up.read(TRAYS[3], "systemctl is-active nvidia-imex") != "active"
    up.on(TRAYS[:3], "systemctl start nvlink-imex-list.socket")
    wait_for(up.is_up, "the check was retried")


def test_a_tray_that_was_off_while_its_list_changed(up: Racks) -> None:
    """r01 is split while r01t04 is off and a job runs on r01t01; then r01t04 comes back with the list of four."""
    off = TRAYS[3]
    generation = up.record(off)["generation"]
    job = up.read("ctl", "sbatch --parsable --nodelist=r01t01 --output=/dev/null --wrap 'sleep 600'")
    wait_for(lambda: up.read("ctl", "squeue --noheader --states=R --format=%i") == job, f"job {job} runs")
    before = up.pids()
    up.power_off(off)
    up.cliques({"r01": TRAYS[:2], "r02": TRAYS[2:]})
    play = up.role(imex_ready_wait=40)
    assert f"Jobs run on this clique ({job} (root))" in play.text
    assert play.failed == set(TRAYS[:2]), play.text
    assert play.recap[off]["unreachable"] == 1
    # The other clique has no job, and changes without the tray that is off.
    assert f"imex_list_outdated: {off} did not get generation" in play.text
    assert [a == b for a, b in zip(before[:3], up.pids())] == [True, True, False]
    assert up.record(TRAYS[2])["clique"] == "r02"

    play = up.role(imex_ready_wait=40, imex_allow_jobs=True)
    assert not play.failed, play.text
    assert [up.record(tray)["generation"] for tray in TRAYS[:2]] == [generation + 1] * 2
    assert (up.status(TRAYS[0]), up.status(TRAYS[2])) == ("UP", "DEGRADED")

    up.boot(off)
    newer = f"has generation {generation + 1} of the list of clique r01, this tray has"
    wait_for(lambda: newer in journal(up, off), "the check at boot logs the reason")
    wait_for(lambda: up.read(off, "systemctl is-active nvidia-imex") == "inactive", "it stays off")
    assert up.status(TRAYS[0]) == "UP"
    assert "NODE_MAP_MISMATCH" not in up.read(TRAYS[2], "nvidia-imex-ctl -N -j")

    # The role on that tray alone reads the generation of its clique's other trays, and does not change them.
    before = up.pids()[:3]
    back = up.role(trays=[off])
    assert back.rc == 0, back.text
    wait_for(up.is_up, "its peers are connected again")
    assert up.record(off)["generation"] == up.record(TRAYS[2])["generation"]
    whole = up.role()
    assert (whole.rc, whole.changed) == (0, 0), whole.text
    assert up.pids()[:3] == before


def test_a_job_on_some_trays_keeps_the_domain_of_the_whole_clique(up: Racks) -> None:
    """No part of a clique loses its IMEX: Slurm sends jobs to the trays without the job too."""
    job = up.read("ctl", "sbatch --parsable -N2 --nodelist=r01t[01-02] --output=/dev/null --wrap 'sleep 600'")
    wait_for(lambda: up.read("ctl", "squeue --noheader --states=R --format=%i") == job, f"job {job} runs")
    before = up.pids(), up.lists()
    play = up.role(imex_owner="none")
    assert (play.changed, play.failed) == (0, set(TRAYS[:3])), play.text
    assert "Owner none ends the IMEX domain of clique r01, but r01t01 failed (Jobs run on" in play.text
    assert (up.pids(), up.lists()) == before
    assert up.is_up()


@pytest.mark.long
def test_an_edited_list_does_not_start(up: Racks) -> None:
    """With the unit; started without the unit's check, it splits the clique, which the role reconnects."""
    # Under a daemon that has read the right one, it is written again.
    before = up.pids()
    up.on(TRAYS[2:3], f"sleep 3; {TURN_LIST}")
    play = up.role()
    assert (play.rc, play.changed, up.pids()) == (0, 1, before), play.text
    assert len(set(up.lists())) == 1
    assert up.role().changed == 0
    up.on(TRAYS[2:3], f"systemctl stop nvidia-imex; {TURN_LIST}")
    up.on(TRAYS[2:3], "systemctl start nvidia-imex")
    assert up.read(TRAYS[2], "systemctl is-active nvidia-imex") == "inactive"
    assert "is not the node list that the role imex wrote" in journal(up, TRAYS[2])
    up.on(TRAYS[2:3], f"rm {domain.DROP_IN}; systemctl daemon-reload; systemctl start nvidia-imex")
    wait_for(lambda: "NODE_MAP_MISMATCH" in up.read(TRAYS[0], "nvidia-imex-ctl -N -j"), "they are disconnected")
    before = up.pids()
    play = up.role()
    assert play.rc == 0, play.text
    assert up.is_up()
    assert all(a != b for a, b in zip(before, up.pids()))


@pytest.mark.long
def test_a_new_driver_changes_the_package_of_the_whole_clique(up: Racks) -> None:
    """Two trays get the package named after the branch. The site has its own templates, and a key of a new release."""
    for tray in TRAYS:
        up.order(tray, driver_version=imex.VERSIONS[2])
    plain, branch = "nvidia-imex", f"nvidia-imex-{imex.VERSIONS[2].partition('.')[0]}"
    names: dict[str, Any] = {"imex_package": f"{{{{ '{branch}' if inventory_hostname in {TRAYS[2:]} else '' }}}}"}
    names["imex_config_extra"] = {"IMEX_NEWER_KEY": "kept"}
    for name, more in (
        ("config.cfg", "SITE_KEY={{ imex_owner }}"),
        ("drop_in.conf", "Environment=SITE={{ imex_tray }}"),
    ):
        file = up.folder / f"{name}.j2"
        file.write_text(f"{(CHECKOUT / 'roles/imex/templates' / file.name).read_text()}{more}\n")
        names[f"imex_{name.partition('.')[0]}_template"] = str(file)
    play = up.role(**names)
    assert play.rc == 0, play.text
    assert up.is_up()
    query = "dpkg-query -W -f '${db:Status-Abbrev}${Package} ${Version}\\n' 'nvidia-imex*' | sed -n 's/^ii *//p'"
    expected_packages = [f"{name} {imex.VERSIONS[2]}-1" for name in (plain, plain, branch, branch)]
    assert [text.strip() for text in up.on(TRAYS, query)] == expected_packages
    for package, pin in zip(expected_packages, up.on(TRAYS, f"cat {packages.APT_PIN}")):
        assert "Package: {}\nPin: version {}\n".format(*package.split()) in pin
    keys = up.on(TRAYS, f"grep -x -e IMEX_NEWER_KEY=kept -e SITE_KEY=domain {formats.CONFIG_FILE}")
    assert keys == ["IMEX_NEWER_KEY=kept\nSITE_KEY=domain\n"] * 4
    environments = up.on(TRAYS, "tr '\\0' '\\n' < /proc/$(pgrep -x nvidia-imex)/environ | grep ^SITE=")
    assert environments == [f"SITE={tray}\n" for tray in TRAYS]
    assert up.role("--check", **names).changed == 0


# Faults: each is reported on the tray that has it, and no other clique waits for it.


@pytest.mark.long
def test_faults_of_four_cliques_in_one_run(up: Racks) -> None:
    up.cliques({f"c{number}": [tray] for number, tray in enumerate(TRAYS)})
    up.on(TRAYS[:1] + TRAYS[2:3], "systemctl stop nvidia-imex")
    up.order(TRAYS[0], imex="start_hangs")
    up.order(TRAYS[1], driver_version="580.999.99")
    up.order(TRAYS[2], imex="init_gpu")
    up.on(TRAYS[3:], f"mkdir -p /etc/slurm/prolog.d; echo nvidia-imex > {SITE_PROLOG}")
    before = up.pids()
    play = up.role(imex_start_wait=3, imex_ready_wait=3)
    assert play.failed == set(TRAYS), play.text
    messages = {tray: re.findall(rf"(?m)^fatal: \[{tray}\].*$", play.text)[-1] for tray in TRAYS}
    assert "is still starting" in messages[TRAYS[0]]
    assert "No repository of this tray has nvidia-imex or nvidia-imex-580 in version 580.999.99" in messages[TRAYS[1]]
    assert "init_gpu" in messages[TRAYS[2]]
    assert "more than one owner" in messages[TRAYS[3]]
    # Two of them are found before anything changes.
    assert (up.pids()[1], up.pids()[3]) == (before[1], before[3])


@pytest.mark.long
def test_a_tray_that_dies_after_its_start(up: Racks) -> None:
    """It has the list, one message names it, and the rest of the clique continues without it."""
    dies = TRAYS[1]
    down = "[Service]\\nExecStartPost=+/bin/ip link set host0 down\\n"
    up.on([dies], f"mkdir -p $(dirname {DYING}); printf '{down}' > {DYING}; systemctl daemon-reload")
    up.cliques({"r01": TRAYS[:3], "r02": TRAYS[3:]})
    play = up.role(imex_ready_wait=30)
    assert play.recap[dies]["unreachable"] == 1, play.text
    assert (up.status(TRAYS[0]), up.status(TRAYS[3])) == ("DEGRADED", "UP")
    assert len(re.findall(rf"tray_unreachable: [^\n]*{dies}", play.text)) == 1, play.text


# A run that is killed, with its modules on the trays, at a step of a change: the text that it printed before, and what
# a tray then waits for.
KILLS = (
    ("TASK [rackscale.nvlink.imex : Stop daemons", "true"),
    ("TASK [rackscale.nvlink.imex : Stop daemons", "! pgrep -x nvidia-imex"),
    ("TASK [rackscale.nvlink.imex : Start IMEX]", "true"),
    ("TASK [rackscale.nvlink.imex : Wait until", "pgrep -x nvidia-imex"),
)


def descendants(pid: int) -> list[int]:
    """A process and those that it started: each worker of Ansible has a process group of its own."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(FileNotFoundError):
            found += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    return found


UNTIL = "for n in $(seq 600); do {} >/dev/null && exit; sleep 0.05; done; exit 1"


@pytest.mark.long
def test_a_run_that_is_killed_at_each_step_is_repaired_by_the_next(up: Racks) -> None:
    """The clique is split and joined in turn, for which all daemons restart."""
    for number, (header, moment) in enumerate(KILLS):
        cliques, before = (ONE if number % 2 else {"r01": TRAYS[:3], "r02": TRAYS[3:]}), up.pids()
        up.cliques(cliques)
        command = [sys.executable, "-m", "ansible", "playbook", *up.arguments()]
        with subprocess.Popen(command, env=environment(**SETTINGS), stdout=subprocess.PIPE, text=True) as run:
            assert any(header in line for line in run.stdout or ()), (number, header)
            up.on(TRAYS[:1], UNTIL.format(moment))
            for pid in descendants(run.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            up.on(TRAYS, "pkill -KILL -f '[A]nsiballZ_imex_domain'; ! pgrep -f '[A]nsiballZ_imex_domain'")
        assert run.returncode == -signal.SIGKILL, number

        play = up.role()
        assert (play.rc, play.failed) == (0, set()), (number, play.text)
        lists = ["".join(f"{up.addresses[tray]}\n" for tray in trays) for trays in cliques.values() for _tray in trays]
        assert up.lists() == lists, number
        assert up.is_up(), number
        # By tray: each has PIDs of its own.
        assert all(old != new for old, new in zip(before, up.pids(), strict=True)), (number, before)
    again = up.role()
    assert (again.rc, again.changed) == (0, 0), again.text


def test_the_provider_for_isvctl_fails_exactly_what_is_broken(up: Racks) -> None:
    """examples/isvctl against trays: the facts that facts.yml writes, and the answers of IMEX from them."""
    trays = up.folder / "trays.ini"
    trays.write_text("\n".join(["[nvlink]", *TRAYS, ""]))
    facts = up.folder / "facts"
    facts.mkdir()

    def failed() -> list[str]:
        inventory = ["-i", up.lab.inventory, "-i", trays]
        ansible("ansible-playbook", *inventory, test_isvctl.EXAMPLE / "facts.yml", "-e", f"nvlink_facts={facts}")
        tests = ("SDN17-01", "SDN21-01")
        return [test for test in tests if test_isvctl.result(up.folder, test, {}) == "failed"]

    assert failed() == []
    up.on(TRAYS[2:3], "systemctl mask --runtime nvidia-imex")
    assert failed() == ["SDN17-01"]
    up.on(TRAYS[2:3], "systemctl unmask --runtime nvidia-imex; systemctl stop nvidia-imex")
    assert failed() == ["SDN21-01"]


# TLS between members.


RELOADS = "grep -c 'reloading the TLS files' /var/log/nvidia-imex.log"


@pytest.mark.long
def test_tls_by_an_authority_of_the_role_and_its_rotation(up: Racks) -> None:
    chosen = {"imex_tls": "ca", "imex_tls_ca_dir": str(up.folder / "ca")}
    play = up.role("--diff", "-vvv", **chosen)
    assert play.rc == 0, play.text
    assert up.is_up()
    assert "IMEX_ENABLE_AUTH_ENCRYPTION=1\n" in up.read(TRAYS[0], f"cat {formats.CONFIG_FILE}")
    key = (up.folder / "ca" / f"{TRAYS[0]}.key").read_text()
    assert "BEGIN CERTIFICATE" in play.text, "the arguments are printed"
    assert "PRIVATE KEY" not in play.text
    assert key.splitlines()[1] not in play.text
    modes = up.on(TRAYS, f"stat -c '%a %U' {domain.TLS_FOLDER} {' '.join(domain.TLS_FILES.values())}")
    assert modes == ["700 root\n600 root\n600 root\n600 root\n"] * 4
    before = up.pids()
    shutil.copytree(up.folder / "ca", up.folder / "site")
    rotated = up.role("--diff", **chosen, imex_tls_rotate=True)
    assert rotated.rc == 0, rotated.text
    assert key.splitlines()[1] not in rotated.text
    assert (up.folder / "ca" / f"{TRAYS[0]}.key").read_text() != key
    assert up.pids() == before
    reloads = up.on(TRAYS, RELOADS)
    assert "0\n" not in reloads
    wait_for(up.is_up, "they are connected with the new certificates")

    # The site's own files, here those of before, replace them, which restarts no daemon either.
    own = f"{up.folder}/site/{{{{ inventory_hostname }}}}"
    paths = {"key": f"{own}.key", "certificate": f"{own}.pem", "authority": f"{up.folder}/site/ca.pem"}
    play = up.role("--diff", imex_tls="site", imex_tls_files=paths)
    assert play.rc == 0, play.text
    assert "PRIVATE KEY" not in play.text
    assert all(int(now) > int(then) for now, then in zip(up.on(TRAYS, RELOADS), reloads))
    site = (up.folder / "site" / f"{TRAYS[3]}.key").read_text().strip()
    assert up.read(TRAYS[3], f"cat {domain.TLS_FILES['key']}") == site
    assert up.pids() == before
    wait_for(up.is_up, "they are connected with the site's certificates")
    off = up.role()
    assert off.rc == 0, off.text
    assert up.is_up()
    assert up.on(TRAYS, f"ls -d {domain.TLS_FOLDER} 2>/dev/null || true") == [""] * 4
