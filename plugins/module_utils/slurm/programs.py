# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run Slurm's programs on the controller's host, each call limited in time.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, node_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand, fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import ShownBlock, SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import shortened, summarize

# The folders of Slurm's programs outside PATH.
BIN_DIRS = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/opt/slurm/sbin", "/opt/slurm/bin")

# An idle node without features is half a kilobyte (24.11.5), several times that with system, GRES, TRES and a reason.
# The trays of 576 racks come near to the limit of other programs.
MAX_OUTPUT = 256 * 1024 * 1024

BLOCKS: Specification = {"type": "list", "elements": "dict"}
"""Blocks (name, nodes) as an action gives them to its module in place of the fabric file."""


def polls(seconds: float, pause: float = 0.25, longest: float = 0.25) -> Iterator[None]:
    """Yield at once, then until ``seconds`` have passed, and a last time at their end; pauses grow to ``longest``."""
    deadline = time.monotonic() + seconds
    yield
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(pause * 1.3, longest)
        yield


@dataclass(frozen=True)
class Job:
    """A job with allocated nodes."""

    id: str
    user: str
    partition: str
    nodes: tuple[str, ...]


def _failed(command: str, result: child.Result) -> SlurmError:
    return SlurmError(f"{command} failed ({result.reason}): check that slurmctld runs and answers.")


def _fields(row: str, number: int) -> list[str]:
    """The fields of a row of squeue; a job that is not understood must not be taken for none."""
    fields = row.strip().split("|")
    if len(fields) != number:
        raise SlurmError(f"squeue printed a row that is not understood ({shortened(row, 80)}): run squeue and see why.")
    return fields


