# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/reference.md, the variables in the roles' READMEs, and what plugin_utils/guard knows of variables.

`make reference` runs it. The sources are the header comments of playbooks, the roles' argument_specs and the
documentation of plugins. A module whose short description begins with [INTERNAL] is left out.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import jinja2.nodes
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "reference.md"
INTERNAL = "[INTERNAL]"
VARIABLES = CHECKOUT / "plugins" / "plugin_utils" / "guard" / "variables.py"
SPECIFICATIONS = CHECKOUT / "plugins" / "plugin_utils" / "guard" / "specifications.py"
RUNS_ON = {"slurm": "Slurm controller", "tray": "trays"}

_HEAD = """\
<!-- Written by make reference from playbooks, argument_specs and plugins; change it there. -->

# Reference: playbooks, roles and plugins

`ansible-doc rackscale.nvlink.NAME` prints every option and return value of a module, with `-t inventory`, `-t lookup`,
`-t callback` or `-t role` those of another plugin or a role. `make docs` builds the same as a site.
"""
_LICENSE = """\
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""
_VARIABLES_HEAD = f'''\
{_LICENSE}"""The names of all variables of roles, playbooks and inventory; written by `make reference`."""

from __future__ import annotations

'''
_SPECIFICATIONS_HEAD = f'''\
{_LICENSE}"""Types of the variables that a site sets, and who reads them; written by `make reference`.

A specification has type, elements, choices, options, required and no_log, as in Ansible's argument specifications; an
empty one accepts any text. With names, the name of an option may stand in place of a dictionary.
ROLES: role -> its variables. PLAYBOOKS: playbook -> its own variables, the roles that it runs and the playbooks that it
imports. LOOKUPS: variables that lookups read.
"""

from __future__ import annotations

from typing import Any

'''
# Variables of playbooks whose type no option of a module gives.
_TYPES: dict[str, dict[str, Any]] = {
    "benchmark_fail": {"type": "bool"},
    "dra_driver_imex": {"type": "bool"},
    "k8s_topology_enabled": {"type": "bool"},
    "report_jobs": {"type": "bool"},
    "resume_drain_clique": {"type": "bool"},
    "site_accept": {"choices": ["gates", "review"]},
    "site_phases": {
        "type": "list",
        "elements": "str",
        "choices": ["discover", "slurm", "imex", "kubernetes", "verify", "report"],
    },
    "site_slurm": {"choices": ["existing", "managed"]},
    "spares_active": {"type": "int"},
    "teardown": {"type": "bool"},
}
# What Ansible itself sets, and names of loops.
_OF_ANSIBLE = re.compile(
    r"_?ansible_\w+|groups|group_names|hostvars|inventory_(hostname|dir|file)\w*|item|omit|play_hosts|playbook_dir"
    r"|role_(name|path|names)|vars|environment|query|lookup|q|now|undef|range|dict|loop|play"
)
_ONE_VARIABLE = re.compile(r"\{\{ *(\w+)(?: *\| *default\([^{}]*?\))* *\}\}")
_CONDITIONS = ("when", "failed_when", "changed_when", "until", "that")
_IMPORT = "ansible.builtin.import_playbook"
_INVENTORY = ("plugins/inventory/fabric.py", "plugins/plugin_utils/fabric/inventory_vars.py")
_TABLE = re.compile(r"(<!-- variables:(\w+) [^>]*-->\n).*?(<!-- /variables:\2 -->)", re.DOTALL)
_MARKUP = re.compile(r"\b([BCIMOPVELRU]|RV)\(((?:[^()\\]|\\.)*)\)")
_CODE = re.compile(r"(`[^`]*`)")
_VARIABLE = re.compile(r"^#   ([a-z]\w*(?:, [a-z]\w*)*)  +(\S.*)$")


class Playbook(NamedTuple):
    """The header comment of a playbook: its description and its variables with their meaning."""

    name: str
    description: str
    required: dict[str, str]
    optional: dict[str, str]
    more: str


@functools.cache
def _read(path: Path, loader: Any = yaml.CSafeLoader) -> Any:
    """The content of a YAML file; not to be changed, since it is read once."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


def pages() -> dict[Path, str]:
    """Every generated page with its text."""
    return {
        PAGE: reference(),
        VARIABLES: variables_module(),
        SPECIFICATIONS: specifications_module(),
        **{role / "README.md": role_page(role) for role in roles()},
    }


