# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Up, down and status of a lab: the order of the steps; the other files implement each."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import gpus, host, image, inventory, linux, network, nvml, packages, paths, state, tools
from .addresses import CONTROLLER
from .errors import LabError
from .scenario import Scenario, Slurm, Tray

SSH_PORT = 22
SWITCHES = "switches"
"""The folder of a lab with one for the NVLink switches of each rack."""
READY = ("idle", "drain", "resv")
"""The words of sinfo for a node that answers and runs no job; a "*" behind one is a node that does not answer."""


def up(name: str, scenario: Scenario, timeout: float, answers: dict[str, dict[str, str]] | None = None) -> None:
    """Start a lab and wait until every host answers; a lab that does not come up is taken down again.

    answers: tray -> the texts of a support bundle (file -> text) that its tools answer with.
    """
    tools.need_root()
    paths.check_name(name)
    tools.ensure_tools()
    root = linux.cgroup_root()
    base = image.ensure_base(scenario.suite, scenario.empty)
    nvml.library()
    cluster = _control_plane()
    prepared = None if scenario.kubernetes is None else cluster.prepare(scenario.kubernetes)
    directory = state.create(name)
    with _ending_cleanly():
        try:
            _start(name, scenario, directory, base, root / paths.netns_of(name), answers or {})
            plane = prepared and cluster.begin(name, *prepared)
            _wait(name, scenario, time.monotonic() + timeout)
            if plane:
                cluster.finish(plane, timeout)
                cluster.add_trays(plane, scenario)
        except BaseException:
            down(name, keep_running=os.getpid())
            raise


def _control_plane() -> Any:
    """kubernetes/plane.py, which builds on this file."""
    from .kubernetes import plane

    return plane


def _start(
    name: str, scenario: Scenario, directory: Path, base: Path, cgroup: Path, answers: dict[str, dict[str, str]]
) -> None:
    me = os.getpid()
    known: dict[str, Any] = {
        "up": {"pid": me, "started": linux.start_time(me)},
        "phase": "starting",
        "base": str(base),
        "cgroup": str(cgroup),
        "hosts": {},
    }
    state.write(name, known)
    (directory / "scenario.json").write_text(json.dumps(dataclasses.asdict(scenario), indent=1) + "\n")
    _make_keys(directory)
    (directory / "ssh_config").write_text(inventory.ssh_config(name, scenario))
    (directory / "known_hosts").write_text(inventory.known_hosts((directory / "host_key.pub").read_text()))
    (directory / packages.SITE).mkdir()
    (directory / host.SHARED).mkdir()
    packages.index(directory / packages.SITE)
    network.create(name)
    cgroup.mkdir()
    hardware = gpus.hardware_of(scenario)
    hardware.update((tray, gpus.captured(hardware[tray], texts)) for tray, texts in answers.items())
    for host_name, address in scenario.hosts.items():
        place = directory / "hosts" / host_name
        place.mkdir(parents=True)
        host.write_files(place, host_name, scenario, directory, base)
        if host_name in hardware:
            gpus.write(place, hardware[host_name])
        devices = _devices(scenario, host_name)
        pid = host.start(place, host_name, base, name, cgroup / host_name, host_name in hardware, devices)
        known["hosts"][host_name] = {"address": address, "pid": pid, "started": linux.start_time(pid)}
        state.write(name, known)
    for rack, switches in scenario.switches.items():
        trays = [tray.name for tray in scenario.trays if tray.name.startswith(f"{rack}t")]
        _start_switches(directory, rack, switches, {tray: hardware[tray]["facts"] for tray in trays}, cgroup)


def _start_switches(
    directory: Path, rack: str, switches: list[str], facts: dict[str, dict[str, Any]], cgroup: Path
) -> None:
    """The NVLink switches of a rack: one process of this machine, which ends with the cgroup of the lab."""
    from . import switch  # with the library that makes certificates; most commands need none

    folder, own = directory / SWITCHES / rack, cgroup / f"{rack}-switches"
    switch.create(folder, switches, [gpu for tray, row in facts.items() for gpu in switch.gpus_of(tray, row)])
    own.mkdir()
    command = [sys.executable, "-B", "-m", "nvlab.switch", str(folder), str(directory / "hosts")]
    into = ["sh", "-c", 'echo 0 >"$0" && exec "$@"', str(own / "cgroup.procs"), *command]
    with open(folder / "log", "wb") as log:
        subprocess.Popen(into, cwd=paths.LAB, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (folder / "ports.json").exists():
        if time.monotonic() > deadline:
            raise LabError(f"the switches of {rack} do not start: {tools.last_line((folder / 'log').read_text())}")
        time.sleep(0.05)


def _devices(scenario: Scenario, host_name: str) -> int:
    """The GPUs' device files are there for a Slurm that a site brings up; the lab's own does not count GPUs."""
    return scenario.tray(host_name).gpus if scenario.empty and host_name not in scenario.controllers else 0


def _make_keys(directory: Path) -> None:
    for file, comment in (("key", "nvlink-lab"), ("host_key", "nvlink-lab-host")):
        tools.call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(directory / file)], "a key")
    (directory / "munge.key").write_bytes(os.urandom(128))
    (directory / "munge.key").chmod(0o400)


