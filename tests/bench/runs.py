# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole runs of the playbooks on stand-in trays of this machine against Ansible's own ping of the same hosts.

A tray is a folder with a `python` for Ansible's connection `local`. That of IMEX (root) enters an overlay of this
machine with the tray's own files and address, in which the role's module finds IMEX as the role left it. Its programs
(systemctl, dpkg-query, nvidia-imex, nvidia-imex-ctl) print what those of a domain that is up do. What a tray computes
is counted too: on real racks each tray has its own CPUs.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.tests.lab.nvml import local_trays
from measure import Cost, environment, once

NAME = "runs"
TRAYS_PER_RACK = 18
TARGET = 10_368
TOOLS = Path(sys.executable).parent
VERSION = "580.173.02"
PING, IMEX_PING = "ansible -m ping", "ansible -m ping, of the same overlays"
BY_SSH = "verify, ssh reading"
AIMS = {"discover": "1.4", "discover, source ssh": "", "verify": "1.4", BY_SSH: "0.75", "imex": "1.5"}
MAX_MEMORY = 0.1
# Runs that cost many times a ping are left out above this size, and above the other one pings run once.
SMALL, TWO_PINGS = 100, 300
COSTLY = ("doctor", "slurm_bringup --check", "site --check")

# $1.. is the command; of `ssh OPTIONS HOST COMMAND` the host is the first word that is a tray.
SSH = """\
#!/bin/sh
folder=${0%/*}/trays
while [ $# -gt 1 ] && [ ! -d "$folder/$1" ]; do shift; done
[ -d "$folder/$1" ] || exit 255
PATH="$folder/$1:$PATH"; shift
exec /bin/sh -c "$*"
"""
ENTER = """\
#!/bin/sh
exec unshare --mount --net --pid --fork --propagation private /bin/sh -c '
here=$1; shift
mount -t overlay overlay -o "lowerdir=/,upperdir=$here/upper,workdir=$here/work" "$here/root" &&
mount -t proc proc "$here/root/proc" && mount --rbind /dev "$here/root/dev" &&
ip link set lo up && ip address add %(address)s/32 dev lo || exit
if [ -e "$here/runs" ]; then
    chroot "$here/root" /usr/local/lib/bench-daemon/nvidia-imex infinity >/dev/null 2>&1 &
    echo $! >"$here/upper/etc/bench-pid"
fi
exec chroot "$here/root" %(python)s "$@"' sh "${0%%/*}" "$@"
"""
PROGRAMS = {
    "systemctl": """\
#!/bin/sh
case "$1" in
    show)
        pid=$(cat /etc/bench-pid 2>/dev/null || echo 0)
        printf '%s\\n' LoadState=loaded ActiveState=active SubState=running UnitFileState=enabled "MainPID=$pid" \\
            Result=success ;;
    is-active) echo active ;;
esac
""",
    "dpkg-query": f"#!/bin/sh\necho 'ii  nvidia-imex {VERSION}-1'\n",
    "nvidia-imex": f"#!/bin/sh\necho 'IMEX version {VERSION}'\n",
    "nvidia-imex-ctl": """\
#!/bin/sh
case "$*" in
    *-q*) echo READY ;;
    *) cat /etc/bench-domain.json ;;
esac
""",
}


def table(sizes: Sequence[int], scratch: Path) -> str:
    """The costs of each playbook at each number of trays, and what they give for TARGET trays."""
    measured = {size: _measure(Site(size, scratch / str(size))) for size in sizes}
    return "\n".join([*_rows(measured), "", *_growth(measured)])


def _measure(site: Site) -> dict[str, Cost]:
    """name -> cost; a ping runs before the others and mostly after them, too, so that other load affects both."""
    commands = site.commands()
    site.prepare()
    costs: dict[str, list[Cost]] = {}
    again = [name for name in (PING, IMEX_PING) if name in commands and site.size <= TWO_PINGS]
    for name in (*commands, *again):
        cost = once(commands[name], environment(site.folder), site.folder / "output")
        print(f"{site.size} {name}: {cost}", file=sys.stderr, flush=True)
        costs.setdefault(name, []).append(cost)
    return {name: min(runs, key=lambda run: run.cpu) for name, runs in costs.items()}


def _rows(measured: Mapping[int, Mapping[str, Cost]]) -> Iterator[str]:
    yield "| trays | run | CPU s | CPU ms a tray | against ping | aim | memory MB |"
    yield "|--:|---|--:|--:|--:|--:|--:|"
    for size, costs in measured.items():
        for name, cost in costs.items():
            ratio = cost.cpu / costs[_ping_of(name)].cpu
            aim = f"<= {AIMS[name]}" if AIMS.get(name) else ""
            yield (
                f"| {size:,} | `{name}` | {cost.cpu:.1f} | {1000 * cost.cpu / size:.0f} | {ratio:.2f} | {aim}"
                f" | {cost.memory:.0f} |"
            )


