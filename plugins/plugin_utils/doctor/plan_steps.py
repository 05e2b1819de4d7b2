# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of the playbook doctor on the controller: which hosts to inspect, and the checks of what they reported."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import (
    controller,
    environment,
    host_checks,
    inventory,
    matrix,
    peer_hosts,
    results,
    unanswered,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.results import OK, SKIPPED, check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import node_selection
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import folded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, INFO, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import site
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

_IMEX_SERVICE = ("domain", "host_managed", "job")
MAX_WAVES = 50
"""More waves of a rollout take days where each waits an hour for its jobs, the default of rollout_drain_wait."""


def plan(read: site.Inventory, path: str) -> dict[str, Any]:
    """What the hosts are to inspect."""
    fabric, _about = _fabric(read, path)
    sample = [{"name": name, "address": read.trays[name], "port": 0} for name in peer_hosts.sample([*read.trays])]
    return {
        # Without it no answer of a host can be checked.
        "ready": environment.has("fastjsonschema"),
        "controllers": list(read.controllers),
        "sample": sample,
        # Reading the variables of all neighbours of each tray would take minutes at ten thousand.
        "groups": peer_hosts.groups(read.trays, fabric),
        "with_imex": _with_imex(read),
    }


def clocked(answer: Result, asked_at: float) -> Result:
    """The answer of a host with its clock; asked_at: by the controller's, which has just got the answer."""
    started, ended = (mapped(answer.get("times")).get(name) for name in ("started", "ended"))
    if not isinstance(started, (int, float)) or not isinstance(ended, (int, float)):
        return {"failed": True, "msg": unanswered.problem(answer) or "its answer has another shape"}
    return {**answer, "clock": {"low": ended - time.time(), "high": started - asked_at}}


def connects(tray: str, ports: Iterable[int], controllers: Iterable[str], hostvars: Any) -> list[dict[str, Any]]:
    """The ports of the tray's neighbours and of slurmctld."""
    groups = as_list(mapped(hostvars.raw_get("localhost").get("doctor_plan")).get("groups"))
    found = [
        {"name": name, "address": address, "port": port}
        for name, address in peer_hosts.neighbours(tray, groups).items()
        for port in ports
    ]
    for name in controllers:
        variables = hostvars.raw_get(name)
        slurm = mapped(mapped(variables.get("doctor_slurm")).get("slurm"))
        if not slurm.get("problem"):
            port = whole(slurm.get("slurmctld_port")) or peer_hosts.SLURMCTLD_PORT
            found.append({"name": name, "address": inventory.address(name, variables, hostvars), "port": port})
    return found


def _with_imex(read: site.Inventory) -> bool:
    owner = read.variables.get("imex_owner", "domain")
    return owner in _IMEX_SERVICE and "imex" in site.default_phases(read)


def _fabric(read: site.Inventory, path: str) -> tuple[Fabric | None, Finding]:
    """(the fabric file's content, None where there is none, and its check)."""
    if not path or "fabric_file" in read.misplaced:
        where = "for trays alone; set it for the group all" if "fabric_file" in read.misplaced else "nowhere"
        message = f"fabric_file is set {where}: every other playbook needs its path"
        return None, check("fabric_file", WARNING, message)
    if not os.path.exists(path):
        return None, check("fabric_file", INFO, fabric_file.missing(path))
    if not environment.has("fastjsonschema"):
        return None, check("fabric_file", SKIPPED, "fastjsonschema is not installed")
    try:
        fabric = fabric_file.load(path)
    except NvlinkError as error:
        return None, check("fabric_file", ERROR, str(error))
    return fabric, check("fabric_file", OK, path)


def _interpreter(trays: Iterable[str], hostvars: Any) -> Iterator[Finding]:
    silent = constants.config.get_config_value("INTERPRETER_PYTHON") != "auto"
    found = [] if silent else [name for name in trays if "ansible_python_interpreter" not in hostvars.raw_get(name)]
    if found:
        message = f"{folded(found)}: each play warns of the interpreter that Ansible found; set interpreter_python ="
        yield check("ansible_cfg", INFO, f"{message} auto_silent in [defaults], or ansible_python_interpreter")