def _wait(name: str, scenario: Scenario, deadline: float, only: Sequence[str] = ()) -> None:
    """Until ssh answers on the hosts (all, or `only` some) and Slurm calls their nodes idle."""
    known = state.read(name)

    def answering(host_name: str) -> bool:
        entry = known["hosts"][host_name]
        while time.monotonic() < deadline:
            if not linux.is_alive(entry["pid"], entry["started"]):
                log = (paths.state_of(name) / "hosts" / host_name / "console.log").read_text(errors="replace")
                raise LabError(f"host {host_name} ended while it started: {tools.last_line(log)}")
            if ssh_answers(name, entry["address"]):
                return True
            time.sleep(0.2)
        return False

    awaited = [*(only or known["hosts"])]
    results = _of_each(awaited, answering)
    silent = [host_name for host_name, answers in results.items() if not answers]
    if silent:
        raise LabError(f"ssh does not answer on {', '.join(silent)}: allow more time (--timeout) or use fewer trays.")
    trays = {tray.name for tray in scenario.trays} & {*awaited}
    while scenario.slurm and trays:
        _check_controller(name)
        nodes = slurm_nodes(name)
        ready = {node for node, word in nodes.items() if word in READY}
        if ready >= trays:
            break
        if time.monotonic() > deadline:
            words = ", ".join(f"{node} {word}" for node, word in nodes.items() if node in trays - ready) or "no answer"
            raise LabError(f"Slurm's nodes are not ready ({words}): read {CONTROLLER}'s slurmctld.log.")
        time.sleep(0.3)
    known["phase"] = "up"
    state.write(name, known)


def _check_controller(name: str) -> None:
    """A slurmctld that refuses its configuration does so at once, and its log goes with the lab."""
    failed = subprocess.run(
        enter(name, CONTROLLER, ["systemctl", "--quiet", "is-failed", "slurmctld.service"]), check=False
    )
    if failed.returncode == 0:
        command = enter(name, CONTROLLER, ["grep", "-E", "fatal|error", "/var/log/slurmctld.log"])
        log = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
        raise LabError(f"slurmctld does not start: {tools.last_line(log)}")


def stop(name: str, host_name: str, keep_disk: bool = False) -> None:
    """Cut a host's power without a shutdown; its disk is lost, or kept for the next start."""
    known = state.read(name)
    _check_host(known, name, host_name)
    place, cgroup = paths.state_of(name) / "hosts" / host_name, Path(known["cgroup"]) / host_name
    if keep_disk:
        host.keep_disk(place, known["hosts"][host_name]["pid"], cgroup)
    else:
        (place / host.DISK).unlink(missing_ok=True)
    host.end_processes(cgroup)
    # The kernel removes the namespaces of all stopped hosts one after the other.
    deadline = time.monotonic() + 30
    while network.has_link_to(name, host_name):
        if time.monotonic() > deadline:
            raise LabError(f"the network of {host_name} does not end: take the lab down.")
        time.sleep(0.05)


def start(name: str, host_name: str, timeout: float) -> None:
    """Start a stopped host again, from the image or its kept disk; its GPUs keep their last settings."""
    known = state.read(name)
    _check_host(known, name, host_name)
    cgroup = Path(known["cgroup"]) / host_name
    if host.leader(cgroup) is not None:
        raise LabError(f"host {host_name} of lab {name!r} is running already.")
    scenario = scenario_of(name)
    is_tray = host_name not in scenario.controllers
    place, devices = paths.state_of(name) / "hosts" / host_name, _devices(scenario, host_name)
    pid = host.start(place, host_name, Path(known["base"]), name, cgroup, is_tray, devices)
    known["hosts"][host_name].update(pid=pid, started=linux.start_time(pid))
    state.write(name, known)
    _wait(name, scenario, time.monotonic() + timeout, [host_name])


