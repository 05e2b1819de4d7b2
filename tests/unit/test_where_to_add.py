# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of "Where to add things" in CONTRIBUTING.md: what is added in one place alone fails with the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.inventory import fabric as inventory
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources, verify
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import products
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE, LAYERS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques, objects
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.topology import KINDS
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

ROOT = Path(__file__).resolve().parents[2]
UTILS, UNIT = ROOT / "plugins/plugin_utils", ROOT / "tests/unit"
FORMS: dict[str, dict[str, Any]] = yaml.safe_load((UNIT / "fixtures/schedulers.yml").read_text())
PAIR = fabrics.fabric(racks=2, trays=2)


def read(*path: str) -> str:
    return (ROOT / Path(*path)).read_text(encoding="utf-8")


def stems(folder: Path, suffix: str) -> set[str]:
    return {path.name.removesuffix(suffix) for path in folder.glob(f"[!_]*{suffix}")}


def differences(form: Any, value: Any, where: str = "") -> Iterator[str]:
    """What a form of fixtures/schedulers.yml does not allow. A text of it is a pattern, null stands for any value."""
    if isinstance(form, Mapping):
        if not isinstance(value, Mapping):
            yield f"{where} is {value!r}, not a mapping"
            return
        known = {key.rstrip("?"): inner for key, inner in form.items()}
        yield from (f"{where}.{key} is missing" for key in form if key[-1] not in "?*" and key not in value)
        for key, item in value.items():
            if key in known or "*" in known:
                yield from differences(known.get(key, known.get("*")), item, f"{where}.{key}")
            else:
                yield f"{where}.{key} is unknown"
    elif isinstance(form, list):
        if not isinstance(value, list) or not value:
            yield f"{where} is {value!r}, not a list"
            return
        for number, item in enumerate(value):
            yield from differences(form[0], item, f"{where}[{number}]")
    elif form is not None and not (
        isinstance(value, type(form)) and (not isinstance(form, str) or re.search(form, value))
    ):
        yield f"{where} is {value!r}, not {form!r}"


def of_scheduler(name: str) -> Iterator[str]:
    """What a scheduler lacks."""
    if name not in stems(objects.TEMPLATES / "schedulers", ".yaml.j2"):
        yield f"write roles/k8s_topology/templates/schedulers/{name}.yaml.j2"
        return
    if name not in objects.SCHEDULERS:
        yield "write its name into SCHEDULERS of plugins/plugin_utils/kubernetes/objects.py"
        return
    rows = "".join(line for line in read("docs/k8s-topology.md").lower().splitlines() if line.startswith("|"))
    if name.replace("-", "") not in {word.replace("-", "") for word in re.findall("[a-z0-9-]+", rows)}:
        yield f"write a row on {name} into docs/k8s-topology.md"
    made = objects.made(name, cliques.describe(PAIR), "00000000-0000-4000-8000-000000000000")
    for group, versions, kind, _plural in KINDS.get(name, ()):
        if f"{group}/{versions[0]} {kind}" not in FORMS.get(name, {}):
            yield f"KINDS has {kind} of {group}; write its form into tests/unit/fixtures/schedulers.yml"
    if not made:
        yield "its template renders no object"
    for row in made:
        if not isinstance(row, dict):
            yield f"its template renders {row!r}, not an object"
            continue
        kind = f"{row['apiVersion']} {row.get('kind')}" if "apiVersion" in row else "part"
        form = FORMS.get(name, {}).get(kind)
        if form is None:
            yield f"it renders {kind}; write the form of this kind's CRD into tests/unit/fixtures/schedulers.yml"
        else:
            rest = {key: item for key, item in row.items() if key not in ("apiVersion", "kind", "metadata")}
            yield from (f"not valid for the CRD of {kind}: {what}" for what in differences(form, rest))


@pytest.mark.parametrize(
    "name", sorted({*objects.SCHEDULERS, *KINDS, *FORMS, *stems(objects.TEMPLATES / "schedulers", ".yaml.j2")})
)
def test_a_scheduler_is_complete_and_its_objects_are_valid(name: str) -> None:
    assert list(of_scheduler(name)) == [], f"scheduler {name}"


@pytest.mark.parametrize("path", ["plugins/modules/k8s_topology.py", "roles/k8s_topology/meta/argument_specs.yml"])
def test_a_scheduler_that_is_applied_is_among_the_choices(path: str) -> None:
    choices = re.search(r"choices: (\[.*auto, kai,.*\])", read(path))
    assert choices
    assert {*yaml.safe_load(choices[1])} - {"", "auto"} == {*KINDS}, f"choices in {path} are not those of KINDS"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"levels": [{"nodelabel": "a"}]}, ".spec.levels[0].nodeLabel is missing"),
        ({"levels": [{"nodeLabel": "a b"}]}, ".spec.levels[0].nodeLabel is 'a b'"),
        ({"levels": [], "x": 1}, ".spec.levels is [], not a list"),
        ("garbage", ".spec is 'garbage', not a mapping"),
    ],
)
def test_an_object_that_its_crd_refuses_is_found(change: Any, what: str) -> None:
    form = FORMS["kueue"]["kueue.x-k8s.io/v1beta2 Topology"]
    assert next(differences(form, {"spec": change})).startswith(what)


def with_function(folder: Path, function: str) -> set[str]:
    """The modules of a folder that define a function."""
    return {path.stem for path in folder.glob("*.py") if f"\ndef {function}(" in path.read_text()}