def _inventory(read: site.Inventory, fabric: Fabric | None) -> Iterator[Finding]:
    problems = list(site.problems(read, site.default_phases(read), fabric))
    warnings = site.warnings(read, site.default_phases(read), fabric)
    if fabric and len(fabric.domains) > MAX_WAVES and "rollout_domains" not in read.variables:
        warnings.append(f"a rollout takes {len(fabric.domains)} waves in a row; set rollout_domains: [1, 4, 16].")
    for status, texts in ((ERROR, problems), (WARNING, warnings)):
        yield from (check("inventory", status, text) for text in texts)
    if not problems and not warnings:
        yield check("inventory", OK, "")


def evaluate(
    read: site.Inventory, path: str, task_vars: Variables, by_ssh: Mapping[str, Result] | None = None
) -> tuple[list[dict[str, str]], host_checks.Site]:
    """(all checks; what was read of the site). by_ssh: results of trays where no task has registered them."""
    fabric, about = _fabric(read, path)
    of_trays = _registered(read.trays, "doctor_tray", task_vars) if by_ssh is None else by_ssh
    of_controllers = _registered(read.controllers, "doctor_slurm", task_vars)
    found = host_checks.Site(
        {name: host_checks.report(name, result, is_tray=True) for name, result in of_trays.items()},
        {name: host_checks.report(name, result, is_tray=False) for name, result in of_controllers.items()},
        bool({"imex", "slurm"}.intersection(site.default_phases(read))),
        fabric is not None,
        _with_imex(read),
    )
    rows = [
        *controller.checks(environment.read(), read),
        *_interpreter(read.trays, task_vars["hostvars"]),
        about,
        *_inventory(read, fabric),
        *host_checks.checks(found),
        *_kubernetes(read.variables),
    ]
    return results.rows(rows), found


def _registered(wanted: Iterable[str], register: str, task_vars: Variables) -> dict[str, Any]:
    """Host -> what its task has registered, of those that the limit leaves. Never templated."""
    known = {name: task_vars["hostvars"].raw_get(name) for name in map(str, wanted)}
    return {name: variables[register] for name, variables in known.items() if register in variables}


def _kubernetes(variables: Variables) -> Iterator[Finding]:
    if not any(variables.get(name) for name in controller.USERS_OF_KUBERNETES):
        yield check("kubernetes", SKIPPED, f"none of {', '.join(controller.USERS_OF_KUBERNETES)} is set")
        return
    roles = ("dra_driver", "k8s_topology", "verify")
    own = os.environ.get("KUBECONFIG") or "~/.kube/config"
    kubeconfig = next(filter(None, (variables.get(f"{role}_kubeconfig") for role in roles)), own)
    context = next(filter(None, (variables.get(f"{role}_context") for role in roles)), "")
    options = {"kubeconfig": os.path.expanduser(str(kubeconfig)), "context": context, "timeout": 20}
    try:
        snapshot = Reader(login.of_kubeconfig(options, "doctor")).snapshot()
    except (NvlinkError, AnsibleError) as error:
        yield check("kubernetes", ERROR, sentence(str(error), 300))
        return
    yield check("kubernetes", *matrix.evaluate("kubernetes", str(snapshot["version"])))
    yield check("releases", *releases(snapshot))


_CHART = re.compile(r"((?:nvidia-)?dra-driver-(?:nvidia-)?gpu|gpu-operator)-(v?[0-9][0-9A-Za-z._-]{0,60})")


def releases(snapshot: Mapping[str, Any]) -> tuple[str, str]:
    """(status, sentence) of the charts of the DRA driver and GPU Operator, by the labels of what they installed."""
    objects = (item for key in ("daemon_sets", "cluster_policies", "gpu_clusters") for item in as_list(snapshot[key]))
    charts = {str(node_selection.labels(item).get("helm.sh/chart")) for item in objects}
    found = sorted(f"{match[1]} {match[2]}" for match in map(_CHART.fullmatch, charts) if match)
    if found:
        return INFO, f"installed by {' and '.join(found)}"
    return SKIPPED, "; ".join(("no chart of the DRA driver or GPU Operator was found", *snapshot["not_readable"]))
