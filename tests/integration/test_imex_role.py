# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role imex on trays of the lab: owners, lists that change, trays that are off meanwhile, and faults.

Every test ends in a domain that is up, or in one finding that names the cause. One lab serves all of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, files, packages

from .commands import ansible
from .conftest import CHECKOUT, RunningLab, lab_command, running_lab
from .test_lab import wait_until

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import gpus, imex, lab, paths

pytestmark = pytest.mark.lab

TRAYS = ["r01t01", "r01t02", "r01t03", "r01t04"]
ONE = {"r01": TRAYS}
DRIVER = imex.versions()[0]
MANAGED = (
    domain.PROGRAM,
    domain.DROP_IN,
    domain.SOCKET_UNIT,
    domain.SERVICE_UNIT,
    domain.TMPFILES,
    domain.MODPROBE,
    packages.APT_PIN,
    files.RECORD_FILE,
    domain.BLESSING,
    files.PERSIST_FILE,
    domain.HOST_SOCKET,
    *domain.TLS_FILES.values(),
)
SOCKET_LINK = f"/etc/systemd/system/sockets.target.wants/{domain.LIST_SOCKET}"
# The lab's kernel offers no channels, so a test gives it a line of the terminals', which containers may have.
DEVICES = "/root/devices"


class Play(NamedTuple):
    """What a run of the role came to: per tray the counts of the recap."""

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
        self.addresses = {
            name: found.group(1)
            for name in re.findall(r"(?m)^ +(r\d\dt\d\d):$", running.inventory.read_text())
            if (found := re.search(rf"{name}:\n +ansible_host: (\S+)", running.inventory.read_text()))
        }

    def cliques(self, members: dict[str, list[str]]) -> None:
        """The fabric file: clique -> trays."""
        document = {
            "schema_version": 1,
            "domains": {
                name: {
                    "cluster_uuid": f"9f3c0000-0000-4000-8000-{number:012d}",
                    "chassis_serials": [f"{number}"],
                    "expected_trays": 18,
                }
                for number, name in enumerate(members, 1)
            },
            "cliques": {
                name: {"domain": name, "clique_id": 32766, "block": {"name": name, "position": number}}
                for number, name in enumerate(members)
            },
            "trays": {
                tray: {
                    "clique": name,
                    "tray_index": number,
                    "gpu_uuids": [],
                    "imex_address": self.addresses[tray],
                    "slurm_node": tray,
                    "kubernetes_node": tray,
                    "why": "placed for a test",
                }
                for name, trays in members.items()
                for number, tray in enumerate(trays)
            },
            "overrides": [],
        }
        self.fabric.write_text(json.dumps(document))

    def role(self, *options: str, trays: list[str] | None = None, forks: int = 4, **variables: Any) -> Play:
        """Run playbook rackscale.nvlink.imex."""
        given: dict[str, Any] = {
            "imex_hosts": ":".join(trays or TRAYS),
            "fabric_file": str(self.fabric),
            "imex_wait_timeout": 20,
            "imex_boot_wait": 3,
            "imex_ctl_timeout": 2,
            **variables,
        }
        arguments = ["-i", self.lab.inventory, "rackscale.nvlink.imex", "--forks", str(forks), "-e", json.dumps(given)]
        done = ansible("ansible-playbook", *arguments, *options, check=False, ANSIBLE_TIMEOUT="5")
        assert "[DEPRECATION WARNING]" not in done.stderr, done.stderr
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        recap = {
            found.group(1): {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", found.group(2))}
            for found in re.finditer(r"(?m)^(r\d\dt\d\d) +: (ok=.*)$", done.stdout)
        }
        assert recap, done.stdout + done.stderr
        return Play(done.returncode, done.stdout + done.stderr, recap)

    def inside(self, tray: str, script: str) -> subprocess.Popen[str]:
        enter = lab.enter(self.lab.name, tray, ["sh", "-c", script])
        return subprocess.Popen(
            enter, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def on(self, trays: list[str], script: str) -> list[str]:
        """A script on several trays at once; what each printed."""
        running = [self.inside(tray, script) for tray in trays]
        said = [process.communicate(timeout=120) for process in running]
        assert all(process.returncode == 0 for process in running), said
        return [out for out, _error in said]

    def ask(self, tray: str, script: str) -> str:
        return self.inside(tray, script).communicate(timeout=120)[0].strip()

    def order(self, tray: str, **hooks: str) -> None:
        gpus.change(paths.state_of(self.lab.name) / "hosts" / tray, list(hooks.items()))

    def status(self, tray: str) -> str:
        """The domain as one tray's ctl has it."""
        found = re.search(r'"status": "(UP|DEGRADED|DOWN)"\}\s*$', self.ask(tray, "nvidia-imex-ctl -N -j"))
        return found.group(1) if found else ""

    def is_up(self, trays: list[str] | None = None) -> bool:
        return all(self.status(tray) == "UP" for tray in trays or TRAYS)

    def lists(self, trays: list[str] | None = None) -> list[str]:
        return self.on(trays or TRAYS, f"cat {files.NODES_FILE}")

    def record(self, tray: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(tray, f"cat {files.RECORD_FILE}"))
        return found

    def pids(self) -> list[str]:
        return self.on(TRAYS, "systemctl show --property=MainPID --value nvidia-imex")

    def power_off(self, tray: str) -> None:
        """As far as anybody else can tell: nothing answers, and nothing of IMEX runs."""
        self.on([tray], "systemctl stop nvidia-imex nvlink-imex-list.socket 2>/dev/null; ip link set host0 down")

    def boot(self, tray: str) -> None:
        """All of its services end and start anew, and nothing is left of /run that a boot would not leave."""
        before = self.ask(tray, "systemctl show --property=UserspaceTimestampMonotonic --value")
        self.on([tray], "rm -rf /run/nvlink-imex /run/nvidia-imex; systemctl --no-wall --force soft-reboot || true")

        def is_back() -> bool:
            return self.ask(
                tray, "systemctl show --property=UserspaceTimestampMonotonic --value; ip -br address show host0"
            ).startswith(tuple("123456789")) and before not in self.ask(
                tray,
                "systemctl is-active ssh >/dev/null && systemctl show --property=UserspaceTimestampMonotonic --value"
                " || echo " + before,
            )

        wait_until(is_back, f"{tray} has booted")


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    with running_lab(tmp_path_factory.mktemp("lab"), "bare.yml") as running:
        lab_command("packages", "--name", running.name, str(imex.packages()))
        yield Racks(running, tmp_path_factory.mktemp("imex"))


def clean(racks: Racks) -> None:
    """No fault is left of the test before; whatever IMEX is, the role must bring it to what it should be."""
    for tray in TRAYS:
        racks.order(tray, imex="ok", imex_imports="false", imex_block="none", imex_backoff="0", driver_version=DRIVER)


@pytest.fixture
def up(racks: Racks) -> Racks:
    """Four trays of one clique under `domain`, up and of one list."""
    clean(racks)
    racks.cliques(ONE)
    if not racks.is_up() or len(set(racks.lists())) != 1 or len(racks.lists()[0].split()) != 4:
        play = racks.role()
        assert play.rc == 0, play.text
    assert racks.is_up()
    return racks


# One list for each clique.


def test_a_check_on_bare_trays_changes_nothing(racks: Racks) -> None:
    racks.cliques(ONE)
    play = racks.role("--check", "--diff")
    assert play.rc == 0, play.text
    assert play.changed >= 4
    assert f"+++ after: {files.NODES_FILE}" in play.text
    assert racks.on(TRAYS, "ls -d /etc/nvidia-imex /usr/bin/nvidia-imex 2>/dev/null || true") == [""] * 4
    assert racks.on(TRAYS, f"ls {' '.join(MANAGED)} 2>/dev/null || true") == [""] * 4


def test_one_run_gives_a_domain_and_a_second_changes_nothing(racks: Racks) -> None:
    racks.cliques(ONE)
    play = racks.role("--diff")
    assert (play.rc, play.failed) == (0, set()), play.text
    assert racks.is_up()
    assert racks.lists() == ["".join(f"{racks.addresses[tray]}\n" for tray in TRAYS)] * 4
    assert [racks.record(tray)["generation"] for tray in TRAYS] == [1] * 4
    versions = racks.on(TRAYS, "dpkg-query -W -f '${Package} ${Version}' nvidia-imex")
    assert versions == [f"nvidia-imex {DRIVER}-1"] * 4
    before = racks.pids()
    again = racks.role("--check"), racks.role()
    assert [(play.rc, play.changed) for play in again] == [(0, 0), (0, 0)], again[1].text
    assert racks.pids() == before


def test_a_full_upgrade_leaves_the_package_with_the_driver(up: Racks) -> None:
    """595 is in the repository; the pin keeps apt from it."""
    assert "595." in up.ask(TRAYS[0], "apt-cache madison nvidia-imex")
    said = up.ask(TRAYS[0], "apt-get -s dist-upgrade")
    assert "Inst nvidia-imex" not in said


def test_a_list_that_changes_restarts_its_clique_alone(up: Racks) -> None:
    """r01t04 moves to a clique of its own; a third clique's daemon is not touched."""
    up.cliques({"r01": TRAYS[:2], "r02": TRAYS[2:3], "r03": TRAYS[3:]})
    assert up.role().rc == 0
    up.cliques({"r01": [TRAYS[0], TRAYS[1]], "r02": TRAYS[2:]})
    before = up.pids()
    shown = up.role("--check", "--diff")
    assert (shown.rc, shown.recap[TRAYS[0]]["changed"]) == (0, 0), shown.text
    assert shown.recap[TRAYS[2]]["changed"] > 0
    assert up.pids() == before
    play = up.role()
    assert play.rc == 0, play.text
    after = up.pids()
    assert [a == b for a, b in zip(before, after)] == [True, True, False, False]
    assert len({*up.lists(TRAYS[:2])}) == len({*up.lists(TRAYS[2:])}) == 1
    assert (up.record(TRAYS[2])["clique"], up.record(TRAYS[3])["clique"]) == ("r02", "r02")
    assert up.record(TRAYS[2])["generation"] == up.record(TRAYS[3])["generation"]
    assert up.is_up()


# A tray that is off while its clique's list changes.


def test_a_tray_that_was_off_during_a_change_stays_off_until_the_role_was_there(up: Racks) -> None:
    off, rest = TRAYS[3], TRAYS[:3]
    up.cliques({"r01": TRAYS[:2] + TRAYS[3:], "r02": [TRAYS[2]]})
    assert up.role().rc == 0
    generation = up.record(off)["generation"]
    up.power_off(off)
    up.cliques(ONE)
    play = up.role()
    assert play.recap[off]["unreachable"] == 1
    assert "imex_tray_owes" in play.text
    assert not play.failed, play.text
    assert up.record(TRAYS[0])["owing"] == [off]
    assert up.record(TRAYS[0])["generation"] == generation + 1
    assert len(set(up.lists(rest))) == 1
    assert up.status(TRAYS[0]) == "DEGRADED"
    up.boot(off)
    wait_until(lambda: "generation" in journal(up, off), "the check has said why")
    assert up.ask(off, "systemctl is-active nvidia-imex") == "inactive"
    assert f"generation {generation + 1} of the list of clique r01" in journal(up, off)
    # Nobody talks with it, and nobody is set apart from it: no !M! in the clique.
    assert "!M!" not in up.ask(TRAYS[0], "nvidia-imex-ctl -N").partition("Nodes:")[2]
    # The rest would be no part of this run, and is not touched.
    before = up.pids()[:3]
    back = up.role(trays=[off])
    assert back.rc == 0, back.text
    assert up.is_up()
    assert up.pids()[:3] == before
    assert up.role().rc == 0
    assert up.record(TRAYS[0])["owing"] == []
    assert up.role().changed == 0


def journal(racks: Racks, tray: str) -> str:
    return racks.ask(tray, "journalctl --unit nvidia-imex --output=cat --no-pager | grep ^nvlink-imex: | tail -1")


def test_a_tray_that_boots_starts_by_itself_where_nothing_has_changed(up: Racks) -> None:
    up.boot(TRAYS[1])
    wait_until(lambda: up.is_up(), "the domain is up again")
    assert up.role().changed == 1  # the blessing of this boot


def test_a_tray_that_nobody_answers_stays_off_and_asks_again(up: Racks) -> None:
    up.on(TRAYS[:3], "systemctl stop nvlink-imex-list.socket")
    up.boot(TRAYS[3])
    wait_until(lambda: "systemd asks again" in journal(up, TRAYS[3]), "the check says that nobody answers")
    assert up.ask(TRAYS[3], "systemctl is-active nvidia-imex") != "active"
    up.on(TRAYS[:1], "systemctl start nvlink-imex-list.socket")
    wait_until(lambda: up.is_up(), "one that answers is enough")
    assert up.role().rc == 0


def test_a_part_of_a_clique_cannot_change_its_list(up: Racks) -> None:
    before = up.pids()
    up.cliques({"r01": TRAYS[:3], "r02": TRAYS[3:]})
    play = up.role(trays=TRAYS[:2])
    assert play.failed == {TRAYS[0]}, play.text
    assert "leaves out r01t03" in play.text
    assert up.pids() == before
    assert len(up.lists()[0].split()) == 4
    up.cliques(ONE)


# What stops a change, and what a start can meet.


def test_a_package_of_another_version_is_brought_to_the_drivers(up: Racks) -> None:
    """Of all members at once, and the file of the site keeps its key."""
    up.on(TRAYS, "echo IMEX_NEWER_KEY=kept >> /etc/nvidia-imex/config.cfg")
    for tray in TRAYS:
        up.order(tray, driver_version=imex.versions()[2])
    play = up.role()
    assert play.rc == 0, play.text
    assert up.is_up()
    assert up.on(TRAYS, "dpkg-query -W -f '${Version}' nvidia-imex") == [f"{imex.versions()[2]}-1"] * 4
    assert all("IMEX_NEWER_KEY=kept\n" in text for text in up.on(TRAYS, f"cat {files.CONFIG_FILE}"))
    assert up.role().changed == 0


def test_a_version_that_no_repository_has_stops_before_anything(up: Racks) -> None:
    before = up.pids()
    up.order(TRAYS[1], driver_version="580.999.99")
    play = up.role()
    assert play.failed == {TRAYS[1]}, play.text
    assert "No repository of this tray has nvidia-imex or nvidia-imex-580 in version 580.999.99" in play.text
    assert up.pids() == before


def test_a_second_daemon_is_named(up: Racks) -> None:
    up.on(TRAYS[:1], "systemctl stop nvidia-imex")
    up.order(TRAYS[0], imex="in_use")
    play = up.role()
    assert play.failed == {TRAYS[0]}, play.text
    assert "NV_ERR_IN_USE" in play.text


def test_two_owners_stop_the_run(up: Racks) -> None:
    before = up.pids()
    up.on(TRAYS[:1], "mkdir -p /etc/slurm/prolog.d; echo nvidia-imex > /etc/slurm/prolog.d/50-site.sh")
    try:
        play = up.role(imex_owner="none")
        assert TRAYS[0] in play.failed
        assert "more than one owner" in play.text
        assert up.pids()[0] == before[0]
    finally:
        up.on(TRAYS[:1], "rm -r /etc/slurm/prolog.d")


def test_a_list_that_somebody_edited_is_one_list_again(up: Racks) -> None:
    """It ran with that list, so the whole clique must restart."""
    up.on(TRAYS[2:3], f"tac {files.NODES_FILE} > /root/l; cp /root/l {files.NODES_FILE}")
    up.on(TRAYS[2:3], "rm /etc/systemd/system/nvidia-imex.service.d/50-nvlink.conf; systemctl daemon-reload")
    up.on(TRAYS[2:3], "systemctl restart nvidia-imex")
    wait_until(lambda: "!M!" in up.ask(TRAYS[0], "nvidia-imex-ctl -N").partition("Nodes:")[2], "they part")
    before = up.pids()
    play = up.role()
    assert play.rc == 0, play.text
    assert up.is_up()
    assert all(a != b for a, b in zip(before, up.pids()))


def test_the_edited_list_of_a_tray_keeps_its_daemon_from_starting(up: Racks) -> None:
    up.on(TRAYS[2:3], f"systemctl stop nvidia-imex; echo 198.51.100.99 >> {files.NODES_FILE}")
    up.on(TRAYS[2:3], "systemctl start nvidia-imex")
    assert up.ask(TRAYS[2], "systemctl is-active nvidia-imex") == "inactive"
    assert "is not the list that the role imex wrote" in journal(up, TRAYS[2])


def test_a_daemon_that_never_gets_ready_is_the_one_that_fails(up: Racks) -> None:
    up.on(TRAYS[1:2], "systemctl stop nvidia-imex")
    up.order(TRAYS[1], imex="init_gpu")
    play = up.role(imex_wait_timeout=3)
    assert play.failed == {TRAYS[1]}, play.text
    assert "init_gpu" in play.text


def test_a_start_that_hangs_holds_nobody(up: Racks) -> None:
    up.on(TRAYS[1:2], "systemctl stop nvidia-imex")
    up.order(TRAYS[1], imex="start_hangs")
    began = time.monotonic()
    play = up.role(imex_wait_timeout=3, imex_start_timeout=3)
    assert time.monotonic() - began < 60
    assert play.failed in ({TRAYS[1]}, set()), play.text
    up.order(TRAYS[1], imex="ok")
    up.on(TRAYS[1:2], "systemctl kill --signal=KILL nvidia-imex; systemctl stop nvidia-imex; true")


def test_a_ctl_that_hangs_is_a_finding_in_time(up: Racks) -> None:
    up.order(TRAYS[1], imex="hang")
    play = up.role(imex_wait_timeout=3, imex_ctl_timeout=1)
    assert play.failed == {TRAYS[1]}, play.text
    assert "gave no answer in time" in play.text


def test_a_closed_port_is_named(up: Racks) -> None:
    """50000 of one tray takes nothing: the rows of all others agree on whom."""
    up.on(TRAYS, "systemctl stop nvidia-imex")
    up.order(TRAYS[1], imex_block="peer")
    play = up.role(imex_wait_timeout=6)
    assert TRAYS[1] in play.text
    assert play.failed == {TRAYS[1]}, play.text
    assert "50000" in play.text


def test_a_tray_that_dies_between_stop_and_start_owes(up: Racks, tmp_path: Path) -> None:
    """The rest of the clique goes on without it."""
    up.cliques({"r01": TRAYS[:3], "r02": TRAYS[3:]})
    assert up.role().rc == 0
    up.cliques(ONE)
    # Its network dies with the stop of its daemon.
    up.on(
        TRAYS[1:2],
        "mkdir -p /run/systemd/system/nvidia-imex.service.d; printf '[Service]\\nExecStopPost=+/bin/ip link set host0"
        " down\\n' > /run/systemd/system/nvidia-imex.service.d/99-test.conf; systemctl daemon-reload",
    )
    play = up.role()
    assert play.recap[TRAYS[1]]["unreachable"] == 1, play.text
    assert not play.failed
    assert "imex_tray_owes" in play.text
    assert up.record(TRAYS[0])["owing"] == [TRAYS[1]]
    up.on(TRAYS[1:2], "rm /run/systemd/system/nvidia-imex.service.d/99-test.conf; systemctl daemon-reload")
    up.boot(TRAYS[1])
    wait_until(lambda: up.ask(TRAYS[1], "systemctl is-active ssh") == "active", "ssh is back")
    back = up.role()
    assert back.rc == 0, back.text
    assert up.is_up()


# Owners.


@pytest.fixture
def settings() -> dict[str, Any]:
    """Everything that an owner can leave behind is in use."""
    return {
        "imex_job_slurm_conf": "/root/slurm.conf",
        "imex_channels": [0, 2],
        "imex_proc_devices": DEVICES,
        "imex_channel_count": 1024,
    }


# Each tray is a clique of its own, and walks five of the twenty switches.
WALKS = {
    "r01t01": ["domain", "job", "domain", "driver_managed", "domain", "host_managed"],
    "r01t02": ["host_managed", "domain", "none", "domain", "none", "job"],
    "r01t03": ["job", "driver_managed", "job", "host_managed", "job", "none"],
    "r01t04": ["none", "driver_managed", "host_managed", "driver_managed", "none", "host_managed"],
}


def test_the_walks_have_every_switch() -> None:
    pairs = {pair for walk in WALKS.values() for pair in zip(walk, walk[1:])}
    missing = {(a, b) for a in domain.OWNERS for b in domain.OWNERS if a != b} - pairs
    assert missing <= {("none", "job")} | {("host_managed", "none"), ("host_managed", "job")}, missing


def state_of(racks: Racks, tray: str) -> dict[str, Any]:
    """What there is of any owner on a tray."""
    script = (
        "systemctl is-enabled nvidia-imex; systemctl is-active nvidia-imex; pgrep -xc nvidia-imex;"
        "systemctl is-active nvlink-imex-list.socket;"
        "ls /dev/nvidia-caps-imex-channels 2>/dev/null | tr '\\n' ' '; echo;"
        f"ls -d {' '.join(MANAGED)} {files.NODES_FILE} {SOCKET_LINK} 2>/dev/null || true"
    )
    lines = racks.ask(tray, script).split("\n")
    enabled, active, daemons, socket, channels, *there = (line.strip() for line in lines)
    return {
        "enabled": enabled,
        "active": active,
        "daemons": int(daemons),
        "socket": socket,
        "channels": channels,
        "files": {path for path in there if path},
    }


SERVICE_FILES = {
    domain.PROGRAM,
    domain.DROP_IN,
    domain.SOCKET_UNIT,
    domain.SERVICE_UNIT,
    domain.TMPFILES,
    domain.MODPROBE,
    packages.APT_PIN,
    files.RECORD_FILE,
    domain.BLESSING,
    files.NODES_FILE,
    SOCKET_LINK,
}


def expected(owner: str) -> dict[str, Any]:
    if owner in domain.SERVICE_OWNERS:
        return {
            "enabled": "enabled",
            "active": "active",
            "daemons": 1,
            "socket": "active",
            "channels": "channel0 channel2",
            "files": SERVICE_FILES | ({domain.HOST_SOCKET} if owner == domain.HOST else set()),
        }
    off = {"enabled": "disabled", "active": "inactive", "daemons": 0, "socket": "inactive", "channels": ""}
    left = {
        domain.JOB: {domain.MODPROBE, packages.APT_PIN},
        domain.DRIVER: {domain.MODPROBE, files.NODES_FILE},
        domain.NONE: set(),
    }[owner]
    return {**off, "enabled": "masked" if owner == domain.DRIVER else "disabled", "files": left}


def test_every_owner_after_every_other_leaves_nothing_of_it(up: Racks, settings: dict[str, Any]) -> None:
    up.on(TRAYS, f"printf 'Character devices:\\n  1 mem\\n  4 nvidia-caps-imex-channels\\n' > {DEVICES}")
    prologs = "Prolog=/etc/slurm/prolog.d/*\\nEpilog=/etc/slurm/epilog.d/*"
    up.on(TRAYS, f"printf 'PrologFlags=Alloc\\n{prologs}\\n' > /root/slurm.conf")
    up.cliques({f"c{number}": [tray] for number, tray in enumerate(TRAYS)})
    try:
        for step in range(6):
            owners = {tray: walk[step] for tray, walk in WALKS.items()}
            chosen = {"imex_owner": "{{ imex_walk[inventory_hostname] }}", "imex_walk": owners, **settings}
            before = {tray: state_of(up, tray) for tray in TRAYS}
            shown = up.role("--check", "--diff", **chosen)
            assert (shown.rc, {tray: state_of(up, tray) for tray in TRAYS}) == (0, before), shown.text
            play = up.role(**chosen)
            assert play.rc == 0, play.text
            for tray, owner in owners.items():
                seen, wanted = state_of(up, tray), expected(owner)
                if owner == domain.DRIVER and domain.JOB in WALKS[tray][step - 1 : step]:
                    wanted["files"] = wanted["files"] - {files.NODES_FILE}
                if owner == domain.DRIVER and domain.NONE in WALKS[tray][step - 1 : step]:
                    wanted["files"] = wanted["files"] - {files.NODES_FILE}
                assert seen == wanted, (step, tray, WALKS[tray][step - 1 : step + 1])
                assert shown.recap[tray]["changed"] > 0
            again = up.role(**chosen)
            assert (again.rc, again.changed) == (0, 0), again.text
    finally:
        up.cliques(ONE)


# TLS between members.


def test_tls_by_an_authority_of_the_role_and_its_rotation(up: Racks) -> None:
    chosen = {
        "imex_tls": "ca",
        "imex_tls_ca_dir": str(up.folder / "ca"),
        "nvlink_imex_address": "{{ ansible_host }}",
    }
    play = up.role("--diff", "-vvv", **chosen)
    assert play.rc == 0, play.text
    assert up.is_up()
    assert "PRIVATE KEY" not in play.text
    key = (up.folder / "ca" / f"{TRAYS[0]}.key").read_text()
    assert key.splitlines()[1] not in play.text
    modes = up.on(TRAYS, f"stat -c '%a %U' {domain.TLS_FOLDER} {' '.join(domain.TLS_FILES.values())}")
    assert modes == ["700 root\n600 root\n600 root\n600 root\n"] * 4
    assert up.role(**chosen).changed == 0
    before = up.pids()
    rotated = up.role("--diff", **chosen, imex_tls_rotate=True)
    assert rotated.rc == 0, rotated.text
    assert key.splitlines()[1] not in rotated.text
    assert (up.folder / "ca" / f"{TRAYS[0]}.key").read_text() != key
    assert up.pids() == before
    assert all("reloading the TLS files" in text for text in up.on(TRAYS, "cat /var/log/nvidia-imex.log"))
    assert up.is_up()
    off = up.role()
    assert off.rc == 0, off.text
    assert up.is_up()
    assert up.on(TRAYS, f"ls -d {domain.TLS_FOLDER} 2>/dev/null || true") == [""] * 4
