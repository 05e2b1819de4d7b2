# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's tools answer, as they print it, for a support bundle: of a tray and of a Slurm controller.

Private to this collection; it may change in any release. Python 3.9, standard library only. Every program and NVML run
in a child with a time limit, and no answer is longer than MAX_CHARACTERS. Nothing is anonymised here: the controller
knows the names of all hosts, which one tray does not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvml, structs
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import DriverError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

# 8 GPUs print 240 kB; `scontrol show config` and the topology of 10,000 nodes are below 100 kB.
MAX_CHARACTERS = 2 * 1024 * 1024
# A text of an answer has at most 16 KiB (guard/schemas.py), so an output is a list of parts.
PART = 8192
LINES = "5000"
_IMEX_LOG = "/var/log/nvidia-imex.log"
# File -> the command that prints it, besides the tools of a bundle. Their texts name hosts, users and processes.
LOGS = {
    "kernel.txt": f"journalctl --dmesg --no-pager --quiet --output=short-iso --lines={LINES}",
    "dmesg.txt": "dmesg",
    "imex-log.txt": f"tail --lines={LINES} {_IMEX_LOG}",
    "imex-journal.txt": f"journalctl --unit=nvidia-imex --no-pager --quiet --output=short-iso --lines={LINES}",
    "nvlink-errors.txt": "nvidia-smi nvlink --errorcounters",
    "nvlink-status.txt": "nvidia-smi nvlink --status",
    "links.json": "rackscale.nvlink.fabric_facts gather_subset=links",
}


def read(options: Arguments) -> dict[str, Any]:
    """The answers of a host's tools, by the options of the module doctor. NvlinkError for a wrong option only."""
    timeout = options["timeout"]
    if options["role"] == "controller":
        return of_controller(Slurm(options["bin_dir"], timeout, options["conf_dir"]))
    programs = {name: options[name] for name in ("nvidia_smi", "imex_ctl", "imex_config_file")}
    asked = subsets.Options(timeout=timeout, imex_timeout=timeout, **programs)
    answer = of_tray(asked)
    return {**answer, "outputs": [*answer["outputs"], *_logs(asked)]} if options["logs"] else answer


def of_tray(options: subsets.Options) -> dict[str, Any]:
    """The return values of the module for a tray; ``options`` are those of fabric_facts, which finds versions and
    findings.
    """
    gathered = subsets.gather(options._replace(gather_subset=("gpu", "imex", "versions")))
    facts = gathered["ansible_facts"]
    versions = {name: value for name, value in (facts["nvlink_versions"] or {}).items() if name != "findings"}
    ctl = [options.imex_ctl, "-c", options.imex_config_file]
    return {
        "versions": versions,
        "findings": gathered["findings"],
        "nvml": _nvml(options.timeout),
        "outputs": [
            _output("nvidia-smi.xml", [options.nvidia_smi, "-q", "-x"], options.timeout),
            _output("imex-state.txt", [*ctl, "-q"], options.imex_timeout),
            _output("imex.json", [*ctl, "-N", "-j"], options.imex_timeout),
        ],
    }


def _logs(options: subsets.Options) -> Iterator[dict[str, Any]]:
    """The logs and link counters of a tray, for the evidence of an incident; never for a bundle."""
    for name, command in LOGS.items():
        program, *words = command.split()
        if name == "links.json":
            facts = subsets.gather(options._replace(gather_subset=("links",)))["ansible_facts"]
            text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
            yield _printed(name, child.Result(rc=0, stdout=text, stderr=""))
        else:
            program = options.nvidia_smi if program == "nvidia-smi" else program
            yield _output(name, [program, *words], options.timeout)


def of_controller(slurm: Slurm) -> dict[str, Any]:
    """The return values of the module for a host of slurmctld."""
    outputs = []
    for name, what in (("topology.txt", "topology"), ("config.txt", "config")):
        try:
            outputs.append(_printed(name, slurm.call("scontrol", "show", what)))
        except SlurmError:
            outputs.append({"name": name, "problem": "failed", "parts": []})
    try:
        version = ".".join(map(str, slurm.version()))
    except SlurmError:
        version = None
    return {"versions": {"slurmctld": version}, "findings": [], "outputs": outputs}


def _nvml(timeout: float) -> dict[str, Any]:
    reply = child.call(structs.query_raw, timeout)
    try:
        nvml.from_reply(reply, timeout)
    except DriverError as error:
        return {"problem": str(error), "driver_version": None, "count": None, "gpus": []}
    gpus = []
    for gpu in reply.value["gpus"]:
        known = {key: gpu.get(key) for key in ("index", "uuid", "name", "pci_bus_id", "module_id", "mig")}
        # The platform device identifier has 64 bits, more than a number of an answer may have.
        pdi = f"0x{gpu['pdi']:x}" if gpu.get("pdi") else None
        more = {key: gpu.get(key) for key in ("recovery_action", "platform", "structs")}
        gpus.append({**known, "code": gpu["codes"][0], "pdi": pdi, **more})
    return {
        "problem": None,
        "driver_version": reply.value["driver_version"],
        "count": reply.value["count"],
        "gpus": gpus,
    }


def _output(name: str, argv: list[str], timeout: float) -> dict[str, Any]:
    return _printed(name, child.run(argv, timeout, env={**os.environ, "LC_ALL": "C"}))


def _printed(name: str, done: child.Result) -> dict[str, Any]:
    """What a program has printed in parts, and in ``problem`` a word why it is not a whole answer."""
    text = done.stdout or done.stderr
    problems = {
        "no answer in time": done.timed_out,
        "not started": done.error,
        f"exit {done.rc}": done.rc,
        "too long": len(text) > MAX_CHARACTERS,
    }
    problem = next((word for word, is_so in problems.items() if is_so), None)
    text = text[:MAX_CHARACTERS]
    return {"name": name, "problem": problem, "parts": [text[at : at + PART] for at in range(0, len(text), PART)]}
