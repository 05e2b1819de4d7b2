# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of the playbook doctor on the controller: which hosts to inspect, and the checks of what they reported."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.node_names import NodeNames
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import (
    checks,
    controller,
    environment,
    hosts,
    matrix,
    names,
    peers,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.checks import (
    ERROR,
    INFO,
    OK,
    SKIPPED,
    WARNING,
    Check,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import node_selection
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import site
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import Object, as_list, mapped, sentence

_IMEX_SERVICE = ("domain", "host_managed", "job")


def plan(read: site.Inventory, path: str, task_vars: Variables) -> dict[str, Any]:
    found = list(
        controller.checks(environment.read(), read.variables, read.slurm, len(read.trays), os.cpu_count() or 1)
    )
    ready = not any(check.status == ERROR and "fastjsonschema" in check.message for check in found)
    fabric = None
    if ready:
        fabric, about = _fabric(read, path)
        found += [about, *_inventory(read, fabric)]
    sample = [{"name": name, "address": read.trays[name], "port": 0} for name in peers.sample([*read.trays])]
    return {
        "checks": [asdict(check) for check in found],
        "ready": ready,
        "controllers": list(read.controllers),
        "fabric_file": path if fabric is not None else "",
        "sample": sample,
        # With a fabric file a tray finds its neighbours there.
        "addresses": {} if fabric is not None else read.trays,
        "with_imex": _with_imex(read),
    }


def _with_imex(read: site.Inventory) -> bool:
    owner = read.variables.get("imex_owner", "domain")
    return owner in _IMEX_SERVICE and "imex" in site.default_phases(read)


def _fabric(read: site.Inventory, path: str) -> tuple[Fabric | None, Check]:
    """(the fabric file's content, None where there is none, and its check)."""
    if not path or "fabric_file" in read.misplaced:
        where = "for trays alone; set it for the group all" if "fabric_file" in read.misplaced else "nowhere"
        message = f"fabric_file is set {where}: every other playbook needs its path"
        return None, Check("fabric_file", WARNING, message)
    if not os.path.exists(path):
        return None, Check("fabric_file", INFO, f"{path} does not exist yet; run discover and accept")
    try:
        fabric = fabric_file.load(path)
    except NvlinkError as error:
        return None, Check("fabric_file", ERROR, str(error))
    return fabric, Check("fabric_file", OK, path)


def _inventory(read: site.Inventory, fabric: Fabric | None) -> Iterator[Check]:
    problems = site.problems(read, site.default_phases(read), fabric)
    warnings = site.warnings(read, site.default_phases(read), fabric)
    for status, texts in ((ERROR, problems), (WARNING, warnings)):
        yield from (Check("inventory", status, text) for text in texts)
    if not problems and not warnings:
        yield Check("inventory", OK, "")


def evaluate(
    read: site.Inventory, path: str, known: Iterable[Object], task_vars: Variables
) -> tuple[list[dict[str, str]], hosts.Site]:
    """(all checks, with those that plan() has returned; what was read of the site)."""
    found = _site(read, path, task_vars)
    fabric = None
    if found.placed:
        # The first step has reported a broken one.
        with contextlib.suppress(NvlinkError):
            fabric = fabric_file.load(path)
    wanted = _wanted(found, fabric, task_vars)
    rows = [
        *(Check(**mapped(row)) for row in known),
        *hosts.checks(found),
        *_slurm_names(found, read, wanted["slurm_node"]),
        *_kubernetes(found, wanted["kubernetes_node"], read.variables),
    ]
    return checks.merged(rows), found


def _site(read: site.Inventory, path: str, task_vars: Variables) -> hosts.Site:
    phases = site.default_phases(read)
    roles = [word for phase, word in (("imex", "imex and rollout"), ("slurm", "slurm")) if phase in phases]
    return hosts.Site(
        _reports(read.trays, "doctor_tray", task_vars),
        _reports(read.controllers, "doctor_slurm", task_vars),
        " and ".join(roles),
        bool(path and os.path.exists(path)),
        _with_imex(read),
        bool(read.variables.get("dra_driver_shape")),
    )


def _reports(wanted: Iterable[str], register: str, task_vars: Variables) -> dict[str, Object]:
    """Host -> its report, of the hosts that this run has asked, which a limit may have reduced. Never templated."""
    found = {}
    for name in wanted:
        variables = task_vars["hostvars"].raw_get(name)
        if register in variables:
            report = mapped(variables[register])
            complete = "times" in report and not report.get("failed")
            problem = report.get("problem") or report.get("msg") or "it returned nothing"
            found[str(name)] = report if complete else {"problem": str(problem)}
    return found


def _slurm_names(found: hosts.Site, read: site.Inventory, wanted: Mapping[str, str]) -> Iterator[Check]:
    if not found.controllers:
        cause = "no Slurm controller is in this run" if read.controllers else "the group slurm_controller has no host"
        yield Check("slurm", SKIPPED, cause)
        return
    nodes = [
        NodeNames(str(row.get("name")), tuple(str(row[key]) for key in ("hostname", "address") if row.get(key)))
        for report in found.controllers.values()
        for row in map(mapped, as_list(mapped(report.get("slurm")).get("nodes")))
        if row.get("name")
    ]
    if nodes:
        layer = names.SLURM._replace(adds_nodes=read.slurm == "managed")
        yield from names.checks(layer, wanted, _hostnames(found), nodes)


def _kubernetes(found: hosts.Site, wanted: Mapping[str, str], variables: Variables) -> Iterator[Check]:
    if not any(variables.get(name) for name in controller.USERS_OF_KUBERNETES):
        yield Check("kubernetes", SKIPPED, f"none of {', '.join(controller.USERS_OF_KUBERNETES)} is set")
        return
    roles = ("dra_driver", "k8s_topology", "verify")
    own = os.environ.get("KUBECONFIG") or "~/.kube/config"
    kubeconfig = next(filter(None, (variables.get(f"{role}_kubeconfig") for role in roles)), own)
    context = next(filter(None, (variables.get(f"{role}_context") for role in roles)), "")
    options = {"kubeconfig": os.path.expanduser(str(kubeconfig)), "context": context, "timeout": 20}
    try:
        snapshot = Reader(login.of_kubeconfig(options, "doctor")).snapshot()
    except (NvlinkError, AnsibleError) as error:
        yield Check("kubernetes", ERROR, sentence(str(error), 300))
        return
    yield Check("kubernetes", *matrix.evaluate("kubernetes", str(snapshot["version"])))
    yield Check("releases", *releases(snapshot))
    nodes = [NodeNames(str(mapped(row.get("metadata")).get("name"))) for row in map(mapped, as_list(snapshot["nodes"]))]
    yield from names.checks(names.KUBERNETES, wanted, _hostnames(found), nodes)


_CHART = re.compile(r"((?:nvidia-)?dra-driver-(?:nvidia-)?gpu|gpu-operator)-(v?[0-9][0-9A-Za-z._-]{0,60})")


def releases(snapshot: Mapping[str, Any]) -> tuple[str, str]:
    """(status, sentence) of the charts of the DRA driver and GPU Operator, by the labels of what they installed."""
    objects = (item for key in ("daemon_sets", "cluster_policies", "gpu_clusters") for item in as_list(snapshot[key]))
    charts = {str(node_selection.labels(item).get("helm.sh/chart")) for item in objects}
    found = sorted(f"{match[1]} {match[2]}" for match in map(_CHART.fullmatch, charts) if match)
    if found:
        return INFO, f"installed by {' and '.join(found)}"
    return SKIPPED, "; ".join(("no chart of the DRA driver or GPU Operator was found", *snapshot["not_readable"]))


def _wanted(found: hosts.Site, fabric: Fabric | None, task_vars: Variables) -> dict[str, dict[str, str]]:
    """Key of the fabric file -> tray -> the name of its node: of the file, else as discover would take it."""
    placed, hostvars = fabric.trays if fabric else {}, task_vars["hostvars"]
    wanted: dict[str, dict[str, str]] = {"slurm_node": {}, "kubernetes_node": {}}
    for name in found.trays:
        tray = mapped(placed.get(name))
        raw = {} if tray else hostvars.raw_get(name)
        for key, node_of in wanted.items():
            variable = f"fabric_{key}"
            given = tray.get(key) or (hostvars[name].get(variable) if raw.get(variable) else None)
            node_of[name] = str(given or name)
    return wanted


def _hostnames(found: hosts.Site) -> dict[str, list[str]]:
    return {
        name: [str(report[key]) for key in ("slurmd_name", "hostname") if report.get(key)]
        for name, report in hosts.answered(found.trays).items()
    }