def variable_names() -> set[str]:
    """Every variable of the collection.

    Options and defaults of roles, what roles and playbooks set, register or read, and what the inventory plugin sets.
    """
    names = {name for one in playbooks() for name in (*one.required, *one.optional)} | set(_of_lookups())
    for path in (
        *CHECKOUT.glob("roles/*/*/*.yml"),
        *CHECKOUT.glob("playbooks/*.yml"),
    ):
        data = _read(path, yaml.BaseLoader)
        if path.name == "argument_specs.yml":
            names.update(name for spec in data["argument_specs"].values() for name in spec["options"])
        elif path.parent.name in ("defaults", "vars"):
            names.update(data or {})
        else:
            names.update(_set_by(data))
        names.update(_read_by(data))
    for path in (*CHECKOUT.glob("roles/*/templates/*"), *CHECKOUT.glob("playbooks/files/*.yml")):
        names.update(_names(path.read_text(encoding="utf-8")))
    for source in _INVENTORY:
        names.update(re.findall(r"\bnvlink_[a-z_]*[a-z]\b", (CHECKOUT / source).read_text(encoding="utf-8")))
    return {name for name in names if re.fullmatch(r"[a-z_]\w*", name) and not _OF_ANSIBLE.fullmatch(name)}


def _set_by(data: Any) -> Iterator[str]:
    """The variables that plays and tasks set: by vars, register, set_fact, set_stats and loop_var."""
    if isinstance(data, list):
        for entry in data:
            yield from _set_by(entry)
    elif isinstance(data, dict):
        for key, value in data.items():
            if key in ("register", "loop_var") and isinstance(value, str):
                yield value
            elif key in ("vars", "ansible.builtin.set_fact") and isinstance(value, dict):
                yield from (name for name in value if not name.startswith("ansible_"))
            elif key == "ansible.builtin.set_stats" and isinstance(value, dict):
                # AWX makes them extra variables of the next job of a workflow.
                yield from value["data"]
            yield from _set_by(value)


def _read_by(data: Any, key: str = "") -> Iterator[str]:
    """The variables that templates and conditions in YAML read."""
    if isinstance(data, list):
        for entry in data:
            yield from _read_by(entry, key)
    elif isinstance(data, dict):
        for inner, value in data.items():
            yield from _read_by(value, inner)
    elif isinstance(data, str):
        if "{{" in data or "{%" in data:
            yield from _names(data)
        elif key in _CONDITIONS:
            yield from _names(f"{{{{ {data} }}}}")


def _names(template: str) -> set[str]:
    """The variables that a template reads, of its host and of others."""
    tree = jinja2.Environment().parse(template)
    local = {node.name for node in tree.find_all(jinja2.nodes.Name) if node.ctx != "load"}
    names = {node.name for node in tree.find_all(jinja2.nodes.Name)} - local
    for node in tree.find_all(jinja2.nodes.Getattr):
        within = node.node
        if isinstance(within, jinja2.nodes.Getitem) and getattr(within.node, "name", "") == "hostvars":
            names.add(node.attr)
    return names


def variables_module() -> str:
    """The Python module with the names of all variables."""
    lines = "".join(f'        "{name}",\n' for name in sorted(variable_names()))
    return f"{_VARIABLES_HEAD}VARIABLES = frozenset(\n    (\n{lines}    )\n)\n"


def specifications_module() -> str:
    """The Python module with the types of the variables that a site sets, and who reads them."""
    of_roles = {
        role.name: {
            name: _specification(spec)
            for entry in entry_points(role).values()
            for name, spec in sorted(entry["options"].items())
        }
        for role in roles()
    }
    of_playbooks = {one.name: _read_in(one) for one in playbooks()}
    return (
        f"{_SPECIFICATIONS_HEAD}ROLES: dict[str, dict[str, dict[str, Any]]] = {_literal(of_roles)}\n"
        f"PLAYBOOKS: dict[str, dict[str, Any]] = {_literal(of_playbooks)}\n"
        f"LOOKUPS: dict[str, dict[str, Any]] = {_literal(_of_lookups())}\n"
    )


def _of_lookups() -> dict[str, dict[str, Any]]:
    """The variables of a site that lookups read, as options of the same name -> their specification."""
    return {
        name: _specification(option)
        for _name, documented in plugins("lookup")
        for name, option in sorted(documented["options"].items())
        if name.startswith("rollout_")
    }


