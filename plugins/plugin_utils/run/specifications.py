# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that a site may set, read from the argument_specs.yml of roles and playbooks, and who reads each.

playbooks/meta/argument_specs.yml has an entry for each playbook, as a role has for its entry points. The files are read
when an action plugin is first loaded, before Ansible forks.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Specification

OWN_PREFIXES = (
    "_slurm_",
    "dra_driver_",
    "fabric_",
    "imex_",
    "k8s_topology_",
    "nvlink_",
    "rollout_",
    "slurm_tiers_",
    "slurm_topology_",
)
"""No one else's variables begin with these, as they may with site_, slurm_, report_, render_, verify_, edit_, drain_,
resume_ and spares_."""

OWN_FACTS = frozenset(subsets.FACTS.values())
"""The facts that modules of this collection return."""

_ROOT = Path(__file__).resolve().parents[3]
_TEXTS = ("playbooks/**/*.yml", "roles/*/*/*.yml", "roles/*/*/*.j2", "plugins/inventory/fabric.py")
_RUNS = re.compile(
    r"(?:import_playbook: (?:rackscale\.nvlink\.|phases/)?|import_tasks: tasks/)(\w+)"
    r"|_role:\s+name: rackscale\.nvlink\.(\w+)"
)


def _read() -> dict[str, dict[str, Specification]]:
    """roles/NAME or playbooks/NAME -> its variables."""
    found: dict[str, dict[str, Specification]] = {}
    for path in (*_ROOT.glob("roles/*/meta/argument_specs.yml"), _ROOT / "playbooks/meta/argument_specs.yml"):
        owner = path.parents[1].relative_to(_ROOT)
        read = yaml.load(path.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for entry, spec in read["argument_specs"].items():
            name = owner / entry if owner.name == "playbooks" else owner
            found.setdefault(str(name), {}).update(spec["options"])
    return found


_OF = _read()
VARIABLES: dict[str, Specification] = {name: spec for known in _OF.values() for name, spec in known.items()}
"""Variable -> specification of all that a person sets."""
OWNERS = frozenset(name.split("/")[1] for name in _OF)
"""The roles and playbooks, whose names their variables begin with."""


def read_by(playbook: str) -> dict[str, Specification]:
    """Variable -> specification of what a playbook reads, with the roles that it runs and the playbooks it imports."""
    return {name: spec for owner in runs(playbook) for name, spec in _OF.get(owner, {}).items()}


def runs(playbook: str) -> list[str]:
    """The playbook, as playbooks/NAME, and all playbooks and roles that it and these run, as roles/NAME."""
    found = [f"playbooks/{playbook}"]
    for owner in found:
        # Of a playbook also its files in the folders phases and tasks.
        parts = f"{owner}.yml".replace("playbooks/", "playbooks/*/")
        for text in _texts(f"{owner}.yml", parts, f"{owner}/tasks/*.yml"):
            for imported, role in _RUNS.findall(text):
                name = f"roles/{role}" if role else f"playbooks/{imported}"
                found += [name] if name not in found else []
    return found


@functools.cache
def words() -> frozenset[str]:
    """Every word of roles, playbooks and the inventory plugin: a variable that is none of these has no reader.

    So what tasks register or store is known too, since it is among a host's variables later in the run.
    """
    return frozenset(word for text in _texts(*_TEXTS) for word in re.findall(r"\w+", text))


def _texts(*patterns: str) -> Iterator[str]:
    return (path.read_text("utf-8") for pattern in patterns for path in _ROOT.glob(pattern))
