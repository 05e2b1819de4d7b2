# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site of the playbook partition without a lab: trays that are folders of this machine, whose GPUs follow switches.

It has no Slurm, and the DRA driver owns IMEX (``dra_driver_shape``), so nothing of this machine is changed.
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
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import settings, state, switch
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets, local_trays
from ansible_collections.rackscale.nvlink.tests.lab.nvml.standin_text import smi_text

from .commands import CONFIG, environment
from .test_imex_role import descendants

ONE, TWO = "r01sw1", "r01sw2"
RACK = "r01"
ANSIBLE = [sys.executable, "-m", "ansible", "playbook"]
SOURCE = {"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": "fabric.json"}
POST = "POST"
OWN_PROCESSES = f"""\
#!/bin/sh
PATH="${{0%/*}}:$PATH" exec unshare --pid --fork --mount-proc {sys.executable} "$@"
"""
Answer = tuple[int, Any]


class Scripted(switch.Domain):
    """The switches, with what a test does when they are asked."""

    def __init__(self, folder: Path, drive: switch.Drive, seconds: float, lag: float) -> None:
        super().__init__(folder, drive, seconds, lag)
        self.posts: list[tuple[str, str]] = []
        # Called before the post with this number, from 1, is answered: verb and path.
        self.before: Callable[[int, str, str], None] = lambda _number, _verb, _path: None
        # What is answered in place of the real answer to a path.
        self.answers: Callable[[str, str, Answer], Answer] = lambda _method, _path, answer: answer

    def answer(self, switch: str, method: str, target: str, authorization: str, body: bytes) -> Answer:
        if method == POST:
            self.posts.append((next(iter(json.loads(body))), target))
            self.before(len(self.posts), *self.posts[-1])
        return self.answers(method, target, super().answer(switch, method, target, authorization, body))

    def take(self, seconds: float) -> None:
        """Let the actions that begin from now on take so long."""
        self._seconds = seconds

    @property
    def members(self) -> dict[int, set[str]]:
        """Partition -> the locations of its GPUs, listed or not."""
        with self._lock:
            return {int(key): {*row["locations"]} for key, row in self._state["partitions"].items()}