def of_source(name: str) -> Iterator[str]:
    path = UTILS / "sources" / f"{name}.py"
    if not path.is_file() or "\ndef discover(" not in path.read_text():
        yield f"write discover() in plugins/plugin_utils/sources/{name}.py"
    if name not in sources.LIVE:
        yield "write its name into LIVE of plugins/plugin_utils/sources/__init__.py"
    if name not in yaml.safe_load(inventory.DOCUMENTATION)["options"] and not re.search(
        rf"source_{name}\b", inventory.DOCUMENTATION
    ):
        yield f"document the option {name} in plugins/inventory/fabric.py"
    if not any(name in row["sources"] for row in yaml.safe_load_all(inventory.EXAMPLES)):
        yield "write an example into EXAMPLES of plugins/inventory/fabric.py"
    if not any(re.search(rf"^## {name}$|`{name}`", page.read_text(), re.M) for page in ROOT.glob("docs/*.md")):
        yield f"write a section `## {name}` into docs/sources.md"
    if not any(UNIT.glob(f"plugins/plugin_utils/**/test_{name}.py")):
        yield f"write tests/unit/plugins/plugin_utils/sources/test_{name}.py"


@pytest.mark.parametrize("name", sorted({*sources.LIVE, *with_function(UTILS / "sources", "discover")}))
def test_a_source_is_complete(name: str) -> None:
    assert list(of_source(name)) == [], f"source {name}"


def calls(*functions: str) -> Iterator[tuple[str, str, str]]:
    """(place, code, case) of each finding that is written with both as text."""
    for path in sorted(ROOT.glob("plugins/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and name in functions and node.args:
                texts = [row.value if isinstance(row, ast.Constant) else "" for row in node.args[:2]]
                if isinstance(texts[0], str) and texts[0]:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", texts[0], "".join(map(str, texts[1:]))


FOUND = ("finding", "host_finding", "gpu_finding", "fail")


def test_a_finding_has_its_entry_in_the_table() -> None:
    missing = [
        f"{place}: write an entry {code} into TABLE of plugins/plugin_utils/findings/table.py"
        for place, code, _case in calls(*FOUND)
        if code not in CATALOGUE
    ]
    assert missing == []


def test_a_finding_of_the_table_is_found_by_somebody_and_tested() -> None:
    words = {word for path in ROOT.glob("plugins/**/*.py") if path.name != "table.py" for word in quoted(path)}
    tests = [path for path in ROOT.glob("tests/**/*.py") if path.name != "faults.py"]
    tested, texts = {word for path in tests for word in quoted(path)}, "".join(path.read_text() for path in tests)
    missing = [f"{code}: nothing in plugins/ finds it" for code in CATALOGUE if code not in words]
    for code in sorted({*CATALOGUE} & words - tested):
        # Or a test that reads the beginning of its sentence.
        if not any(text.partition("{")[0] in texts for text in CATALOGUE[code].messages.values() if text[0] != "{"):
            missing.append(f"{code}: write a test that finds it")
    assert missing == []


def quoted(path: Path) -> set[str]:
    return set(re.findall(r"[\"']([a-z][a-z0-9_]+)[\"'.]", path.read_text()))


CHECKS = {check.__module__.rpartition(".")[2]: layer for layer, check in verify.CHECKS}


@pytest.mark.parametrize("name", sorted({*CHECKS, *with_function(UTILS / "verify", "check")}))
def test_a_check_of_verify_is_complete(name: str) -> None:
    missing = []
    if name not in CHECKS:
        missing.append("write a row into CHECKS of plugins/plugin_utils/verify/__init__.py")
    elif CHECKS[name] not in LAYERS:
        missing.append(f"write {CHECKS[name]} into LAYERS of plugins/plugin_utils/findings/table.py")
    elif not re.search(rf"^\| `{CHECKS[name]}` \|", read("docs/verify.md"), re.M):
        missing.append(f"write a row `{CHECKS[name]}` into the table of layers in docs/verify.md")
    tested = {word for path in UNIT.glob("plugins/plugin_utils/verify/*.py") for word in quoted(path)}
    codes = quoted(UTILS / "verify" / f"{name}.py") & {*CATALOGUE}
    if not codes:
        missing.append("let it yield failures with a code of the table of findings")
    elif not codes & tested:
        missing.append(f"write a sick system with one of {sorted(codes)} in tests/unit/plugins/plugin_utils/verify/")
    assert missing == [], f"check {name}"


@pytest.mark.parametrize("name", products.PRODUCTS)
def test_a_product_is_complete(name: str) -> None:
    product = products.PRODUCTS[name]
    assert products.of(f"NVIDIA {name}") == product, f"{name}: an earlier row of PRODUCTS has a part of this name"
    assert all(number > 0 for number in product), f"{name}: a number is missing in its row of PRODUCTS"
    assert product.below <= product.trays, f"{name}: below counts trays of the rack"
    same = products.switch_trays(product.trays) == (product.below, product.switches)
    assert same, (
        f"{name}: an earlier row of PRODUCTS has as many trays and other switch trays; let switch_trays() decide"
    )
    row = f"| {name} | {product.links} | {product.speed} | {product.gpus} | {product.trays} | {product.switches} |"
    assert row in read("docs/contributing/hardware.md"), f"write the row {row} into docs/contributing/hardware.md"
