# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that a site may set, and what each playbook checks of a run.

A role has them in meta/argument_specs.yml; playbooks/files/argument_specs.yml has an entry for each playbook, as a
role has for its entry points. The files are read when an action plugin is first loaded, before Ansible forks.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Specification

OWN_FACTS = frozenset(subsets.FACTS.values())
"""The facts that modules of this collection return."""

_ROOT = Path(__file__).resolve().parents[3]
_TEXTS = ("playbooks/**/*.yml", "roles/*/*/*.yml", "roles/*/*/*.j2", "plugins/inventory/fabric.py")
_RUNS = re.compile(
    r"(?:import_playbook: (?:rackscale\.nvlink\.|phases/)?|import_tasks: tasks/)(\w+)"
    r"|_role:\s+name: rackscale\.nvlink\.(\w+)"
)


@dataclass(frozen=True)
class RunCheck:
    """What the first play of a playbook checks, `run_check` of its entry. Most lists have names of variables.

    tags: those of its plays and tasks. alone: the tags of parts that do something else than the playbook, whose
    variables begin with the tag. localhost: whether --limit must leave localhost, where Ansible drops a play otherwise.
    whole: whether --limit is refused, since no play may be dropped and no tray be left out. plan: whether it plans the
    phases of site, which itself requires trays. required: they must be set. patterns: they match a host of this run.
    inventory_patterns: they match one of the inventory. optional_patterns: likewise, where they are set.
    fabric_variable: the path of the fabric file in a role, which must exist and be valid, read as the first host of the
    patterns has it. files: paths, or several between colons. trays: hostlists of trays, cliques and domains of the
    fabric file, or of hosts of the inventory. placed: of the fabric file alone. renames: pairs OLD:NEW. cases: other
    values of all these where a variable is, or as a list contains, one of the values in `when`.
    """

    tags: Sequence[str] = ()
    alone: Sequence[str] = ()
    localhost: bool = True
    whole: bool = False
    plan: bool = False
    required: Sequence[str] = ()
    patterns: Sequence[str] = ()
    inventory_patterns: Sequence[str] = ()
    optional_patterns: Sequence[str] = ()
    fabric_variable: str = ""
    files: Sequence[str] = ()
    trays: Sequence[str] = ()
    placed: Sequence[str] = ()
    renames: Sequence[str] = ()
    cases: Sequence[Mapping[str, Any]] = ()

    def of_run(self, value: Callable[[str], Any]) -> RunCheck:
        """With the cases of this run. value: name of a variable -> its value, None where it is not set."""
        found: dict[str, Any] = {}
        for case in self.cases:
            if all(_is_one_of(name, value(name), wanted) for name, wanted in case["when"].items()):
                found.update({key: given for key, given in case.items() if key != "when"})
        return replace(self, **found)


def _is_one_of(name: str, value: Any, wanted: Sequence[Any]) -> bool:
    given = VARIABLES.get(name, {}).get("default") if value is None else value
    if wanted == [True]:
        return bool(boolean(given or False, strict=False))
    return any(word in wanted for word in (given if isinstance(given, (list, tuple)) else [given]))


def _read() -> tuple[dict[str, dict[str, Specification]], dict[str, RunCheck]]:
    """(roles/NAME or playbooks/NAME -> its variables; playbook -> what it checks)."""
    found: dict[str, dict[str, Specification]] = {}
    checks: dict[str, RunCheck] = {}
    for path in (*_ROOT.glob("roles/*/meta/argument_specs.yml"), _ROOT / "playbooks/files/argument_specs.yml"):
        owner = path.parents[1].relative_to(_ROOT)
        read = yaml.load(path.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for entry, spec in read["argument_specs"].items():
            name = owner / entry if owner.name == "playbooks" else owner
            found.setdefault(str(name), {}).update(spec["options"])
            if owner.name == "playbooks":
                needed = [
                    key for key, option in spec["options"].items() if option.get("required") and "example" in option
                ]
                checks[entry] = RunCheck(**{"required": needed, **spec.get("run_check", {})})
    return found, checks


OF_OWNER, CHECKS = _read()
VARIABLES: dict[str, Specification] = {}
"""Variable -> specification of all that a person sets."""
for _name, _spec in itertools.chain.from_iterable(_known.items() for _known in OF_OWNER.values()):
    # One may stand in several, of which one has an example.
    VARIABLES[_name] = {**VARIABLES.get(_name, {}), **_spec}
OWNERS = frozenset(name.split("/")[1] for name in OF_OWNER)
"""The roles and playbooks, whose names their variables begin with."""
_DISTINCT = {name.partition("/")[2] for name in OF_OWNER if name.startswith("roles/")} - {"slurm", "verify"}
OWN_PREFIXES = ("_slurm_", "nvlink_", *(f"{role}_" for role in sorted(_DISTINCT)))
"""No one else's variables begin with these, as they may with slurm_, verify_ and the names of playbooks."""
PATTERNS = {
    name: spec["default"] for name, spec in VARIABLES.items() if name.endswith("_hosts") and spec.get("default")
}
"""Variable -> its default, of those that are the hosts of a play."""


def read_by(playbook: str) -> dict[str, Specification]:
    """Variable -> specification of what a playbook reads, with the roles that it runs and the playbooks it imports."""
    return {name: spec for owner in runs(playbook) for name, spec in OF_OWNER.get(owner, {}).items()}


def runs(playbook: str) -> list[str]:
    """The playbook, as playbooks/NAME, and all playbooks and roles that it and these run, as roles/NAME."""
    found = [f"playbooks/{playbook}"]
    for owner in found:
        # Of a playbook also its files in the folders phases and tasks.
        parts = f"{owner}.yml".replace("playbooks/", "playbooks/*/")
        for text in _texts(f"{owner}.yml", parts, f"{owner}/tasks/*.yml"):
            for imported, role in _RUNS.findall(text):
                name = f"roles/{role}" if role else f"playbooks/{imported}"
                # Not the first play of all playbooks, which is none itself.
                found += [name] if name in OF_OWNER and name not in found else []
    return found


@functools.cache
def words() -> frozenset[str]:
    """Every word of roles, playbooks and the inventory plugin: a variable that is none of these has no reader.

    So what tasks register or store is known too, since it is among a host's variables later in the run.
    """
    return frozenset(word for text in _texts(*_TEXTS) for word in re.findall(r"\w+", text))


def _texts(*patterns: str) -> Iterator[str]:
    return (path.read_text("utf-8") for pattern in patterns for path in _ROOT.glob(pattern))