class PartitionSite:
    """A folder with inventory and fabric file, and the switches of NVLink domain r01 as threads of the test."""

    def __init__(self, folder: Path, **shape: int) -> None:
        self.folder, self.trays, self.rack = folder, folder / "trays", folder / "switches"
        # Without another shape the second rack is there to stay as it is.
        self.fleet = fleets.fleet(**({"racks": 2, "trays_per_rack": 2} | shape))
        for gpu in (gpu for facts in self.fleet.values() for gpu in facts["gpus"]):
            # Of no known product, so a tray may have any number of GPUs.
            gpu["name"] = "NVIDIA Test"
        self.hardware = {tray: settings.new_hardware(facts) for tray, facts in self.fleet.items()}
        self.variables: dict[str, Any] = {}
        # What the last refused run printed.
        self.text = ""
        self._lock = threading.Lock()
        self.servers: list[switch.Server] = []

    def create(self) -> None:
        """Trays, switches and inventory before any change, and the first fabric file."""
        self.trays.mkdir(parents=True)
        for tray, facts in self.fleet.items():
            local_trays.write_tray(self.trays / tray, facts)
            if os.geteuid() == 0:
                # A tray does not see the daemons of a lab that runs on this machine, too.
                local_trays.program(self.trays / tray / "python", OWN_PROCESSES)
        own = [
            gpu for tray, facts in self.fleet.items() if tray.startswith(RACK) for gpu in switch.gpus_of(tray, facts)
        ]
        switch.create(self.rack, [ONE, TWO], own)
        (self.folder / "cluster.nvlink.yml").write_text(yaml.safe_dump(SOURCE))
        self.start()
        done = self.play("discover", fabric_accept="gates")
        assert done.returncode == 0, done.stdout + done.stderr
        self.stop()

    def start(self) -> None:
        """Start the switches, which act at once."""
        self.domain = Scripted(self.rack, self._drive, 0.05, 0.0)
        self.servers = switch.serve(self.domain)
        login = {"nvue_user": switch.USER, "nvue_password": switch.PASSWORD, "nvue_ca_file": str(self.rack / "ca.crt")}
        here = {"ansible_host": "127.0.0.1", "nvlink_switch_domain": RACK, "nvue_timeout": 3, **login}
        python = f"{self.trays}/{{{{ inventory_hostname }}}}/python"
        children = {
            "trays": {
                "hosts": {tray: {} for tray in self.fleet},
                "vars": {"ansible_connection": "local", "ansible_python_interpreter": python},
            },
            "nvlink_switches": {
                "hosts": {server.switch: {**here, "nvue_port": server.server_port} for server in self.servers}
            },
        }
        (self.folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": children}}))

    def stop(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def copy_of(self, other: PartitionSite) -> PartitionSite:
        """This site, which becomes a copy of one that is stopped, and is started."""
        shutil.copytree(other.folder, self.folder, dirs_exist_ok=True)
        self.start()
        return self

    def _drive(self, tray: str, rows: list[tuple[str, str]]) -> None:
        with self._lock:
            for key, value in rows:
                self.hardware[tray] = settings.apply_setting(self.hardware[tray], key, value)
            state.write_atomically(self.trays / tray / "nvidia-smi.xml", smi_text(self.hardware[tray]["facts"]))

    def fault(self, name: str = ONE, /, **given: str) -> None:
        switch.set_faults(self.rack, name, list(given.items()))

    # ------------------------------------------------------------------------------------------------- what is so now

    @property
    def fabric(self) -> Path:
        return self.folder / "fabric.json"

    @property
    def partitions(self) -> dict[int, list[str]]:
        """Partition -> its trays, each of which has all of its GPUs there."""
        at = {
            gpu["location"]: (tray, len(facts["gpus"]))
            for tray, facts in self.fleet.items()
            for gpu in _gpus(tray, facts)
        }
        found = {}
        for number, locations in self.domain.members.items():
            counted = Counter(at[location] for location in locations)
            assert all(number == gpus for (_tray, gpus), number in counted.items()), counted
            found[number] = sorted(tray for tray, _gpus in counted)
        return found

    @property
    def cliques(self) -> dict[str, list[str]]:
        """Clique -> its trays in the fabric file; those with trays."""
        found: dict[str, list[str]] = {}
        for tray, row in json.loads(self.fabric.read_text())["trays"].items():
            found.setdefault(row["clique"], []).append(tray)
        return {name: sorted(trays) for name, trays in sorted(found.items())}

    @property
    def reported(self) -> dict[str, int | None]:
        """Tray -> the clique ID that its GPUs report."""
        return {tray: row["facts"]["clique_id"] for tray, row in self.hardware.items()}

    @property
    def journal(self) -> list[dict[str, Any]]:
        path = self.folder / f"fabric.partition-{RACK}.jsonl"
        # The last line may be half written.
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    @property
    def everything(self) -> tuple[Any, ...]:
        """What a run that changes nothing leaves."""
        other = {tray: (self.trays / tray / "nvidia-smi.xml").read_text() for tray in self.fleet}
        return self.fabric.read_bytes(), self.domain.members, self.journal, other

    # ------------------------------------------------------------------------------------------------------- commands

    def command(self, playbook: str, *words: str, **more: Any) -> list[str]:
        given = {
            "fabric_file": str(self.fabric),
            "fabric_facts_ip": "ip",
            "verify_ip": "ip",
            "imex_network": ["10.0.0.0/8"],
            "imex_owner": "driver_managed",
            "dra_driver_shape": "compute_domains",
            "k8s_topology_enabled": False,
            "verify_kubeconfig": "",
            # There is no Slurm to ask for jobs.
            "partition_override": ["jobs"],
            **self.variables,
            **more,
        }
        given = {name: value for name, value in given.items() if value is not None}
        names = ["hosts.yml", *(["cluster.nvlink.yml"] if self.fabric.exists() else [])]
        sources = [word for name in names for word in ("-i", name)]
        return [*ANSIBLE, *sources, f"rackscale.nvlink.{playbook}", "-e", json.dumps(given), *words]

    def play(self, playbook: str, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(playbook, *words, **more),
            cwd=self.folder,
            env=environment(ANSIBLE_CONFIG=str(CONFIG)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def partition(self, *words: str, **more: Any) -> str:
        """What the playbook printed, on one line; it must succeed."""
        done = self.play("partition", *words, **more)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        return printed(done)

    def refused(self, *words: str, **more: Any) -> str:
        """The sentence of a run that must fail."""
        done = self.play("partition", *words, **more)
        assert done.returncode == 2, done.stdout[-6000:] + done.stderr[-2000:]
        assert "Traceback" not in done.stdout + done.stderr
        assert switch.PASSWORD not in done.stdout + done.stderr
        pattern = r'^fatal: \[localhost\]: FAILED! => .*?"msg": "(.*?)"[,}\n]'
        [sentence] = re.findall(pattern, done.stdout, re.MULTILINE | re.DOTALL)
        print(sentence)
        self.text = printed(done)
        return str(sentence)

    def plan(self, **more: Any) -> str:
        """The SHA-256 of the plan, which a run without a terminal prints before it ends."""
        return str(re.findall(r"\b[0-9a-f]{64}\b", self.refused(**more))[-1])

    def killed(self, until: Callable[[list[dict[str, Any]]], bool], **more: Any) -> bool:
        """Run the playbook and kill all of it once the lines of its journal are so; whether it was killed."""
        log = (self.folder / "killed.log").open("a")
        process = subprocess.Popen(
            self.command("partition", **more),
            cwd=self.folder,
            env=environment(ANSIBLE_CONFIG=str(CONFIG)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        deadline = time.monotonic() + 300
        while process.poll() is None and not until(self.journal):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        was_running = process.poll() is None
        # So that it starts no worker meanwhile.
        process.send_signal(signal.SIGSTOP)
        for pid in descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(30)
        log.close()
        return was_running


def _gpus(tray: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return switch.gpus_of(tray, facts) if tray.startswith(RACK) else []


def printed(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(f"{done.stdout} {done.stderr}".replace('\\"', '"').split())
