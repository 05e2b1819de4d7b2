# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a message names exists: variables, options, playbooks, roles, tags. A remedy that names nothing helps nobody."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import VARIABLES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.targets import TAGS

CHECKOUT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(CHECKOUT.glob("plugins/*/*.py"))
PLAYBOOKS = {path.stem for path in CHECKOUT.glob("playbooks/*.yml")}
ROLES = {path.name for path in CHECKOUT.glob("roles/*")}
NAMES = PLAYBOOKS | ROLES | {path.stem for path in PLUGINS}
# Fields of the fabric file, the default group of the controller, names of Slurm's, and a variable that no task may set.
FOREIGN = {"imex_address", "slurm_node", "kubernetes_node", "slurm_controller", "slurm_load_topo", "slurm_job_submit"}
FOREIGN |= {"demo_dir"}
# Not messages: what docs are made of.
DOCUMENTATION = ("DOCUMENTATION", "EXAMPLES", "RETURN", "OPTIONS")

_PREFIXES = (
    "fabric|imex|slurm|dra|k8s|nvlink|rollout|verify|edit|drain|resume|spares|report|render|site|demo|benchmark|verdict"
)
# A word that may be followed by a value or a part of it, as in `imex_owner=none` and `rollout_plan.trays`.
_VARIABLE = re.compile(rf"(?<![\w./{{-])((?:{_PREFIXES})_[a-z0-9_]*[a-z0-9])(?![\w(/*{{-]|\.\w)")
_PLAYBOOK = re.compile(r"\bplaybooks? ([a-z_]+)(?: and ([a-z_]+))?")
_ROLE = re.compile(r"\b(?:the|a) role ([a-z0-9_]+)")
_QUALIFIED = re.compile(r"\brackscale\.nvlink\.([a-z0-9_]+)")
_TAG = re.compile(r"\brackscale\.nvlink\.(\w+) [^,;]*--tags (\w+)|\bplaybook (\w+) with --tags (\w+)")
_RUN = re.compile(r"\brun (discover|accept|verify|\w+_\w+)\b")
# English words after "playbook" and "role".
_WORDS = {
    *("that", "again", "or", "then", "while", "on", "with", "without", "would", "runs"),
    *("needs", "writes", "wrote", "has", "of", "which"),
}


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that may be messages; the expressions of an f-string are ``{}``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            skipped.add(id(getattr(node.body[0], "value", None)))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in DOCUMENTATION:
            skipped.update(map(id, ast.walk(node.value)))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr) and id(node) not in skipped:
            skipped.update(map(id, node.values))
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values),
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def _of_tasks(entry: Any) -> Iterator[str]:
    """The messages of the tasks of a playbook or role."""
    if isinstance(entry, Mapping):
        for key, value in entry.items():
            if key in ("msg", "fail_msg"):
                yield from map(str, value if isinstance(value, list) else [value])
            else:
                yield from _of_tasks(value)
    elif isinstance(entry, list):
        for item in entry:
            yield from _of_tasks(item)


def _messages() -> dict[str, str]:
    """Place -> message, of all plugins, modules, roles and playbooks."""
    found = {}
    for path in CHECKOUT.glob("plugins/**/*.py"):
        for line, text in _texts(path):
            if re.search(r"[a-z]{2,} [a-z]{2,}", text) and not text.lstrip().startswith(("#", "--", "options:")):
                found[f"{path.relative_to(CHECKOUT)}:{line}: {text[:60]}"] = text
    for path in [*CHECKOUT.glob("playbooks/**/*.yml"), *CHECKOUT.glob("roles/*/tasks/*.yml")]:
        for number, text in enumerate(_of_tasks(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))):
            found[f"{path.relative_to(CHECKOUT)} message {number}: {text[:60]}"] = text
    return found


