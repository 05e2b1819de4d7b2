# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab that the playbooks of the collection have configured, and faults to plant in it, for the tests of verify.

Real slurmctld, slurmdbd and slurmd, the IMEX stand-in's real processes and files, GPUs by `lab set`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files

from .commands import ansible
from .conftest import CHECKOUT, RunningLab, lab_command, running_lab
from .test_lab import wait_until

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import imex

RACK = {"name": "r01", "trays": 6, "cliques": [{"id": 1, "trays": [1, 2, 3]}, {"id": 2, "trays": [4, 5, 6]}]}
TRAYS = [f"r01t{number:02d}" for number in range(1, 7)]
TIERS = [
    {"name": "gold", "cliques": ["r01a"], "max_time": "1-00:00:00", "qos": {"priority": 1000, "grp_tres": {"node": 3}}},
    {"name": "bronze", "cliques": ["r01b"], "qos": {"priority": 10}},
]
# The lab's kernel has no IMEX channels; the trays use the terminals' major number, which containers may create.
DEVICES = "/root/devices"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
LIST = files.NODES_FILE
RELOAD = "scontrol reconfigure && timeout 60 sh -c 'until scontrol ping | grep -q UP; do sleep 0.2; done'"


@dataclass(frozen=True)
class Fault:
    """How a fault is injected and repaired, and its one failure. hardware: tray -> settings of `lab set`."""

    name: str
    layer: str
    code: str
    trays: tuple[str, ...] = ()
    do: Mapping[str, str] = field(default_factory=dict)
    undo: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)

    @property
    def row(self) -> tuple[str, str, tuple[str, ...]]:
        return self.layer, self.code, self.trays


def gpus(name: str, layer: str, code: str, tray: str, broken: str, healthy: str, also: str = "") -> Fault:
    """A fault of one tray's hardware; `also` is set with it."""
    pair = ((broken, *also.split()), (healthy, *(f"{setting.partition('=')[0]}=ok" for setting in also.split())))
    return Fault(name, layer, code, (tray,), hardware={tray: pair})


def on_tray(name: str, layer: str, code: str, tray: str, do: str, undo: str, whole_clique: str = "") -> Fault:
    """A fault of one tray's files or daemons; `whole_clique` is the repair on the other trays of its clique."""
    half = TRAYS[:3] if tray in TRAYS[:3] else TRAYS[3:]
    repair = {other: whole_clique for other in half if whole_clique}
    return Fault(name, layer, code, (tray,), {tray: do}, {**repair, tray: f"{undo}\n{whole_clique}"})


def in_slurm(name: str, code: str, trays: tuple[str, ...], do: str, undo: str = "", layer: str = "slurm") -> Fault:
    return Fault(name, layer, code, trays, {"ctl": do}, {"ctl": undo or RESTORE})


RESTART = "systemctl reset-failed nvidia-imex; systemctl restart nvidia-imex"
RESTORE = f"cp /root/good/* /etc/slurm/ && {RELOAD}"


