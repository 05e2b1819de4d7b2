# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that users see: few, each name with one meaning, every result of one shape."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import pytest
import yaml

COLLECTION = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in (COLLECTION / "plugins" / "modules").glob("[!_]*.py"))
INTERNAL = "[INTERNAL] "
NOTE = re.compile(r"Used by the (roles|playbooks) of this collection alone; its options may change in any release\.")
PUBLIC = (
    "dra_driver_info",
    "fabric_facts",
    "fabric_file",
    "fabric_render",
    "imex_domain",
    "imex_job",
    "k8s_topology",
    "slurm_benchmark",
    "slurm_nodes",
    "slurm_tiers",
    "slurm_topology",
    "slurm_topology_info",
    "verify",
)


def _document(name: str, attribute: str) -> dict[str, Any]:
    module = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.modules.{name}")
    document: dict[str, Any] = yaml.safe_load(getattr(module, attribute))
    return document


def _options(name: str) -> dict[str, dict[str, Any]]:
    """The documented options of a module with those of its documentation fragments."""
    document = _document(name, "DOCUMENTATION")
    found = dict(document.get("options") or {})
    for fragment in document.get("extends_documentation_fragment") or []:
        *_collection, stem, variant = [*fragment.split("."), "DOCUMENTATION"][: 4 if fragment.count(".") > 2 else 5][
            -2:
        ]
        module = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.doc_fragments.{stem}")
        found.update(yaml.safe_load(getattr(module.ModuleDocFragment, variant.upper())).get("options") or {})
    return found


def _is_internal(name: str) -> bool:
    return bool(_document(name, "DOCUMENTATION")["short_description"].startswith(INTERNAL))


def test_these_modules_are_public_and_all_others_are_marked_internal() -> None:
    assert tuple(name for name in NAMES if not _is_internal(name)) == PUBLIC
    notes = {name: _document(name, "DOCUMENTATION").get("notes") or [] for name in NAMES if _is_internal(name)}
    assert [name for name, texts in notes.items() if not any(map(NOTE.match, texts))] == []


def test_an_option_has_one_type_in_all_public_modules() -> None:
    types: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in PUBLIC:
        for option, described in _options(name).items():
            # A number of seconds that is no time-out may be whole.
            kind = "number" if described["type"] in ("int", "float") and option != "timeout" else described["type"]
            types[option][kind].append(name)
    assert {option: dict(found) for option, found in types.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_result_documents_changes_and_findings(name: str) -> None:
    assert {"changes", "findings"} <= _document(name, "RETURN").keys()


def test_modules_name_no_role_variable() -> None:
    """A module is used without its role too, so it names its own option first: `override (variable VARIABLE)`."""
    variables = set()
    for specs in (COLLECTION / "roles").glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(specs.read_text())["argument_specs"].values():
            variables |= set(entry.get("options") or {})
    options = {option for name in NAMES for option in _options(name)}
    # A key of the fabric file, the code of a finding and a key of the facts have the names of variables too.
    variables -= {*options, *NAMES, "fabric_file", "slurm_cluster", "slurm_topology_name", "imex_package"}
    pattern = re.compile(rf"\b({'|'.join(sorted(variables))})\b")
    plugins = COLLECTION / "plugins"
    public = [plugins / folder / f"{name}.py" for folder in ("modules", "action") for name in PUBLIC]
    found = {}
    for path in [*filter(Path.exists, public), *sorted((plugins / "module_utils").rglob("*.py"))]:
        named = sorted(set(pattern.findall(re.sub(r"\(variable \w+\)", "", path.read_text()))))
        # The catalogue of findings is also docs/findings.md, whose readers use the roles.
        if named and path.name != "findings.py":
            found[str(path.relative_to(plugins))] = named
    assert found == {}


class _AnyName(dict[str, Any]):
    """Jinja's table of filters or tests, in which every name exists: Ansible adds many to Jinja's own."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, str)


# A site has variables of its own, such as `trays: 18`; only these names and prefixes reach this collection.
PREFIXES = re.compile(
    r"_?(fabric|imex|nvlink|dra_driver|k8s_topology|kubernetes|rollout|slurm|site|report|render|verify|edit|drain|resume"
    r"|spares|benchmark|teardown|demo|doctor|capture|ansible)_"
)
NAMES_OF_ANSIBLE = {"groups", "hostvars", "inventory_hostname", "item", "lookup", "omit", "playbook_dir", "query"}
OTHER_NAMES = {"junit_file", "rehearsal_file", "teardown", "verdict_file"}
CONDITIONS = {"when", "that", "until", "changed_when", "failed_when"}


def _templates(node: Any, key: str = "") -> Iterator[str]:
    """All Jinja templates of parsed YAML, bare conditions included."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _templates(value, str(name))
    elif isinstance(node, list):
        for value in node:
            yield from _templates(value, key)
    elif isinstance(node, str):
        yield f"{{{{ {node} }}}}" if key in CONDITIONS and "{{" not in node else node


def test_playbooks_and_roles_read_only_variables_with_a_prefix_of_their_own() -> None:
    environment = jinja2.Environment()
    environment.filters, environment.tests = _AnyName(environment.filters), _AnyName(environment.tests)
    found = defaultdict(set)
    for folder in ("playbooks", "roles"):
        for path in sorted((COLLECTION / folder).rglob("*")):
            if path.suffix == ".yml" and path.parent.name != "meta":
                texts = list(_templates(yaml.safe_load(path.read_text())))
            elif path.suffix == ".j2":
                texts = [path.read_text()]
            else:
                continue
            for text in texts:
                for name in jinja2.meta.find_undeclared_variables(environment.parse(text)):
                    if not PREFIXES.match(name) and name not in NAMES_OF_ANSIBLE | OTHER_NAMES:
                        found[name].add(str(path.relative_to(COLLECTION)))
    assert found == {}