def _specification(spec: dict[str, Any]) -> dict[str, Any]:
    """The part of an option's documentation that decides which values are right."""
    kept = {key: spec[key] for key in ("type", "elements", "choices", "required", "no_log") if spec.get(key)}
    if kept.get("type") == "str":
        del kept["type"]
    options = spec.get("options") or spec.get("suboptions")
    if options:
        kept["options"] = {name: _specification(inner) for name, inner in sorted(options.items())}
    return kept


def _read_in(one: Playbook) -> dict[str, Any]:
    """The variables of a playbook, the roles that it runs, and the playbooks that it imports."""
    plays = _read(CHECKOUT / "playbooks" / f"{one.name}.yml")
    options = {**dict(_options_of_modules(plays)), "fabric_sources": _sources()}
    names = sorted({*one.required, *one.optional})
    used = set(_roles_in(plays))
    waiting = list(used)
    while waiting:
        tasks = (CHECKOUT / "roles" / waiting.pop() / "tasks").glob("*.yml")
        more = {role for path in tasks for role in _roles_in(_read(path))} - used
        used |= more
        waiting += more
    return {
        "imports": sorted({Path(play[_IMPORT]).stem for play in plays if _IMPORT in play}),
        "roles": sorted(used),
        "variables": {name: {**options.get(name, {}), **_TYPES.get(name, {})} for name in names},
    }


def _sources() -> dict[str, Any]:
    """The specification of fabric_sources: names of sources, and dictionaries of one name and its options."""
    entries: dict[str, Any] = {"ansible_facts": {}, "fabric_file": {}, "simulation": {"type": "dict"}}
    for path in sorted((CHECKOUT / "plugins" / "doc_fragments").glob("source_*.py")):
        fragment = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.doc_fragments.{path.stem}")
        name = path.stem.removeprefix("source_")
        if hasattr(fragment, "ModuleDocFragment"):
            option = yaml.load(fragment.ModuleDocFragment.DOCUMENTATION, Loader=yaml.CSafeLoader)["options"].get(name)
            entries.update({name: _specification(option)} if option else {})
    return {"type": "list", "elements": "dict", "names": True, "options": dict(sorted(entries.items()))}


def _roles_in(data: Any) -> Iterator[str]:
    """The roles of this collection that plays or tasks import or include."""
    if isinstance(data, list):
        for entry in data:
            yield from _roles_in(entry)
    elif isinstance(data, dict):
        for key, value in data.items():
            if key in ("ansible.builtin.import_role", "ansible.builtin.include_role"):
                yield value["name"].rpartition(".")[2]
            yield from _roles_in(value)


