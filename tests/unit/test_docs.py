# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The README is short and shows real files, and what the pages on design and security name exists."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Placement, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import (
    partition_plan,
    partition_review,
    places,
    wish,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import domain_map, slurm_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import spans
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import simulation

CHECKOUT = Path(__file__).resolve().parents[2]
README = CHECKOUT / "README.md"
_STEP = re.compile(r"`((?:plugins|roles|playbooks)/[\w/.]+)`(?:, `(\w[\w.]*)\(\)`)?")


def definitions(path: Path) -> set[str]:
    """The functions of a Python file, methods as Class.method."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def test_the_readme_is_short_and_its_commands_fit_a_terminal() -> None:
    text = README.read_text("utf-8")
    assert len(text.split()) <= 700
    assert [line for line in text.splitlines() if line.startswith("    ") and len(line) > 80] == []


def test_the_readme_has_the_order_of_certified_collections_and_links_that_work_on_a_hub() -> None:
    text = README.read_text("utf-8")
    first = ["Description", "Requirements", "Installation", "Use cases", "Testing", "Support"]
    order = [*first, "Release notes", "Related information", "License"]
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == order
    assert [link for link in re.findall(r"\]\((.*?)\)", text) if not link.startswith("https://")] == []
    screen = "\n".join(text.splitlines()[:45])
    assert all(shown in screen for shown in ("BlockSizes=17", "make demo", "nvidia.nvlink"))


def test_the_picture_of_blocks_shows_what_jobs_may_span() -> None:
    picture = (CHECKOUT / "docs" / "blocks.svg").read_text("utf-8")
    (whole,) = spans.spans([18] * 3, [18], [36])
    small, large = spans.spans([17] * 3, [18], [32, 36])
    assert (whole.starts, large.starts) == (True, False)
    assert f"{whole.nodes} / 18 = {whole.allowed} blocks allowed" in picture
    assert f"{large.allowed} blocks allowed, in which {large.allowed * 17} are free" in picture
    assert all(f"--nodes={row.nodes} --segment={row.segment}<" in picture for row in (small, large))


def observed(down: list[str], before: Placement | None = None) -> Placement:
    """Three simulated racks: new places from what answers, or with the accepted places of an earlier discovery."""
    now = "2026-11-26T05:00:00Z"
    options = {"racks": 3, "trays_per_rack": 18, "gpus_per_tray": 4, "seed": 1, "faults": {"down": down}}
    rows = simulation.discover(options, now).observations
    earlier = (before.fabric, before.state) if before else (None, None)
    return place(*earlier, rows, now, Policy())


def test_the_readme_shows_the_files_that_the_renderers_write() -> None:
    accepted = observed([])
    for down in (["r01t07"], [f"r01t{tray:02d}" for tray in range(1, 19)]):
        generated, kept = (
            slurm_files.render(placed.fabric, placed.state)["slurm/topology.conf"].splitlines()[1:]
            for placed in (observed(down), observed(down, accepted))
        )
        rows = zip_longest(generated, kept, fillvalue="")
        assert "".join(f"    {left:39}{right}\n" for left, right in rows) in README.read_text("utf-8")
        assert kept == slurm_files.render(accepted.fabric, accepted.state)["slurm/topology.conf"].splitlines()[1:]


def test_the_page_of_partitions_shows_the_plan_of_a_split() -> None:
    now = "2026-11-26T05:00:00Z"
    options = {"racks": 2, "trays_per_rack": 18, "gpus_per_tray": 4, "seed": 1, "faults": {}}
    rows = simulation.discover(options, now).observations
    trays = [row.tray for row in rows]
    accepted = place(None, None, rows, now, Policy())
    known = {
        tray: [places.Gpu((nvue.uid(slot * 4 + gpu),), f"{slot}.1.{gpu}") for gpu in range(4)]
        for slot, tray in enumerate(trays[:18], 1)
    }
    gpus = tuple(nvue.Gpu(f"1.{gpu.place}", gpu.ids[0]) for tray in known.values() for gpu in tray)
    default = nvue.Partition(places.DEFAULT_CLIQUE, "Default Partition", "healthy", "full_bandwidth", 1024, gpus)
    observed_now = {row.tray: row.identity for row in rows}
    seen = partition_plan.Seen([default], places.locate(known, [default]), observed_now)
    wanted = wish.parse({"r01": "2x9"}, accepted.fabric)["r01"]
    plan, objections = partition_plan.make("r01", wanted, accepted.fabric, seen, (), ())
    moved = [
        replace(row, identity=(row.identity[0], plan["clique_ids"].get(row.tray, row.identity[1])))
        for row in rows
        if row.identity
    ]
    placement = place(accepted.fabric, accepted.state, moved, now, Policy())
    planned = placement.fabric
    plan, more = partition_plan.named(plan, wanted, planned)
    assert [*objections, *more] == []
    lines = domain_map.change_map(accepted.fabric, planned, accepted.state)
    lines += partition_plan.text(plan, accepted.fabric, planned, seen)
    lines += map(partition_review.accepted_line, placement.objections)
    page = (CHECKOUT / "docs" / "day-two" / "partition.md").read_text("utf-8")
    [shown] = re.findall(r"```text\n(.*)SHA-256 of this plan: \.\.\.\n```", page, re.DOTALL)
    start, end = shown.split("...\n")
    text = "\n".join(lines) + "\n"
    assert text.startswith(start)
    assert text.endswith(end)


def test_the_design_names_files_and_functions_that_exist() -> None:
    page = CHECKOUT / "docs" / "contributing" / "design.md"
    text = page.read_text(encoding="utf-8")
    steps = _STEP.findall(text)
    assert len([function for _path, function in steps if function]) >= 25
    for what, most in (("one clique ID", 24), ("one address", 20), ("a failing tray", 8)):
        walk = text.partition(f"\n## Follow {what} ")[2].partition("\n## ")[0]
        assert 5 <= len({path for path, _function in _STEP.findall(walk)}) <= most
    missing = [path for path, _function in steps if not (CHECKOUT / path).exists()]
    missing += [
        f"{path}: {function}"
        for path, function in steps
        if function and (CHECKOUT / path).exists() and function not in definitions(CHECKOUT / path)
    ]
    assert missing == []


def test_every_test_that_a_page_names_exists() -> None:
    """A page names a test by the end of its path, as in `imex/test_boot.py::test_x`."""
    files = {f"/{path.relative_to(CHECKOUT)}": definitions(path) for path in CHECKOUT.glob("tests/**/test_*.py")}
    page = (CHECKOUT / "docs" / "contributing" / "security.md").read_text("utf-8")
    named = re.findall(r"`((?:\w+/)*test_\w+\.py)::(\w+)`", page)
    assert len(named) > 50
    found = {(path, test): [f for f in files if f.endswith(f"/{path}") and test in files[f]] for path, test in named}
    assert [f"{path}::{test}" for (path, test), places in found.items() if not places] == []
