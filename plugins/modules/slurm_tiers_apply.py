#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_tiers_apply
short_description: "[INTERNAL] Apply the tiers of slurm_tiers on the host of slurmctld"
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - The action plugin of M(rackscale.nvlink.slurm_tiers) runs it on the host of slurmctld, with the validated options of
    the task and the blocks of the fabric file.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  request:
    description:
      - The other options of M(rackscale.nvlink.slurm_tiers), and C(clusters), a list with the blocks of each Slurm
        cluster in the fabric file. Each entry has C(name) (empty for whichever cluster runs here), C(blocks) (each with
        C(name), C(clique) and C(nodes)).
    type: dict
    required: true
  timeout:
    description: As in M(rackscale.nvlink.slurm_tiers).
    type: float
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.slurm
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_tiers
"""

EXAMPLES = r"""
- name: Apply tiers through the public module
  rackscale.nvlink.slurm_tiers:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    tiers:
      - {name: gold, blocks: [r01]}
"""

RETURN = r"""
changes:
  description: As the result of M(rackscale.nvlink.slurm_tiers), which has all keys of this one.
  returned: success
  type: list
  elements: str
findings:
  description: Errors, warnings and information, each with its remedy.
  returned: always
  type: list
  elements: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf_folder, live, programs, removing
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.module_exit import Findings, run_and_exit
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import rehearsal
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import tier_apply, tier_plan, tiers
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "request": {"type": "dict", "required": True},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "float", "default": 60},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    run_and_exit(module, remove if module.params["request"].get("state") == "absent" else run)


def remove(module: AnsibleModule, findings: Findings) -> dict[str, Any]:
    """Remove the partitions and their files, then QoS and grants; a failure before that restores all files."""
    params = module.params
    slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
    with conf_folder.locked(params["conf_dir"], params["timeout"], module.check_mode):
        plan = tier_plan.plan_removal(tier_plan.inspect(slurm, params["conf_dir"]))
        removal = removing.plan(params["conf_dir"], removing.TIERS)
        findings.extend(plan.findings)
        stopped = bool(plan.stopped_by())
        override = _override(module.params["request"])
        if not stopped and not module.check_mode:
            tier_apply.apply(plan, override, removal.files)
        elif not stopped:
            plan.require_no_loss(removal.files, override)
    changes = [*plan.difference, *removal.lines()]
    result: dict[str, Any] = {
        "changed": bool(changes) and not stopped,
        "version": plan.survey.observed.version_text,
        "path": plan.survey.path,
        "partitions": {},
        "changes": changes,
        "written": [] if stopped else sorted(removal.files),
        "reconfigured": bool(removal.files) and not stopped,
        "rehearsal": None,
        "findings": findings,
    }
    if module._diff and changes:
        result["diff"] = {"prepared": "".join(f"{line}\n" for line in changes)}
    return result


def run(module: AnsibleModule, findings: Findings) -> dict[str, Any]:
    """Inspect, plan, apply; findings are filled meanwhile, so that they are returned even where an error ends it."""
    params = {**module.params["request"], **module.params}
    slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
    with conf_folder.locked(params["conf_dir"], params["timeout"], module.check_mode):
        plan = _plan(params, slurm)
        rehearsed = _rehearse(plan, params)
        findings.extend(plan.findings)
        stopped = bool(plan.stopped_by())
        if not stopped and not module.check_mode:
            tier_apply.apply(plan, _override(params))
        elif not stopped:
            plan.require_no_loss(plan.writes, _override(params))
    result: dict[str, Any] = {
        "changed": plan.changed and not stopped,
        "version": plan.survey.observed.version_text,
        "path": plan.survey.path,
        "partitions": {partition.name: list(partition.nodes) for partition in plan.desired.partitions},
        "changes": plan.difference,
        "written": [] if stopped else sorted(plan.writes),
        "reconfigured": plan.reconfigure and not stopped,
        "rehearsal": None if rehearsed is None else rehearsed.result(),
        "findings": findings,
    }
    if module._diff and plan.difference:
        result["diff"] = {"prepared": "".join(f"{line}\n" for line in plan.difference)}
    return result


def _override(params: Mapping[str, Any]) -> str:
    """The option that permits that live changes are undone; empty where it does."""
    return "" if live.GATE in params["override"] else "override (variable slurm_tiers_override)"


def _rehearse(plan: tier_plan.TierPlan, params: Mapping[str, Any]) -> rehearsal.Rehearsal | None:
    """Rehearse partitions without error findings over the running blocks; the findings are added to the plan's."""
    if plan.stopped_by():
        return None
    observed = plan.survey.observed
    topology = observed.running_topology(params["topology_name"] if observed.running else "default")
    jobs = [*params["rehearse_jobs"], *_segment_jobs(plan.desired)]
    rehearsed, found = rehearsal.before_apply(
        observed, topology, plan.writes, plan.reconfigure, {**params, "rehearse_jobs": jobs}
    )
    plan.findings += found
    return rehearsed


def _segment_jobs(desired: tiers.DesiredTiers) -> list[dict[str, Any]]:
    """A test job of one or two segments for each tier with a policy, to check that such a job fits."""
    jobs = []
    for partition in desired.partitions:
        policy = desired.segments.get(partition.name, tiers.Segment())
        size = policy.default or policy.maximum
        if size:
            nodes = size * max(min(2, len(partition.nodes) // size), 1)
            jobs.append({"nodes": nodes, "segment": size, "partition": partition.name})
    return jobs


def _plan(params: Mapping[str, Any], slurm: programs.Slurm) -> tier_plan.TierPlan:
    survey = tier_plan.inspect(slurm, params["conf_dir"])
    given = _cluster(params["clusters"], survey.cluster)
    blocks = tuple(Block(block["name"], tuple(block["nodes"]), fold(block["nodes"])) for block in given["blocks"])
    cliques = {block["clique"] or block["name"]: block["name"] for block in given["blocks"]}
    running = {topology.name for topology in survey.observed.running}
    # A cluster with one topology needs no name for it.
    topology = params["topology_name"] if params["topology_name"] in running and len(running) > 1 else ""
    desired = tiers.build(params["tiers"], blocks, cliques, survey.observed.version, topology)
    policy = tier_plan.Policy(params["manage_conf"], params["create_accounts"], params["segment_script"])
    return tier_plan.plan(survey, desired, blocks, policy)


def _cluster(clusters: list[dict[str, Any]], here: str) -> dict[str, Any]:
    """The blocks of the cluster that runs here; SlurmError where the fabric file has none of that name."""
    found = [cluster for cluster in clusters if cluster["name"].lower() in ("", here) or len(clusters) == 1]
    if not found:
        raise SlurmError(
            f"slurmctld's ClusterName is {here or 'not shown'}, and the fabric file's Slurm clusters are"
            f" {summarize(cluster['name'] for cluster in clusters)}: set cluster to the one that runs here."
        )
    return found[0]


if __name__ == "__main__":
    main()