def _options_of_modules(data: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(variable, specification) where an option of a module of this collection is that variable alone."""
    if isinstance(data, list):
        for entry in data:
            yield from _options_of_modules(entry)
    elif isinstance(data, dict):
        for key, value in data.items():
            if str(key).startswith("rackscale.nvlink.") and isinstance(value, dict):
                path = CHECKOUT / "plugins" / "modules" / f"{key.rpartition('.')[2]}.py"
                options = documentation(path).get("options") or {}
                for option, given in value.items():
                    match = _ONE_VARIABLE.fullmatch(given) if isinstance(given, str) else None
                    if match and option in options:
                        yield match[1], _specification({**options[option], "required": False})
            yield from _options_of_modules(value)


def _literal(value: Any, indent: int = 0, before: int = 60) -> str:
    """A Python literal, formatted as ruff does; before: characters of its line in front of it."""
    line = json.dumps(value, ensure_ascii=False)
    line = re.sub(r"\btrue\b", "True", line)
    if not isinstance(value, (dict, list)) or not value or (indent > 0 and indent + before + len(line) + 1 <= 120):
        return line
    inner = indent + 4
    space = " " * inner
    if isinstance(value, list):
        rows = [f"{space}{_literal(entry, inner, 0)},\n" for entry in value]
        return f"[\n{''.join(rows)}{' ' * indent}]"
    rows = [f"{space}{json.dumps(key)}: {_literal(entry, inner, len(key) + 4)},\n" for key, entry in value.items()]
    return f"{{\n{''.join(rows)}{' ' * indent}}}"


def roles() -> list[Path]:
    """The folders of all roles."""
    return sorted(path.parents[1] for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml"))


def entry_points(role: Path) -> dict[str, dict[str, Any]]:
    """The entry points of a role by name, without those that only check the options of another one."""
    specs: dict[str, dict[str, Any]] = _read(role / "meta" / "argument_specs.yml")["argument_specs"]
    first = {}
    for name, spec in specs.items():
        if spec["options"] not in [other["options"] for other in first.values()]:
            first[name] = spec
    return first


def role_page(role: Path) -> str:
    """The README of a role with a current table for each entry point.

    Raises ValueError where the README has no place for the table of an entry point, or one too many.
    """
    path = role / "README.md"
    text = path.read_text(encoding="utf-8")
    entries = entry_points(role)
    found = [match[2] for match in _TABLE.finditer(text)]
    if sorted(found) != sorted(entries):
        raise ValueError(
            f"{path.relative_to(CHECKOUT)}: has tables for {found}, and meta/argument_specs.yml the entry points "
            f"{list(entries)}. Write <!-- variables:NAME (make reference) --> and <!-- /variables:NAME --> for each."
        )
    return _TABLE.sub(lambda match: f"{match[1]}{variables(entries[match[2]]['options'])}{match[3]}", text)


def variables(options: dict[str, dict[str, Any]]) -> str:
    """The table of an entry point's variables."""
    rows = (f"| `{name}` | {_type(spec)} | {_default(spec)} | {_meaning(spec)} |\n" for name, spec in options.items())
    return f"\n| variable | type | default | meaning |\n|---|---|---|---|\n{''.join(rows)}\n"


def _type(spec: dict[str, Any]) -> str:
    kind = spec.get("type", "str")
    return f"{kind} of {spec['elements']}" if "elements" in spec else str(kind)


def _default(spec: dict[str, Any]) -> str:
    if spec.get("required"):
        return "**required**"
    default = spec.get("default")
    if default is None:
        return "none"
    if default == "":
        return "empty"
    if isinstance(default, str):
        return f"`{_escaped(default)}`"
    dumped = yaml.safe_dump(default, default_flow_style=True, width=1000)
    return f"`{_escaped(dumped.removesuffix(chr(10)).removesuffix('...').strip())}`"


def _escaped(code: str) -> str:
    return code.replace("|", "\\|")


def _meaning(spec: dict[str, Any]) -> str:
    text = markdown(spec["description"])
    if spec.get("choices"):
        text += f" One of {', '.join(f'`{choice}`' for choice in spec['choices'] if choice != '')}."
    if spec.get("options"):
        keys = (f"`{key}` ({_key(inner)}): {_meaning(inner)}" for key, inner in spec["options"].items())
        text += " Keys: " + " ".join(keys)
    return text


def _key(spec: dict[str, Any]) -> str:
    return f"{_type(spec)}, {_default(spec).strip('*')}"


def markdown(description: str | list[str]) -> str:
    """Ansible's markup as a cell of a Markdown table."""
    sentences = [description] if isinstance(description, str) else description
    text = " ".join(" ".join(sentence.split()) for sentence in sentences)
    parts = _CODE.split(_MARKUP.sub(_marked, text))
    return "".join(_escaped(part) if part.startswith("`") else _plain(part) for part in parts)


def _marked(match: re.Match[str]) -> str:
    kind, content = match[1], re.sub(r"\\(.)", r"\1", match[2])
    if kind == "B":
        return f"**{content}**"
    if kind in ("I", "U", "R"):
        return content.split(",")[0]
    if kind == "L":
        title, address = content.rsplit(",", 1)
        return f"[{title}]({address.strip()})"
    if kind == "P":
        return f"`{content.split('#')[0]}`"
    # An option or a return value of another plugin is written as PLUGIN#KIND:NAME.
    return f"`{content.rsplit(':', 1)[-1] if kind in ('O', 'RV') and '#' in content else content}`"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def playbooks() -> list[Playbook]:
    """All playbooks that a user runs."""
    return [playbook(path) for path in sorted(CHECKOUT.glob("playbooks/*.yml"))]


def playbook(path: Path) -> Playbook:
    """Read the header comment of a playbook.

    After `---` stand the description, then `Needed:` and `Optional:`, below each a line `NAME  MEANING` a variable.
    """
    lines = path.read_text(encoding="utf-8").split("\n---\n", 1)[1].splitlines()
    header = []
    for line in lines:
        if not line.startswith("#"):
            break
        header.append(line)
    sections: dict[str, dict[str, str]] = {"Needed": {}, "Optional": {}}
    description: list[str] = []
    more: list[str] = []
    section = scope = ""
    for line in header:
        text = line[1:].strip()
        heading = re.match(r"^(Needed|Optional)\b(.*)", text)
        variable = _VARIABLE.match(line)
        if heading:
            section = heading[1]
            scope = " (a variable of each tray)" if "each tray" in heading[2] else ""
            if section == "Optional" and not scope:
                more.append(heading[2].strip(" :,").removesuffix(", and"))
        elif section and variable:
            sections[section].update(dict.fromkeys(variable[1].split(", "), variable[2] + scope))
        elif section and line.startswith("#    ") and sections[section]:
            last = list(sections[section])[-1]
            sections[section][last] += f" {text}"
        elif not section and text:
            description.append(text)
    return Playbook(
        path.stem, " ".join(description), sections["Needed"], sections["Optional"], " ".join(filter(None, more))
    )


@functools.cache
def documentation(path: Path) -> dict[str, Any]:
    """What a plugin documents of itself."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DOCUMENTATION":
            found: dict[str, Any] = yaml.load(ast.literal_eval(node.value), Loader=yaml.CSafeLoader)
            return found
    raise ValueError(f"{path}: has no DOCUMENTATION.")


def plugins(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and documentation of all plugins of a kind, as modules, lookup."""
    for path in sorted((CHECKOUT / "plugins" / kind).glob("*.py")):
        if path.stem != "__init__":
            yield path.stem, documentation(path)


def internal_modules() -> set[str]:
    """The modules that roles alone use."""
    return {name for name, documented in plugins("modules") if documented["short_description"].startswith(INTERNAL)}


def reference() -> str:
    """The page of all playbooks, roles and plugins."""
    return f"{_HEAD}{''.join(_playbook_sections())}{_role_section()}{_plugin_section()}"


def _playbook_sections() -> Iterator[str]:
    yield (
        "\n## Playbooks\n\nRun each as `ansible-playbook -i INVENTORY rackscale.nvlink.NAME`."
        " Each supports `--check` and `--diff`, and a second run changes nothing."
        " In the tables, the default follows the semicolon.\n\n"
        "Each checks its variables before it asks a host. An extra variable (`-e`) that nothing reads fails the run"
        " where it is within two edits of a known one (one edit if it has up to ten letters and the known one has a"
        " prefix that others use too), or where only this collection uses its prefix; in the inventory it is a warning."
        " A value of a wrong type, that is none of the choices or has an unknown key fails the run.\n"
    )
    for one in playbooks():
        yield f"\n### {one.name}\n\n{markdown(one.description)}\n"
        rows = [(name, "required", text) for name, text in one.required.items()]
        rows += [(name, "", text) for name, text in one.optional.items()]
        if rows:
            yield "\n| variable | required | meaning |\n|---|---|---|\n"
            yield from (f"| `{name}` | {needed} | {markdown(text)} |\n" for name, needed, text in rows)
        if one.more:
            yield f"\nAlso accepted: {one.more}.\n"


def _role_section() -> str:
    rows = []
    for role in roles():
        for name, spec in entry_points(role).items():
            link = f"[`{role.name}`](../roles/{role.name}/README.md)"
            rows.append(f"| {link} | `{name}` | {markdown(spec['short_description'])} |\n")
    return f"\n## Roles\n\n| role | entry point | what it does |\n|---|---|---|\n{''.join(rows)}"


def _plugin_section() -> str:
    groups = _read(CHECKOUT / "meta" / "runtime.yml")["action_groups"]
    rows = []
    for name, documented in plugins("modules"):
        if not documented["short_description"].startswith(INTERNAL):
            places = [place for group, place in RUNS_ON.items() if name in groups[group]] or ["Ansible controller"]
            rows.append(f"| `{name}` | {', '.join(places)} | {markdown(documented['short_description'])} |\n")
    text = f"\n## Modules\n\n| module | runs on | what it does |\n|---|---|---|\n{''.join(rows)}"
    others = [
        f"| `{name}` | {kind} | {markdown(documented['short_description'])} |\n"
        for kind in ("inventory", "lookup", "callback")
        for name, documented in plugins(kind)
    ]
    return f"{text}\n## Other plugins\n\n| plugin | kind | what it does |\n|---|---|---|\n{''.join(others)}"


if __name__ == "__main__":
    for generated, content in pages().items():
        generated.write_text(content, encoding="utf-8")