def _options() -> set[str]:
    """The options and returned values of all modules and plugins."""
    found: set[str] = set()
    for path in [*PLUGINS, *CHECKOUT.glob("plugins/doc_fragments/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in DOCUMENTATION:
                text = getattr(node.value, "value", "")
                if isinstance(text, str):
                    found |= set(re.findall(r"^ *(?:- )?(\w+):", text, re.MULTILINE))
                    found |= {
                        word
                        for row in re.findall(r"choices: \[(.*?)\]", text, re.DOTALL)
                        for word in re.split(r"\W+", row)
                    }
    return found


def _set_by_tasks() -> set[str]:
    """What plays and tasks set or register, as expressions in their messages read it."""
    found: set[str] = set()
    for path in [*CHECKOUT.glob("playbooks/**/*.yml"), *CHECKOUT.glob("roles/*/*/*.yml")]:
        found.update(re.findall(r"^ *(?:register: )?(\w+)(?::|$)", path.read_text(encoding="utf-8"), re.MULTILINE))
    return found


MESSAGES = _messages()
# The inventory sets them from the fabric file, so a person who sets them changes nothing in Slurm or Kubernetes.
RESULTS = {"nvlink_slurm_node", "nvlink_kubernetes_node"}
KNOWN = (VARIABLES.keys() | _set_by_tasks() | FOREIGN | NAMES | set(CATALOGUE) | _options()) - RESULTS


def unknown(text: str) -> list[str]:
    """What a message names that does not exist."""
    found = [name for name in _VARIABLE.findall(text) if name not in KNOWN]
    named = [(name, PLAYBOOKS) for pair in _PLAYBOOK.findall(text) for name in pair if name and name not in _WORDS]
    named += [(name, ROLES) for name in _ROLE.findall(text) if name not in _WORDS]
    named += [(name, NAMES) for name in _QUALIFIED.findall(text)]
    named += [(name, NAMES) for name in _RUN.findall(text)]
    found += [name for name, known in named if name not in known and name not in ("rackscale", "the")]
    for groups in _TAG.findall(text):
        playbook, tag = (word for word in groups if word)
        found += [] if tag in TAGS.get(playbook, ()) else [f"--tags {tag}"]
    return found


def test_messages_name_what_exists() -> None:
    assert len(MESSAGES) > 1500
    assert {place: names for place, text in MESSAGES.items() if (names := unknown(text))} == {}


def _passed() -> dict[str, set[str]]:
    """Option of a module -> the variables from which roles and playbooks pass it."""
    found: dict[str, set[str]] = {}
    for path in [*CHECKOUT.glob("playbooks/**/*.yml"), *CHECKOUT.glob("roles/*/tasks/*.yml")]:
        for option, value in re.findall(r'^ +(\w+): "(.*)"$', path.read_text(encoding="utf-8"), re.MULTILINE):
            named = {name for name in re.findall(r"\w+", value) if name in VARIABLES and name.endswith(f"_{option}")}
            found.setdefault(option, set()).update(named if option not in VARIABLES else ())
    return {option: names for option, names in found.items() if names}


def test_a_remedy_names_the_variable_of_a_role_with_the_option_of_its_module() -> None:
    variables = _passed()
    names = "|".join(option for option in variables if "_" in option or option in ("backend", "cluster", "override"))
    sets = re.compile(
        rf"\b(?:set|raise|check|correct|leave|remove|change|option|variable) ({names})\b(?= to\b| \(|[.,;:]|$)"
    )
    assert {
        place: text
        for place, text in MESSAGES.items()
        for option in sets.findall(text)
        if not any(name in text for name in variables[option])
    } == {}


def test_remedies_of_the_catalogue_and_of_verify_name_what_exists() -> None:
    texts = {code: f"{row.sentence} {row.remedy}; {row.command}" for code, row in CATALOGUE.items()}
    assert {code: names for code, text in texts.items() if (names := unknown(text))} == {}


@pytest.mark.parametrize("code", CATALOGUE)
def test_placeholders_of_a_remediation_are_filled(code: str) -> None:
    placeholders = re.findall(r"\{(\w*)\}", CATALOGUE[code].command)
    assert set(placeholders) <= {"tray", "clique", "file", "node", "kubernetes_node"}
