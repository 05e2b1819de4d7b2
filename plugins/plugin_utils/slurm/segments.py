# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tiers' policy for ``--segment`` as a script of job_submit/lua, which has segments from Slurm 25.11.2 on. Pure.

Only a job without ``--segment`` that is larger than the default and divisible by it gets the default: Slurm would
refuse the others, and a job within one block needs none. The submitter gets a message. A segment above the maximum is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import SCRIPT_HEADER
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.tiers import Segment

_POLICY = """\
-- A site's own job_submit.lua calls it in the first line of slurm_job_submit:
--   local result = dofile("%(path)s").submit(job_desc, part_list); if result ~= slurm.SUCCESS then return result end
local policy = {
%(rows)s}

local M = {}
local UNSET16, UNSET32 = 65534, 4294967294

local function partitions(job_desc, part_list)
    local names = {}
    if job_desc.partition and job_desc.partition ~= "" then
        for name in string.gmatch(job_desc.partition, "[^,]+") do names[#names + 1] = name end
    else
        for name, part in pairs(part_list) do
            if part.flag_default == 1 then names[#names + 1] = name end
        end
    end
    return names
end

function M.submit(job_desc, part_list)
    local segment = job_desc.segment_size
    if segment == UNSET16 or segment == 0 then segment = nil end
    local nodes = job_desc.min_nodes
    if nodes == nil or nodes >= UNSET32 then nodes = nil end
    local names = partitions(job_desc, part_list)
    for _, name in ipairs(names) do
        local rule = policy[name]
        if rule and rule.maximum and segment and segment > rule.maximum then
            slurm.log_user(string.format("partition %%s takes --segment up to %%d", name, rule.maximum))
            return slurm.ERROR
        end
    end
    local rule = #names == 1 and policy[names[1]] or nil
    if rule and rule.default and not segment and nodes and nodes > rule.default and nodes %% rule.default == 0 then
        job_desc.segment_size = rule.default
        slurm.log_user(string.format("partition %%s: --segment=%%d is set for this job", names[1], rule.default))
    end
    return slurm.SUCCESS
end

return M
"""
_SCRIPT = """\
%(header)s
local nvlink = dofile("%(path)s")

function slurm_job_submit(job_desc, part_list, submit_uid)
    return nvlink.submit(job_desc, part_list)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
"""


def policy_text(segments: Mapping[str, Segment], path: str) -> str:
    """The script with the policy; ``path`` is its own path."""
    return f"{SCRIPT_HEADER}\n" + _POLICY % {"path": _quoted(path), "rows": _rows(segments)}


def _rows(segments: Mapping[str, Segment]) -> str:
    rows = ""
    for name, rule in sorted(segments.items()):
        limits = [f"{key} = {value}" for key, value in (("default", rule.default), ("maximum", rule.maximum)) if value]
        rows += f'    ["{name}"] = {{ {", ".join(limits)} }},\n'
    return rows


def script_text(path: str) -> str:
    """A job_submit.lua for a site that has none; ``path`` is the policy's path."""
    return _SCRIPT % {"header": SCRIPT_HEADER, "path": _quoted(path)}


def is_ours(script: str | None) -> bool:
    """Whether a script is of this collection, or none is there."""
    return script is None or script.startswith(SCRIPT_HEADER)


def _quoted(path: str) -> str:
    return path.replace("\\", "\\\\").replace('"', '\\"')