def _growth(measured: Mapping[int, Mapping[str, Cost]]) -> Iterator[str]:
    """CPU and memory a further tray costs (least squares), the exponent of CPU above the first size, and TARGET."""
    yield f"| run | CPU ms a tray | exponent | memory MB a tray | aim | {TARGET:,} trays: CPU s | memory MB |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    names = dict.fromkeys(name for costs in measured.values() for name in costs)
    for name in names:
        points = [(size, costs[name]) for size, costs in measured.items() if name in costs]
        if len(points) < 2:
            continue
        sizes = [size for size, _cost in points]
        cpu = statistics.linear_regression(sizes, [cost.cpu for _size, cost in points])
        memory = statistics.linear_regression(sizes, [cost.memory for _size, cost in points])
        # What the start of Python and the plays on localhost cost is in no tray's.
        (small, first), (large, last) = points[0], points[-1]
        start = max(0.0, min(cpu.intercept, 0.9 * first.cpu))
        exponent = math.log((last.cpu - start) / (first.cpu - start)) / math.log(large / small)
        yield (
            f"| `{name}` | {1000 * cpu.slope:.0f} | {exponent:.2f} | {memory.slope:.3f} | <= {MAX_MEMORY}"
            f" | {cpu.intercept + cpu.slope * TARGET:,.0f} | {memory.intercept + memory.slope * TARGET:,.0f} |"
        )


def _ping_of(name: str) -> str:
    return IMEX_PING if name.startswith(("imex", IMEX_PING)) else PING