def _check_host(known: dict[str, Any], name: str, host_name: str) -> None:
    if host_name not in known["hosts"]:
        raise LabError(f"there is no host {host_name!r} in lab {name!r}: it has {', '.join(known['hosts'])}.")


def ssh_answers(name: str, address: str, timeout: float = 2.0) -> bool:
    try:
        with contextlib.closing(network.connect(str(network.file_of(name)), address, SSH_PORT, timeout)) as connection:
            return connection.recv(4) == b"SSH-"
    except (OSError, socket.timeout):
        return False


def slurm_nodes(name: str) -> dict[str, str]:
    """Node -> its state in sinfo; empty while slurmctld does not answer."""
    try:
        command = enter(name, CONTROLLER, ["timeout", "3", "sinfo", "--noheader", "--Node", "--format=%N %t"])
    except LabError:
        return {}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)


def enter(name: str, host_name: str, command: list[str]) -> list[str]:
    """The command line that runs `command` inside a host."""
    known = state.read(name)
    _check_host(known, name, host_name)
    leader = host.leader(Path(known["cgroup"]) / host_name)
    if leader is None:
        raise LabError(f"host {host_name} of lab {name!r} is not running.")
    return host.enter_command(leader, command)


def scenario_of(name: str) -> Scenario:
    data = json.loads((state.existing(name) / "scenario.json").read_text())
    slurm = data["slurm"] and Slurm(**{**data["slurm"], "conf": tuple(data["slurm"]["conf"])})
    trays = tuple(Tray(**tray) for tray in data["trays"])
    rest = {
        key: data[key] for key in ("suite", "controller", "empty", "kubernetes", "backup", "switches") if key in data
    }
    return Scenario(slurm=slurm, trays=trays, **rest)


def status(name: str) -> dict[str, Any]:
    """{"name", "phase", "suite", "hosts": {NAME: {"address", "running", "ssh", "slurm": sinfo's word or null}}}."""
    known = state.read(name)
    scenario = scenario_of(name)
    nodes = slurm_nodes(name) if scenario.slurm else {}

    def inspect(host_name: str) -> dict[str, Any]:
        address = known["hosts"][host_name]["address"]
        running = host.leader(Path(known["cgroup"]) / host_name) is not None
        ssh = running and ssh_answers(name, address)
        return {"address": address, "running": running, "ssh": ssh, "slurm": nodes.get(host_name)}

    hosts = _of_each([*known["hosts"]], inspect)
    return {"name": name, "phase": known["phase"], "suite": scenario.suite, "hosts": hosts}


def _of_each(names: list[str], function: Callable[[str], Any]) -> dict[str, Any]:
    """Name -> result of the function, 16 at once."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and most commands ask one host

    with ThreadPoolExecutor(max_workers=16) as pool:
        return dict(zip(names, pool.map(function, names), strict=True))


def down(name: str, keep_running: int | None = None) -> None:
    """End a lab's processes and remove all that it made, also after a crash. Idempotent."""
    tools.need_root()
    directory = paths.state_of(name)
    known: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError, ValueError):
        known = json.loads((directory / "state.json").read_text())
    starter = known.get("up", {})
    if known.get("phase") == "starting" and starter.get("pid") != keep_running:
        _stop_starter(starter)
    host.end_processes(linux.cgroup_root() / paths.netns_of(name))
    for entry in known.get("hosts", {}).values():
        # The cgroup held them all; this is for a host that was started and killed before it entered it.
        if entry["started"] is not None and linux.is_alive(entry["pid"], entry["started"]):
            os.kill(entry["pid"], signal.SIGKILL)
    network.remove(name)
    state.remove(name)


def _stop_starter(starter: dict[str, Any]) -> None:
    """End an `up` that still runs: it would start more hosts after `down`."""
    deadline = time.monotonic() + 20
    pid, started = starter["pid"], starter["started"]
    if linux.is_alive(pid, started):
        os.kill(pid, signal.SIGTERM)
    while linux.is_alive(pid, started):
        if time.monotonic() > deadline:
            raise LabError(f"lab up (pid {pid}) still runs and does not end: end it, then run down again.")
        time.sleep(0.05)


@contextlib.contextmanager
def _ending_cleanly() -> Any:
    """SIGTERM and SIGHUP end `up` like an exception, so that it takes down what it has started."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
