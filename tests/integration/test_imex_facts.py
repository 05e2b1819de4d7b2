# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The IMEX facts of trays of the lab, where they depend on real processes, units, files and sockets.

tests/unit/plugins/module_utils/imex has a finding for each fault. The four trays are one IMEX domain here, whatever
their cliques: the test is of the module, not of the role.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, verdict

from .commands import ansible
from .conftest import CHECKOUT, RunningLab, running_lab

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import gpus, imex, lab, packages, paths

pytestmark = [pytest.mark.lab, pytest.mark.long]

TRAYS = ["r01t01", "r01t02", "r01t03", "r01t04"]
ADDRESSES = [f"198.51.100.{number}" for number in (11, 12, 13, 14)]
MEMBERS = list(zip(TRAYS, ADDRESSES))
LIST = files.render_nodes(ADDRESSES)
Read = Callable[..., dict[str, dict[str, Any]]]


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
    """Wait for a state of the lab; each look costs a process, so not too often."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.25)


def install(version: int = 0) -> str:
    """The command that installs IMEX on a tray, from the lab's own repository."""
    apt = "DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Options::=--force-confold"
    return f"{apt} update && {apt} -y --allow-downgrades install nvidia-imex={imex.versions()[version]}-1"


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with running_lab(tmp_path_factory.mktemp("lab"), "bare.yml") as running:
        yield running


@pytest.fixture(scope="module")
def read(racks: RunningLab) -> Read:
    """The facts nvlink_imex of trays: name -> facts."""

    def run(*trays: str, **options: Any) -> dict[str, dict[str, Any]]:
        arguments = [
            ":".join(trays or TRAYS),
            "-i",
            racks.inventory,
            "-m",
            "rackscale.nvlink.fabric_facts",
            "--forks",
            "4",
        ]
        output = ansible("ansible", *arguments, "-a", json.dumps({"gather_subset": ["imex"], **options})).stdout
        results = {}
        for found in re.finditer(r"(?m)^(\S+) \| SUCCESS => (?=\{)", output):
            result = json.JSONDecoder().raw_decode(output, found.end())[0]
            assert result["changed"] is False
            results[found.group(1)] = result["ansible_facts"]["nvlink_imex"]
        return results

    return run


def codes(facts: dict[str, Any]) -> set[str]:
    """The findings but for the channels: the lab's kernel has none."""
    return {found["code"] for found in facts["findings"]} - {"imex_channels_off"}


