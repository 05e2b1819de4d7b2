# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time of a job's prolog until its IMEX domain is ready, against the same steps by hand, on the lab's trays (root).

By hand: on every tray at once, write the list, start the unit and poll until the domain is up. One tray has an idle
processor; of more trays all share the same few, so the daemons' own start dominates. slurmctld's count of requests is
read before and after the prologs and epilogs.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, job_files
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import state
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import programs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab import imex as standin
from nvlab import lab, packages, paths

NAME = "imex"
LAB = Path(__file__).resolve().parents[1] / "lab"
SIZES = (1, 4, 18)
BY_HAND = """
printf '%b' '{nodes}' > /etc/nvidia-imex/nodes_config.cfg
systemctl start nvidia-imex
until nvidia-imex-ctl -N -j | grep -q '"status": "UP"}}'; do sleep 0.1; done
"""
STOP = "systemctl stop nvidia-imex; rm -f /etc/nvidia-imex/nodes_config.cfg"
# Periodic requests between slurmctld and slurmd, and the request for the count itself.
ALWAYS = {"MESSAGE_NODE_REGISTRATION_STATUS", "REQUEST_PING", "REQUEST_STATS_INFO"}


def table(rounds: int, sizes: Sequence[int] = SIZES) -> str:
    """The comparison as a Markdown table."""
    lines = [
        "| trays of the job | by hand s | prolog s | own s | aim | requests to slurmctld a job | aim |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for size in sizes:
        with _trays(size) as (name, trays):
            hand, ours, requests = _measure(name, trays, rounds)
        # The minimum of each: other load can only add time.
        own = min(ours) - min(hand)
        # More trays than processors share these, which real trays do not.
        aim = "<= 0.2" if size == 1 else ""
        lines.append(f"| {size} | {min(hand):.2f} | {min(ours):.2f} | {own:.2f} | {aim} | {requests} | 0 |")
    return "\n".join(lines)


def _measure(name: str, trays: dict[str, str], rounds: int) -> tuple[list[float], list[float], int]:
    """(seconds by hand, seconds of the prolog, requests of all prologs and epilogs together)."""
    nodes = "".join(f"{address}\\n" for address in trays.values())
    names = list(trays)
    nodelist = f"{names[0][:-2]}[{names[0][-2:]}-{names[-1][-2:]}]" if len(names) > 1 else names[0]
    hand, ours = [], []
    requests = 0
    for number in range(rounds + 1):
        environ = (
            f"env -i SLURM_JOB_ID={number + 1} SLURM_JOB_NODELIST={nodelist} SLURM_JOB_NUM_NODES={len(trays)}"
            " SLURM_JOB_OVERSUBSCRIBE=NO SLURM_CONF=/run/slurm/conf/slurm.conf SLURMD_NODENAME=$(hostname)"
        )
        by_hand = _on(name, names, BY_HAND.format(nodes=nodes))
        _on(name, names, STOP)
        before = _requests(name)
        by_prolog = _on(name, names, f"{environ} {job_files.PROGRAM} prolog")
        _on(name, names, f"{environ} {job_files.PROGRAM} epilog")
        after = _requests(name)
        requests += sum(count - before.get(kind, 0) for kind, count in after.items() if kind not in ALWAYS)
        if number:  # the first warms up
            hand.append(by_hand)
            ours.append(by_prolog)
    return hand, ours, requests


def _requests(name: str) -> dict[str, int]:
    """Type of request -> the number that slurmctld received."""
    output = _run(name, "ctl", "sdiag").communicate(timeout=60)[0]
    counted = output.partition("by message type")[2].partition("by user")[0]
    return {kind: int(count) for kind, count in re.findall(r"(\w+) *\( *\d+\) *count:(\d+)", counted)}


def _run(name: str, host: str, script: str) -> subprocess.Popen[str]:
    command = lab.enter(name, host, ["sh", "-c", script])
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _on(name: str, hosts: Sequence[str], script: str) -> float:
    """The seconds of a script on all hosts concurrently; SystemExit if it fails."""
    began = time.perf_counter()
    running = [_run(name, host, script) for host in hosts]
    for process in running:
        output = process.communicate(timeout=300)
        if process.returncode:
            raise SystemExit(f"a tray of the lab ended with {process.returncode}: {output}")
    return time.perf_counter() - began


@contextmanager
def _trays(size: int) -> Iterator[tuple[str, dict[str, str]]]:
    """A lab of one rack with the stand-in and the program: its name, and tray -> address."""
    name = f"imex{size}"
    command = [sys.executable, str(LAB / "lab")]
    trays = {f"r01t{number:02}": f"198.51.100.{10 + number}" for number in range(1, size + 1)}
    try:
        subprocess.run([*command, "up", "--name", name, "--racks", "1", "--trays", str(size)], check=True, stdout=2)
        packages.add(paths.state_of(name), standin.packages())
        apt = "DEBIAN_FRONTEND=noninteractive apt-get -qq"
        _on(name, list(trays), f"{apt} update && {apt} -y install nvidia-imex={standin.VERSIONS[0]}-1")
        settings = state.Settings("r01", tuple(trays.items()), min_trays=1)
        made = {
            job_files.PROGRAM: (programs.of_job("/usr/bin/python3"), 0o755),
            state.SETTINGS_FILE: (job_files.render_settings(settings).encode(), 0o644),
            domain.DROP_IN: (b"[Service]\nRestart=no\n", 0o644),
        }
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, (data, mode) in made.items():
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.size, entry.mode = len(data), mode
                archive.addfile(entry, io.BytesIO(data))
        for tray in trays:
            subprocess.run(lab.enter(name, tray, ["tar", "-xC", "/"]), input=packed.getvalue(), check=True)
        _on(name, list(trays), "systemctl daemon-reload")
        yield name, trays
    finally:
        subprocess.run([*command, "down", "--name", name], check=True)
