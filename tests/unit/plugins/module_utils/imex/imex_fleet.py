# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings and facts of a healthy tray with IMEX, which tests change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import assembly, formats
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust

VERSION = "580.173.02"
# Where a tray without IMEX per job would have it.
JOB = {
    "imex_job_slurm_conf": "",
    "imex_job_prolog_dir": "/nowhere/prolog.d",
    "imex_job_epilog_dir": "/nowhere/epilog.d",
    "imex_job_stop_wait": 20,
}
CONFIG = "# of the package\nIMEX_CMD_ENABLED=1\nSERVER_PORT=50000\n"


def addresses(count: int) -> list[str]:
    return [f"198.51.100.{11 + number}" for number in range(count)]


def answer(text: str, rc: int = 0) -> child.Result:
    return child.Result(rc, text, "")


def domain_json(
    entries: Sequence[str],
    cells: Mapping[tuple[int, int], str] | None = None,
    states: Mapping[int, str] | None = None,
    status: str = "UP",
    version: str = VERSION,
) -> str:
    """-N -j of a domain; cells and states other than CONNECTED and READY by id."""
    nodes = {
        str(number): {
            "status": (states or {}).get(number, "READY"),
            "host": entry,
            "connections": {
                str(other): {"host": host, "status": (cells or {}).get((number, other), "CONNECTED"), "changed": True}
                for other, host in enumerate(entries)
            },
            "changed": True,
            "version": version,
            "hostName": "",
        }
        for number, entry in enumerate(entries)
    }
    return json.dumps({"nodes": nodes, "timestamp": "11/21/2026 05:00:00.123", "status": status})


def unit(**changes: Any) -> dict[str, Any]:
    plain = {"load": "loaded", "active": "active", "sub": "running", "enabled": "enabled", "main_pid": 812}
    return {**plain, "result": "success", **changes}


def process(pid: int = 812, name: str = "nvidia-imex", **changes: Any) -> dict[str, Any]:
    argv = ["/usr/bin/nvidia-imex", "-c", formats.CONFIG_FILE]
    cgroup = "/system.slice/nvidia-imex.service"
    return {"pid": pid, "name": name, "argv": argv, "cgroup": cgroup, "started_at": 1000.0, **changes}


def read(number: int = 0, count: int = 3, **changes: Any) -> dict[str, Any]:
    """The result of survey() on healthy tray `number` of `count`."""
    entries = addresses(count)
    healthy: dict[str, Any] = {
        "observed_at": "2026-11-21T05:00:00Z",
        "hostname": f"t{number}",
        "names": [f"t{number}"],
        "addresses": [entries[number]],
        "program": "/usr/bin/nvidia-imex",
        "version": VERSION,
        "package": {"name": "nvidia-imex", "version": f"{VERSION}-1"},
        "driver_version": VERSION,
        "unit": unit(),
        "config": {"path": formats.CONFIG_FILE, "text": CONFIG},
        "nodes": {"path": formats.NODES_FILE, "text": formats.render_nodes(entries), "changed_at": 900.0},
        "record": {"path": formats.RECORD_FILE, "text": None},
        "persist": {"path": formats.PERSIST_FILE, "exists": False},
        "processes": [process()],
        "answers": {"state": answer("READY\n"), "domain": answer(domain_json(entries))},
        "control_tool": True,
        "channels": {"major": 234, "devices": [{"name": "channel0", "major": 234, "minor": 0, "mode": "0666"}]},
        "prolog_files": [],
        "slurm_gives_channels": False,
        "prolog_gives_channels": False,
        "log_path": "/var/log/nvidia-imex.log",
        "log": "",
    }
    return {**healthy, **changes}


def tray(number: int = 0, count: int = 3, **changes: Any) -> dict[str, Any]:
    """The facts of that tray, as the controller has them."""
    found: dict[str, Any] = trust.with_findings(assembly.assemble(read(number, count, **changes)))
    return found


def report(observed: Any, **changes: Any) -> dict[str, Any]:
    """The report of a tray with these facts, and nothing else on it."""
    slurm = {"path": None, "settings": {}, "called": [], "alone": {}, "python": "", "job": None}
    firewall = {"name": None, "open": [], "opened": {}}
    plain = {"facts": observed, "files": {}, "record": None, "approved": False, "socket": False, "programs": []}
    asked = {"peers": {}, "jobs": [], "unknown": None, "offers": None, "local": True, "gives_channels": False}
    return {**plain, **asked, "params": {}, "firewall": firewall, "slurm": slurm, **changes}


def codes(found: Mapping[str, Any]) -> list[str]:
    return sorted(note["code"] for note in found["findings"])
