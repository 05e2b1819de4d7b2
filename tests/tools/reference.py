# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/reference.md; `make reference` runs it.

The sources are the argument_specs of playbooks and roles, the header comments of playbooks and the documentation of
plugins. A module whose short description begins with [INTERNAL] is left out.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import specifications

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "reference.md"
INTERNAL = "[INTERNAL]"
RUNS_ON = {"slurm": "Slurm controller", "tray": "trays"}

_HEAD = """\
<!-- Written by make reference from playbooks, argument_specs and plugins; change it there. -->

# Reference: playbooks, roles and plugins

`ansible-doc rackscale.nvlink.NAME` prints every option and return value of a module, with `-t inventory`, `-t lookup`,
`-t callback` or `-t role` those of another plugin or a role. `make docs` builds the same as a site.
"""
_MARKUP = re.compile(r"\b([BCIMOPVELRU]|RV)\(((?:[^()\\]|\\.)*)\)")
_CODE = re.compile(r"(`[^`]*`)")


class Playbook(NamedTuple):
    """What the header comment of a playbook and its argument specification tell: its variables with their meaning."""

    name: str
    description: str
    required: dict[str, str]
    optional: dict[str, str]
    more: str


@functools.cache
def _read(path: Path, loader: Any = yaml.CSafeLoader) -> Any:
    """The content of a YAML file; not to be changed, since it is read once."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


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


def _escaped(code: str) -> str:
    return code.replace("|", "\\|")


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
    """The first paragraph of a playbook's header comment, below `---`, and its variables in argument_specs.yml."""
    header = path.read_text(encoding="utf-8").split("\n---\n", 1)[1].split("\n#\n", 1)[0]
    options = _read(path.parent / "files" / "argument_specs.yml")["argument_specs"][path.stem]["options"]
    needed = {name: spec["description"] for name, spec in options.items() if spec.get("required")}
    others = {name: spec["description"] for name, spec in options.items() if name not in needed}
    text = " ".join(line.removeprefix("#").strip() for line in header.splitlines())
    return Playbook(path.stem, text, needed, others, _variables_of(specifications.runs(path.stem)[1:]))


def _variables_of(owners: list[str]) -> str:
    """`the variables of the playbooks a and b, and of the role c` of playbooks/a, playbooks/b and roles/c."""
    parts = []
    for folder in ("playbooks", "roles"):
        names = sorted(Path(owner).name for owner in owners if Path(owner).parent.name == folder)
        kind = folder if names[1:] else folder.removesuffix("s")
        listed = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
        parts += [f"of the {kind} {listed}"] if names else []
    return f"the variables {', and '.join(parts)}" if parts else ""


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
    return f"{_HEAD}{''.join(_playbook_sections())}{''.join(_role_sections())}{_plugin_section()}"


def _playbook_sections() -> Iterator[str]:
    yield (
        "\n## Playbooks\n\nRun each as `ansible-playbook -i INVENTORY rackscale.nvlink.NAME`."
        " Each supports `--check` and `--diff`, and a second run changes nothing."
        " In the tables, the default follows the semicolon.\n\n"
        "Each checks its variables before it asks a host. An extra variable (`-e`) that nothing reads fails the run"
        " where it is similar to a known one, or where only this collection uses its prefix; in the inventory it is a"
        " warning."
        " A value of a wrong type, a negative number, and a value that is none of the choices or has an unknown key"
        " fail the run.\n"
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


def _role_sections() -> Iterator[str]:
    yield "\n## Roles\n"
    for role in roles():
        for name, spec in entry_points(role).items():
            entry = "" if name == "main" else f", tasks_from: {name}"
            yield f"\n### Role {role.name}{entry}\n\n"
            yield f"{markdown(spec['short_description'])}; see its [README](../roles/{role.name}/README.md).\n"
            yield "\n| variable | default | meaning |\n|---|---|---|\n"
            for variable, option in spec["options"].items():
                yield f"| `{variable}` | {_default(option)} | {_meaning(option)} |\n"


def _default(option: dict[str, Any]) -> str:
    if option.get("required"):
        return "**required**"
    default = option.get("default")
    if default is None or default == "":
        return ""
    dumped = default if isinstance(default, str) else json.dumps(default)
    return f"`{_escaped(dumped)}`"


def _meaning(option: dict[str, Any]) -> str:
    text = markdown(option["description"])
    if option.get("choices"):
        text += f" One of {', '.join(f'`{choice}`' for choice in option['choices'] if choice != '')}."
    if option.get("options"):
        text += " Keys: " + " ".join(f"`{key}`: {_meaning(inner)}" for key, inner in option["options"].items())
    return text


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
    PAGE.write_text(reference(), encoding="utf-8")