class Site:
    """A lab that the playbooks of the collection have configured."""

    def __init__(self, running: RunningLab, folder: Path, trays: Sequence[str], tiers: list[dict[str, Any]]) -> None:
        self.lab, self.folder, self.trays, self.tiers = running, folder, trays, tiers
        self.verdict_file, self.junit_file = folder / "verdict.json", folder / "verdict.xml"
        self.output = ""

    def prepare(self) -> None:
        lab_command("packages", "--name", self.lab.name, str(imex.packages()))
        devices = "printf 'Character devices:\\n  4 nvidia-caps-imex-channels\\n'"
        self.on(dict.fromkeys(self.trays, f"{devices} > {DEVICES}"))
        self.play("discover", "-e", "fabric_accept=gates")
        self.play("slurm")
        self.play("imex", imex_boot_wait=3)
        self.lab.exec(
            "ctl", "sh", "-ec", "mkdir /root/good; find /etc/slurm -maxdepth 1 -type f -exec cp -a {} /root/good/ ';'"
        )

    def play(self, name: str, *arguments: str, check: bool = True, **variables: Any) -> Any:
        given = {
            "fabric_file": str(self.folder / "fabric.json"),
            "imex_hosts": "trays",
            "imex_channels": [0],
            "imex_proc_devices": DEVICES,
            "slurm_topology_manage_conf": True,
            "slurm_tiers_manage_conf": True,
            "slurm_topology_rehearse": "never",
            "slurm_tiers_rehearse": "never",
            "verify_hosts": "trays",
            "verdict_file": str(self.verdict_file),
            "junit_file": str(self.junit_file),
            "verify_proc_devices": DEVICES,
            "verify_imex_timeout": 5,
            **variables,
        }
        # Tiers are variables of the controllers, as in group_vars.
        of_slurm = self.folder / "slurm.yml"
        of_slurm.write_text(json.dumps({"slurm_controller": {"vars": {"slurm_tiers": self.tiers}}}))
        where = ("-i", self.lab.inventory, "-i", of_slurm, "--forks=12")
        command = (*where, f"rackscale.nvlink.{name}", "-e", json.dumps(given), *arguments)
        return ansible("ansible-playbook", *command, check=check, ANSIBLE_TIMEOUT="20")

    def verify(self, *arguments: str, first: bool = True, **variables: Any) -> dict[str, Any]:
        """The verdict; `first`: of a run that knows nothing of an earlier one."""
        if first:
            self.verdict_file.unlink(missing_ok=True)
        done = self.play("verify", *arguments, check=False, **variables)
        self.output = done.stdout
        assert self.verdict_file.exists(), done.stdout + done.stderr
        verdict: dict[str, Any] = json.loads(self.verdict_file.read_text())
        assert (done.returncode == 0) is verdict["ok"], done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        return verdict

    def on(self, scripts: Mapping[str, str]) -> None:
        """Run scripts on several hosts concurrently."""

        def run(host: str) -> None:
            self.lab.exec(host, "sh", "-ec", scripts[host])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(run, scripts))

    def make(self, fault: Fault) -> None:
        self.on(fault.do)
        for tray, (broken, _healthy) in fault.hardware.items():
            self.set(tray, broken)

    def set(self, tray: str, settings: tuple[str, ...]) -> None:
        """Run `lab set`; the value `home` stands for the value of the fabric file."""
        fabric = json.loads((self.folder / "fabric.json").read_text())
        known = [f"uuid={row['cluster_uuid']}" for row in fabric["domains"].values()]
        known += [f"gpu{at}.gpu_uuid={gpu}" for at, gpu in enumerate(fabric["trays"][tray]["gpu_uuids"])]
        home = {setting.partition("=")[0]: setting for setting in known}
        self.lab.set(
            tray, *(home[setting.partition("=")[0]] if setting.endswith("=home") else setting for setting in settings)
        )

    def repair(self, *faults: Fault) -> None:
        for fault in faults:
            self.on(fault.undo)
            for tray, (_broken, healthy) in fault.hardware.items():
                self.set(tray, healthy)
        if any(host != "ctl" for fault in faults for host in fault.undo):
            wait_until(self.imex_is_up, "all IMEX domains are UP", 120)

    def imex_is_up(self) -> bool:
        def status(tray: str) -> bool:
            return '"status": "UP"}' in self.lab.exec(tray, "nvidia-imex-ctl", "-N", "-j", check=False).stdout

        with ThreadPoolExecutor(6) as pool:
            return all(pool.map(status, self.trays))


def rows(verdict: Mapping[str, Any]) -> list[tuple[str, str, tuple[str, ...]]]:
    return sorted((row["layer"], row["code"], tuple(row["trays"])) for row in verdict["failures"])


@contextlib.contextmanager
def running_site(folder: Path, suite: str) -> Iterator[Site]:
    """Six trays in two cliques, with Slurm of this suite and its accounting."""
    scenario = folder / "six.yml"
    scenario.write_text(yaml.safe_dump({"suite": suite, "slurm": {"accounting": True}, "racks": [RACK]}))
    with running_lab(folder, scenario) as running:
        made = Site(running, folder, TRAYS, TIERS)
        made.prepare()
        yield made


def assert_exactly_these_failures(site: Site, faults: Sequence[Fault]) -> dict[str, Any]:
    """Make faults, return the verdict of a run, and repair them."""
    for fault in faults:
        site.make(fault)
    try:
        verdict = site.verify()
        assert rows(verdict) == sorted(fault.row for fault in faults), verdict["failures"]
        assert all(row[key] for row in verdict["failures"] for key in ("message", "cause", "remediation"))
        return verdict
    finally:
        site.repair(*faults)