class Slurm:
    """Slurm's programs on this host. Every call ends after ``timeout`` seconds; SlurmError where one fails."""

    def __init__(self, bin_dir: str = "", timeout: float = 60.0, conf_dir: str = "") -> None:
        if timeout <= 0:
            raise SlurmError(f"timeout is {timeout:g}: use a number of seconds above 0.")
        self.bin_dir = bin_dir
        self.timeout = timeout
        self.conf = os.path.join(conf_dir, "slurm.conf") if conf_dir else ""

    def program(self, name: str) -> str:
        directories = (self.bin_dir,) if self.bin_dir else (*os.environ.get("PATH", "").split(os.pathsep), *BIN_DIRS)
        for directory in directories:
            path = os.path.join(directory, name)
            if directory and os.access(path, os.X_OK):
                return path
        where = self.bin_dir or "PATH"
        raise SlurmError(f"There is no {name} in {where}: run it on slurmctld's host, or set slurm_topology_bin_dir.")

    def call(self, name: str, *arguments: str, timeout: float | None = None, acts: bool = False) -> child.Result:
        """Run one of the programs. acts: it changes something, see child.run()."""
        command = [self.program(name), *arguments]
        return child.run(command, timeout or self.timeout, env=self.environment(), max_output=MAX_OUTPUT, acts=acts)

    def call_each(
        self, name: str, arguments: Sequence[Sequence[str]], timeout: float, at_once: int, acts: bool = False
    ) -> list[child.Result]:
        """``call()`` with each of the arguments, ``at_once`` of them concurrently."""
        path = self.program(name)
        return child.run_each([[path, *words] for words in arguments], timeout, at_once, self.environment(), acts)

    def environment(self) -> dict[str, str]:
        # No limit on the width of the output; variables of the site must not change it.
        prefixes = ("SLURM_", "SCONTROL_", "SBATCH_")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(prefixes)}
        environment["LC_ALL"] = "C"
        if self.conf:
            environment["SLURM_CONF"] = self.conf
        return environment

    def scontrol(self, *arguments: str) -> str:
        """The output of scontrol; SlurmError if it fails."""
        result = self.call("scontrol", *arguments)
        if result.rc != 0 or result.timed_out:
            raise _failed(f"scontrol {' '.join(arguments)}", result)
        return result.stdout

    def version(self) -> rules.Version:
        """The installed slurmctld's version: the one that a restart would run."""
        for name, argument in (("slurmctld", "-V"), ("scontrol", "--version")):
            try:
                result = self.call(name, argument)
            except SlurmError:
                continue
            if result.rc == 0 and result.stdout.strip():
                return rules.parse_version(result.stdout)
        raise SlurmError(
            "Neither slurmctld -V nor scontrol --version prints a version: run this on the Slurm controller."
        )

    def config(self) -> dict[str, str]:
        return scontrol.parse_config(self.scontrol("show", "config"))

    def records(self, what: str) -> list[dict[str, str]]:
        """The nodes or partitions, hidden ones too, as ``scontrol show`` has them."""
        key = {"nodes": "NodeName", "partitions": "PartitionName"}[what]
        return [known for known in scontrol.parse_records(self.scontrol("-a", "-o", "show", what)) if key in known]

    def node_names(self) -> tuple[node_names.NodeNames, ...]:
        return tuple(map(node_names.of_slurm, self.records("nodes")))

    def topologies(self, version: rules.Version) -> list[Topology]:
        """The topologies that slurmctld has loaded from topology.yaml; none before 25.05."""
        if version < rules.YAML_SINCE:
            return []
        printed = scontrol.parse_topoconf(self.scontrol("show", "topoconf"))
        return [known for known in printed if known.kind != "none"]

    def shown(self) -> list[ShownBlock]:
        """The blocks that run, from either file; none where another plugin runs."""
        result = self.call("scontrol", "show", "topology")
        # It exits with 0 and prints an error where slurmctld does not answer (24.11, 26.05).
        if result.timed_out or "slurm_load_topo error" in result.stderr:
            raise _failed("scontrol show topology", result)
        return scontrol.parse_show_topology(result.stdout) if result.rc == 0 else []

    def controllers(self) -> list[tuple[str, bool]]:
        """The SlurmctldHosts in their order and whether each answers; scontrol exits with 1 where none does."""
        found = re.findall(r"^Slurmctld\([^)]*\) at (\S+) is (UP|DOWN)", self.call("scontrol", "ping").stdout, re.M)
        return [(name, state == "UP") for name, state in found]

    def answers(self) -> bool:
        """Whether the slurmctld of this host answers; any of them where this host is no SlurmctldHost."""
        found = self.controllers()
        name = socket.gethostname().partition(".")[0]
        mine = [up for host, up in found if host.partition(".")[0] == name]
        return any(mine or [up for _host, up in found])

    def jobs(self) -> list[Job]:
        """The jobs that have nodes allocated."""
        found = []
        # A job whose processes were stopped (ST) keeps its nodes.
        for line in self._squeue("-t", "R,S,CF,CG,SI,SO,ST,RS", "-o", "%A|%u|%P|%N"):
            number, user, partition, nodes = _fields(line, 4)
            try:
                found.append(Job(number, user, partition, tuple(expand(nodes))))
            except HostlistError as error:
                raise SlurmError(
                    f"squeue named the nodes of job {number} in a form that is not understood: {error}"
                ) from None
        return found

    def jobs_in(self, partitions: Sequence[str]) -> str:
        """The jobs in these partitions in words, empty for none: slurmctld would end them with their partition."""
        lines = self._squeue("-p", ",".join(partitions), "-o", "%A|%u|%P") if partitions else []
        jobs = [_fields(line, 3) for line in lines]
        return summarize((f"job {job} of {user} in {partition}" for job, user, partition in jobs), limit=3)

    def _squeue(self, *arguments: str) -> list[str]:
        result = self.call("squeue", "-a", "-h", *arguments)
        if result.rc != 0 or result.timed_out:
            raise _failed("squeue", result)
        return result.stdout.splitlines()

    def reconfigure(self) -> child.Result:
        return self.call("scontrol", "reconfigure", acts=True)

    def reserve(self, name: str, nodes: Iterable[str], user: str, minutes: str, flags: str) -> child.Result:
        """Create a reservation from now on. minutes: a number, or UNLIMITED.

        One for which slurmctld did not answer in time is deleted, since it may have created it.
        """
        where = (f"ReservationName={name}", f"Nodes={fold(nodes)}", "StartTime=now", f"Duration={minutes}")
        made = self.call("scontrol", "create", "reservation", *where, f"Users={user}", f"Flags={flags}", acts=True)
        if made.timed_out:
            self.release(name)
        return made

    def release(self, name: str) -> child.Result:
        """Delete a reservation."""
        return self.call("scontrol", "delete", f"ReservationName={name}", acts=True)