def inside(racks: RunningLab, tray: str, *command: str) -> subprocess.Popen[str]:
    """A command of a tray; the lab's own functions, since a start of its command line costs more than most commands."""
    enter = lab.enter(racks.name, tray, list(command))
    return subprocess.Popen(enter, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def on(racks: RunningLab, trays: list[str], script: str) -> None:
    """A script on several trays at once."""
    running = [inside(racks, tray, "sh", "-c", script) for tray in trays]
    for process in running:
        output = process.communicate(timeout=120)
        assert process.returncode == 0, output


def ctl(racks: RunningLab, tray: str, *options: str) -> str:
    return inside(racks, tray, "nvidia-imex-ctl", *options).communicate(timeout=60)[0]


def order(racks: RunningLab, tray: str, **hooks: str) -> None:
    """What `lab set` does."""
    gpus.change(paths.state_of(racks.name) / "hosts" / tray, list(hooks.items()))


def is_up(racks: RunningLab) -> bool:
    """Every member reports an up domain."""
    return all(ctl(racks, tray, "-N", "-j").endswith('"status": "UP"}\n') for tray in TRAYS)


@pytest.fixture(scope="module")
def bare(read: Read) -> dict[str, dict[str, Any]]:
    """The facts of trays before anything is installed."""
    return read(TRAYS[0])


@pytest.fixture(scope="module")
def domain(bare: dict[str, Any], racks: RunningLab) -> RunningLab:
    """Four trays with the package of the driver's version."""
    packages.add(paths.state_of(racks.name), imex.packages())
    on(racks, TRAYS, install())
    return racks


@pytest.fixture
def up(domain: RunningLab) -> RunningLab:
    """All started with one list and without faults."""
    for tray in TRAYS:
        order(domain, tray, imex="ok", imex_imports="false", imex_block="none", imex_backoff="0")
    stop = f"""
        systemctl unmask --quiet nvidia-imex
        systemctl kill --signal=KILL nvidia-imex 2>/dev/null
        systemctl stop nvidia-imex
        systemctl reset-failed nvidia-imex 2>/dev/null
        rm -rf /run/nvidia-imex /var/log/nvidia-imex.log {files.RECORD_FILE} /etc/slurm/prolog.d
        sed -i s/^IMEX_CMD_ENABLED=.*/IMEX_CMD_ENABLED=1/ {files.CONFIG_FILE}
        printf '%s' '{LIST}' > {files.NODES_FILE}"""
    # All are stopped before the first starts: a member that has received another list never connects.
    on(domain, TRAYS, stop)
    on(domain, TRAYS, "systemctl enable --quiet --now nvidia-imex")
    wait_for(lambda: is_up(domain), "the domain is up")
    return domain


def test_a_tray_without_imex(bare: dict[str, dict[str, Any]]) -> None:
    facts = bare[TRAYS[0]]
    assert (facts["installed"], facts["running"], facts["state"], facts["owners"]) == (False, False, None, [])
    assert facts["package"] is None
    assert facts["driver_version"] == imex.versions()[0]
    assert codes(facts) == {"imex_missing"}


def test_a_whole_domain(up: RunningLab, read: Read) -> None:
    answers = read()
    for number, tray in enumerate(TRAYS):
        facts = answers[tray]
        assert codes(facts) == set()
        assert facts["reason"] is None
        assert (facts["state"], facts["domain_state"], facts["ready"]) == ("ready", "up", True)
        assert facts["version"] == facts["driver_version"] == imex.versions()[0]
        assert facts["package"] == {"name": "nvidia-imex", "version": f"{imex.versions()[0]}-1"}
        assert facts["nodes"]["own_id"] == number
        assert facts["nodes"]["sha256"] == files.digest(LIST)
        assert facts["nodes"]["entries"] == ADDRESSES
        assert [peer["host"] for peer in facts["peers"]] == [a for a in ADDRESSES if a != ADDRESSES[number]]
        assert {peer["connection"] for peer in facts["peers"]} == {"connected"}
        unit = facts["unit"]
        assert (unit["load"], unit["active"], unit["enabled"]) == ("loaded", "active", "enabled")
        assert [(entry["owner"], entry["pid"]) for entry in facts["owners"]] == [("service", unit["main_pid"])]
        assert (facts["persist_file"], facts["config"]["unknown_keys"]) == (False, [])
    judged = verdict.judge("r01", MEMBERS, answers)
    assert (judged.ok, judged.disconnected, judged.findings) == (True, (), ())


def test_a_list_written_while_the_daemon_runs_and_not_recorded(up: RunningLab, read: Read) -> None:
    record = files.render_record(files.Record("r01", 4, files.digest(LIST), "domain"))
    on(
        up,
        TRAYS[:1],
        f"printf '%s' '{record}' > {files.RECORD_FILE}; echo 198.51.100.15 >> {files.NODES_FILE};"
        f" touch -d 'now + 10 seconds' {files.NODES_FILE}",
    )
    facts = read(TRAYS[0])[TRAYS[0]]
    assert codes(facts) >= {"imex_list_edited", "imex_list_not_running"}
    nodes = facts["nodes"]
    assert (nodes["generation"], nodes["clique"], nodes["recorded_owner"]) == (4, "r01", "domain")


def test_an_unclean_stop(up: RunningLab, read: Read) -> None:
    order(up, TRAYS[0], imex_imports="true")
    on(up, TRAYS[:1], f"for i in $(seq 600); do test -e {files.PERSIST_FILE} && exit; sleep 0.1; done; exit 1")
    assert read(TRAYS[0])[TRAYS[0]]["persist_file"]
    on(up, TRAYS[3:], "systemctl stop nvidia-imex")
    on(up, TRAYS[:1], "systemctl kill --signal=KILL nvidia-imex")

    def waits() -> bool:
        return ctl(up, TRAYS[0], "-q") == "WAITING_FOR_RECOVERY\n"

    wait_for(waits, "systemd starts it again, and it waits")
    answers = read()
    assert "imex_waiting_for_recovery" in codes(answers[TRAYS[0]])
    assert ADDRESSES[3] in answers[TRAYS[0]]["reason"]
    judged = verdict.judge("r01", MEMBERS, answers)
    found = {entry["code"]: entry for entry in judged.findings}
    assert set(found) == {"imex_waiting_for_recovery", "imex_unit_down"}
    assert TRAYS[3] in found["imex_waiting_for_recovery"]["message"]
    on(up, TRAYS[3:], "systemctl start nvidia-imex")
    wait_for(lambda: is_up(up), "all are there again")


def test_two_owners(up: RunningLab, read: Read) -> None:
    on(up, TRAYS[:1], "mkdir -p /etc/slurm/prolog.d; echo 'nvidia-imex -c job.cfg' > /etc/slurm/prolog.d/50-imex.sh")
    # A daemon like that of the DRA driver: in a container of its own, by a configuration of its own.
    on(
        up,
        TRAYS[1:2],
        "mkdir -p /imexd && cp /etc/nvidia-imex/config.cfg /imexd/imexd.cfg && systemctl stop nvidia-imex",
    )
    on(up, TRAYS[1:2], "systemd-run --quiet --unit=imexd --property=Type=forking nvidia-imex -c /imexd/imexd.cfg")
    answers = read(*TRAYS[:2])
    assert {entry["owner"] for entry in answers[TRAYS[0]]["owners"]} == {"service", "prolog"}
    assert {entry["owner"] for entry in answers[TRAYS[1]]["owners"]} == {"service", "driver"}
    assert all("imex_two_owners" in codes(facts) for facts in answers.values())
    on(up, TRAYS[1:2], "systemctl stop imexd")


def test_a_foreign_daemon_and_a_masked_unit(up: RunningLab, read: Read) -> None:
    on(up, TRAYS[:1], "systemctl disable --quiet --now nvidia-imex; systemctl mask --quiet nvidia-imex")
    facts = read(TRAYS[0])[TRAYS[0]]
    assert (facts["unit"]["load"], facts["unit"]["enabled"], facts["owners"]) == ("masked", "masked", [])
    assert codes(facts) == set()
    on(up, TRAYS[:1], f"systemd-run --quiet --unit=other --property=Type=forking nvidia-imex -c {files.CONFIG_FILE}")
    facts = read(TRAYS[0])[TRAYS[0]]
    assert [entry["owner"] for entry in facts["owners"]] == ["foreign"]
    assert "imex_foreign_daemon" in codes(facts)
    on(up, TRAYS[:1], "systemctl stop other")


def test_channels(up: RunningLab, read: Read) -> None:
    folder = "/dev/nvidia-caps-imex-channels"
    # The lab's kernel has no such line, so the test gives one of the terminals', which containers may have.
    on(up, TRAYS[:1], "printf 'Character devices:\\n  1 mem\\n  4 nvidia-caps-imex-channels\\n' > /root/devices")
    facts = read(TRAYS[0], proc_devices="/root/devices")[TRAYS[0]]
    assert (facts["channels"], codes(facts)) == ({"major": 4, "devices": []}, {"imex_channel_missing"})
    on(
        up,
        TRAYS[:1],
        f"mkdir -p {folder}; mknod -m 0666 {folder}/channel0 c 4 0; mknod -m 0600 {folder}/channel1 c 5 1",
    )
    facts = read(TRAYS[0], proc_devices="/root/devices")[TRAYS[0]]
    assert facts["channels"]["devices"] == [
        {"name": "channel0", "major": 4, "minor": 0, "mode": "0666"},
        {"name": "channel1", "major": 5, "minor": 1, "mode": "0600"},
    ]
    assert codes(facts) == {"imex_channel_stale"}


def test_members_of_two_versions(up: RunningLab, read: Read) -> None:
    """And an upgrade by package that keeps the site's configuration."""
    try:
        order(up, TRAYS[3], driver_version=imex.versions()[2])
        on(up, TRAYS[3:], install(version=2))
        on(up, TRAYS[3:], "systemctl restart nvidia-imex")

        def differs() -> bool:
            return " !V!" in ctl(up, TRAYS[0], "-N").partition("Nodes:")[2]

        wait_for(differs, "the other version is reported")
        answers = read()
        assert codes(answers[TRAYS[0]]) == {"imex_peer_version"}
        assert answers[TRAYS[3]]["package"]["version"] == f"{imex.versions()[2]}-1"
        judged = verdict.judge("r01", MEMBERS, answers)
        assert [(found["code"], found["tray"]) for found in judged.findings] == [("imex_peer_version", TRAYS[3])]
    finally:
        order(up, TRAYS[3], driver_version=imex.versions()[0])
        on(up, TRAYS[3:], install())