class Site:
    """A folder with stand-in trays, their fabric file and the inventories."""

    def __init__(self, size: int, folder: Path) -> None:
        if size % TRAYS_PER_RACK:
            raise SystemExit(f"{size}: use a multiple of {TRAYS_PER_RACK} trays")
        self.size, self.folder = size, folder
        self.trays, self.fabric = folder / "trays", folder / "fabric.json"
        self.simulation = {"racks": size // TRAYS_PER_RACK, "trays_per_rack": TRAYS_PER_RACK, "seed": 1}

    def prepare(self) -> None:
        """Make trays, inventory and fabric file; without the tables' figures, which begin afterwards."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        _write(self.folder / "ssh", SSH, 0o755)
        simulation = {"plugin": "rackscale.nvlink.fabric", "sources": ["simulation"], "simulation": self.simulation}
        self._json("simulation.nvlink.yml", simulation)
        self._json("cluster.nvlink.yml", {**simulation, "sources": ["fabric_file"], "fabric_file": "fabric.json"})
        controller = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        self._json("hosts.yml", {"slurm_controller": {"hosts": {"ctl": controller}}})
        (self.folder / "group_vars").mkdir()
        tray = f"{self.trays}/{{{{ inventory_hostname }}}}"
        self._json(
            "group_vars/nvlink.json",
            {"ansible_connection": "local", "ansible_python_interpreter": f"{tray}/python"},
        )
        # The same trays, as hosts of Ansible's connection ssh, whose program enters their folders.
        own = {"ansible_connection": "ssh", "ansible_ssh_executable": str(self.folder / "ssh")}
        self._json(
            "by_ssh/cluster.nvlink.yml", {**simulation, "sources": ["fabric_file"], "fabric_file": "../fabric.json"}
        )
        self._json("by_ssh/hosts.yml", {"slurm_controller": {"hosts": {"ctl": controller}}})
        self._json("by_ssh/group_vars/nvlink.json", {**own, "ansible_python_interpreter": "python"})
        local_trays.write(self.trays, **self.simulation)
        # From the simulation, since to read the trays is what is measured.
        source = json.dumps({"fabric_sources": [{"simulation": self.simulation}]})
        self._run(self._play("discover", "-e", source, hosts="simulation"))
        self._json("group_vars/imex.json", {"imex_start_wait": 1, "imex_proc_devices": "/etc/bench-devices"})
        if os.geteuid() == 0:
            self._prepare_imex()

    def _prepare_imex(self) -> None:
        """The role configures the first clique; its files, with another list, are those of the other cliques."""
        cliques: dict[str, list[tuple[str, str]]] = {}
        for name, tray in json.loads(self.fabric.read_text())["trays"].items():
            cliques.setdefault(tray["clique"], []).append((name, tray["imex_address"]))
        first = next(iter(cliques))
        shutil.copy("/bin/sleep", self.folder / "nvidia-imex")
        for members in cliques.values():
            members.sort(key=lambda member: member[0])
            for name, address in members:
                self._make_overlay(self.trays / name, address, [address for _name, address in members])
        done = subprocess.run(
            self._imex("--limit", f"nvlink_clique_{first}"),
            env=environment(self.folder),
            capture_output=True,
            text=True,
            check=False,
        )
        sample = self.trays / cliques[first][0][0] / "upper"
        record = sample / "etc/nvidia-imex/nvlink.json"
        # Without a daemon the role fails once all files are written.
        if not record.exists():
            raise SystemExit(done.stdout[-3000:] + done.stderr)
        for clique in cliques:
            self._clone(clique, cliques[clique], sample)

    def _clone(self, clique: str, members: Sequence[tuple[str, str]], sample: Path) -> None:
        from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats

        text = formats.render_nodes([address for _name, address in members])
        record = json.loads((sample / "etc/nvidia-imex/nvlink.json").read_text())
        record.update(clique=clique, sha256=formats.digest(text))
        for name, _address in members:
            upper = self.trays / name / "upper"
            if upper != sample:
                shutil.copytree(sample, upper, dirs_exist_ok=True, symlinks=True, ignore=_own_files)
            _write(upper / "etc/nvidia-imex/nodes_config.cfg", text)
            _write(upper / "etc/nvidia-imex/nvlink.json", json.dumps(record, indent=1, sort_keys=True) + "\n")
            _write(upper / "run/nvlink-imex/start-approved", f"{record['generation']} {record['sha256']}\n")
            # From now on the tray has a daemon.
            _write(self.trays / name / "runs", "")

    def _make_overlay(self, tray: Path, address: str, members: Sequence[str]) -> None:
        for part in ("upper", "work", "root"):
            (tray / part).mkdir()
        _write(tray / "imex-python", ENTER % {"python": sys.executable, "address": address}, 0o755)
        upper = tray / "upper"
        (upper / "usr/local/lib/bench-daemon").mkdir(parents=True)
        os.link(self.folder / "nvidia-imex", upper / "usr/local/lib/bench-daemon/nvidia-imex")
        for name, text in PROGRAMS.items():
            _write(upper / "usr/local/bin" / name, text, 0o755)
        connected = {str(number): {"status": "CONNECTED"} for number in range(len(members))}
        nodes = {
            str(number): {"host": member, "status": "READY", "version": VERSION, "connections": connected}
            for number, member in enumerate(members)
        }
        _write(upper / "etc/bench-domain.json", json.dumps({"status": "UP", "nodes": nodes}))
        _write(upper / "sys/module/nvidia/version", f"{VERSION}\n")
        _write(upper / "etc/nvidia-imex/config.cfg", "IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg\n")

    def commands(self) -> dict[str, list[str]]:
        """Name -> command, each PING before the runs that are compared with it."""
        ssh = {"ssh": str(self.folder / "ssh"), "python": "python", "backend": "nvidia_smi"}
        found = {
            PING: self._adhoc("nvlink", "ping"),
            "discover": self._play("discover"),
            "discover, source ssh": self._play("discover", "-e", json.dumps({"fabric_sources": [{"ssh": ssh}]})),
            "verify": self._play("verify"),
            BY_SSH: self._play("verify", "-e", "tray_reading=ssh", hosts="by_ssh/cluster"),
            "doctor": self._play("doctor"),
            "render --tags report": self._play("render", "--tags", "report"),
        }
        if os.geteuid() == 0:
            found[IMEX_PING] = self._adhoc("nvlink", "ping", *self._overlay())
            found["imex"] = self._imex()
        slurm = json.dumps({"slurm_accounting": False, "slurm_conf_dir": str(self.folder / "slurm")})
        found["slurm_bringup --check"] = self._play("slurm_bringup", "--check", "-e", slurm)
        found["site --check"] = self._play("site", "--check", "-e", slurm, "--tags", "discover,verify,report")
        return {name: found[name] for name in found if self.size <= SMALL or name not in COSTLY}

    def _imex(self, *arguments: str) -> list[str]:
        given = {"imex_start_wait": 1, "imex_ready_wait": 1, "imex_proc_devices": "/etc/bench-devices"}
        return self._play("imex", *self._overlay(), "-e", json.dumps(given), *arguments)

    def _overlay(self) -> list[str]:
        python = f"{self.trays}/{{{{ inventory_hostname }}}}/imex-python"
        return ["-e", json.dumps({"ansible_python_interpreter": python})]

    def _adhoc(self, pattern: str, module: str, *arguments: str, hosts: str = "cluster") -> list[str]:
        return [str(TOOLS / "ansible"), *self._inventory(hosts), pattern, "-m", module, *arguments]

    def _play(self, name: str, *arguments: str, hosts: str = "cluster") -> list[str]:
        given: dict[str, Any] = {
            "fabric_file": str(self.fabric),
            "fabric_hosts": "nvlink",
            "fabric_accept": "gates",
            "fabric_facts_backend": "nvidia_smi",
            "fabric_facts_ip": "ip",
            "verdict_file": str(self.folder / "verdict.json"),
            "verify_backend": "nvidia_smi",
            "verify_ip": "ip",
            "verify_fail": False,
            "site_tray_hosts": "nvlink",
        }
        command = [str(TOOLS / "ansible-playbook"), *self._inventory(hosts), f"rackscale.nvlink.{name}"]
        return [*command, "-e", json.dumps(given), *arguments]

    def _inventory(self, hosts: str) -> list[str]:
        file = self.folder / f"{hosts}.nvlink.yml"
        return ["-i", str(file), "-i", str(file.parent / "hosts.yml")]

    def _run(self, command: Sequence[str]) -> None:
        done = subprocess.run(command, env=environment(self.folder), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)

    def _json(self, name: str, data: Any) -> None:
        _write(self.folder / name, json.dumps(data))


def _own_files(folder: str, names: Sequence[str]) -> set[str]:
    return {name for name in names if name.startswith("bench-")}


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
