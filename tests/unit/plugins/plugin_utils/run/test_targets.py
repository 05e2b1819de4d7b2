# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tags, limits, patterns and trays that do not exist; the stories of mistakes have more of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import targets
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import CHECKS, PATTERNS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.targets import Run
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

CHECKOUT = Path(__file__).resolve().parents[5]
PLAYBOOKS = CHECKOUT / "playbooks"
WITHOUT_VARIABLE = (
    "localhost",
    "localhost:all",
    "nvlink_partition",
    "nvlink_partition_asked",
    "nvlink_repair",
    "nvlink_repair_spare",
    "nvlink_rollout",
)
GROUPS = {
    "all": ["ctl", "r01t01", "r01t02"],
    "slurm_controller": ["ctl"],
    "nvlink": ["r01t01", "r01t02"],
    "nvlink_unhealthy": [],
}


def run(limit: str = "", selected: Sequence[str] = ("ctl", "r01t01", "r01t02")) -> Run:
    def match(pattern: str) -> Sequence[str]:
        return GROUPS.get(pattern, [pattern] if pattern in GROUPS["all"] else [])

    return Run(GROUPS, selected, limit, match)


def test_a_tray_named_like_a_group_of_any_source_stops_the_run() -> None:
    groups = {
        **GROUPS,
        "all": [*GROUPS["all"], "head", "spare", "nvlink_clique_r01", "own"],
        "nvlink": ["r01t01", "head"],
        "nvlink_unplaced": ["spare"],
        **{name: ["ctl"] for name in ("head", "spare", "nvlink_clique_r01", "own")},
    }
    found = list(targets.named_like_groups(Run(groups, (), "", lambda _pattern: ()), "/srv/fabric.json"))
    # A site may name a host of its own like a group.
    assert [text.split()[2] for text in found] == ["head", "nvlink_clique_r01", "spare"]
    assert found[0] == "/srv/fabric.json: tray head has the name of a group of the inventory; rename it there"


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _tags(entries: list[dict[str, Any]], folder: Path) -> Iterator[str]:
    """The tags of plays and tasks, and of the playbooks and roles that they import."""
    for entry in entries:
        yield from entry.get("tags", ())
        for word in ("tasks", "block", "rescue", "always"):
            yield from _tags(entry.get(word, []), folder)
        # Not of an included role, which runs only where its own task is selected.
        if "ansible.builtin.import_role" in entry:
            given = entry["ansible.builtin.import_role"]
            role = CHECKOUT / "roles" / given["name"].rpartition(".")[2]
            yield from _tags(_read(role / f"tasks/{given.get('tasks_from', 'main')}.yml"), role / "tasks")
        imported = entry.get("ansible.builtin.import_playbook") or entry.get("ansible.builtin.import_tasks", "")
        # Another playbook has a table of its own.
        if "/" in imported:
            yield from _tags(_read(PLAYBOOKS / imported), PLAYBOOKS)


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_the_table_has_the_tags_of_each_playbook(path: Path) -> None:
    found = set(_tags(_read(path), PLAYBOOKS / path.stem)) - {"always", "never"}
    assert set(targets.TAGS.get(path.stem, ())) == found


def test_each_playbook_begins_with_the_check_under_any_tag() -> None:
    for path in PLAYBOOKS.glob("*.yml"):
        first = _read(path)[0]
        assert first["ansible.builtin.import_playbook"] == "phases/check.yml"
        assert first["vars"]["run_playbook"] == path.stem
    (play,) = _read(PLAYBOOKS / "phases/check.yml")
    assert play["tags"] == ["always"]
    # Ansible reports a task that runs once for the first host.
    assert play["hosts"] == "localhost:all"
    assert play["tasks"][0]["run_once"] is True


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("**/*.yml")), ids=lambda path: path.stem)
def test_the_hosts_of_a_play_are_a_group_or_a_variable_with_one_as_default(path: Path) -> None:
    """No expression: a play that does not apply ends itself."""
    known = {f"{{{{ {name} | default('{pattern}') }}}}" for name, pattern in PATTERNS.items()}
    assert {play["hosts"] for play in _read(path) if "hosts" in play} <= {*known, *WITHOUT_VARIABLE}


def test_playbooks_of_this_collection_are_known_by_name_and_by_path(tmp_path: Path) -> None:
    folder = str(PLAYBOOKS)
    assert targets.own_playbooks(["rackscale.nvlink.site", f"{folder}/drain.yml"], folder) == ["site", "drain"]
    (tmp_path / "link").symlink_to(PLAYBOOKS)
    assert targets.own_playbooks([f"{tmp_path}/link/site.yml"], folder) == ["site"]
    assert targets.own_playbooks(["rackscale.nvlink.site", "mine.yml"], folder) is None
    assert targets.own_playbooks([], folder) is None


@pytest.mark.parametrize(
    ("playbooks", "tag", "expected"),
    [
        (["verify"], "x", ["--tags: 'x' is no tag of the playbook verify; use one of trays, quick, benchmark"]),
        (["imex"], "imex", ["--tags: the playbook imex has no tags; leave --tags out"]),
        (["drain", "verify"], "quick", []),
        (["drain"], "all", []),
        # Of a site's own playbook.
        (None, "discovr", ["--tags: 'discovr' is no tag of rackscale.nvlink; did you mean discover?"]),
        (None, "storage", []),
    ],
)
def test_a_tag(playbooks: list[str] | None, tag: str, expected: list[str]) -> None:
    assert list(targets.wrong_tags(playbooks, {"--tags": [tag]})) == expected


def test_a_part_runs_alone_and_its_variables_need_its_tag() -> None:
    def wrong(playbooks: list[str] | None, tags: list[str], skip: list[str], extra: list[str]) -> list[str]:
        return list(targets.wrong_parts(playbooks, {"--tags": tags, "--skip-tags": skip}, extra))

    assert wrong(["drain"], ["spares"], [], ["spares_active"]) == []
    assert "only --tags spares reads it; add the tag" in wrong(["drain"], [], [], ["spares_active"])[0]
    assert wrong(["drain"], ["spares"], [], ["drain_trays", "spares_active"]) == [
        "drain_trays: --tags spares does not read it; leave the tag or drain_trays out"
    ]
    assert wrong(None, ["spares"], [], ["drain_trays"]) == []
    for tags, skip in ((["spares", "all"], []), (["spares"], ["never"])):
        assert wrong(["drain"], tags, skip, []) == [
            "--tags: spares runs alone; leave the other tags and --skip-tags out"
        ]
    # Another playbook does not have the part, and a site's own may have any.
    assert wrong(["slurm"], [], [], ["spares_active"]) == wrong(None, [], [], ["spares_active"]) == []


FABRIC = fabrics.fabric(racks=2, trays=2, split=())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            lambda: targets.wrong_limit(run(), ["storage"], localhost=False),
            "--limit: 'storage' matches no host of the in",
        ),
        (lambda: targets.wrong_limit(run(), ["r01t01"], localhost=False), ""),
        # No tray may be unhealthy just now, and no group be there for those that are excluded.
        (lambda: targets.wrong_limit(run(), ["nvlink_unhealthy"], localhost=False), ""),
        (lambda: targets.wrong_limit(run(), ["@hosts.retry"], localhost=False), ""),
        (lambda: targets.wrong_pattern(run(), "imex_hosts", None, True), ""),
        (lambda: targets.wrong_pattern(run(), "slurm_controller_hosts", "ctl", True), ""),
        (
            lambda: targets.wrong_pattern(run("r01t01", ["r01t01"]), "slurm_controller_hosts", "ctl", True),
            "--limit r01t01: leaves no host of slurm_controller_hosts (ctl); add one: --limit r01t01,ctl",
        ),
        (lambda: targets.wrong_pattern(run("r01t01", ["r01t01"]), "slurm_controller_hosts", None, False), ""),
        (
            lambda: targets.wrong_pattern(run(), "verify_hosts", "nvlink_unhealthy", False),
            "verify_hosts: 'nvlink_unhealthy' matches no host",
        ),
        (lambda: targets.wrong_trays(run(), FABRIC, "drain_trays", "r01t[01-02],r02", True), ""),
        (lambda: targets.wrong_trays(run(), FABRIC, "drain_trays", ["r01t01", "r02"], True), ""),
        (lambda: targets.wrong_trays(run(), FABRIC, "drain_trays", None, True), ""),
        (
            lambda: targets.wrong_trays(run(), FABRIC, "drain_trays", "ctl", True),
            "drain_trays: 'ctl' is no tray, clique or domain of the fabric file; check the name",
        ),
        (lambda: targets.wrong_trays(run(), FABRIC, "drain_trays", ",", True), "drain_trays: ',' names no tray"),
        (
            lambda: targets.wrong_trays(run(), FABRIC, "drain_trays", "r[", True),
            "drain_trays: The hostlist 'r[' has a bracket that is not closed, or one inside another: write flat"
            " ranges, as r[01-18]",
        ),
        (lambda: targets.wrong_pairs("edit_rename", None), ""),
        (lambda: targets.wrong_pairs("edit_rename", "r01t03:tray3, r01t04:tray4"), ""),
        (lambda: targets.wrong_pairs("edit_rename", "r01t03"), "edit_rename: 'r01t03' is not OLD:NEW; write such as "),
        (lambda: targets.wrong_pairs("edit_rename", "a:b,a:c"), "edit_rename: 'a' is renamed twice; name it once"),
    ],
)
def test_a_limit_a_pattern_trays_and_pairs(found: Callable[[], str | Iterator[str]], expected: str) -> None:
    text = "".join(found())
    assert text.startswith(expected)
    assert bool(text) == bool(expected)


def test_a_switch_is_no_tray_and_in_no_pattern_of_trays() -> None:
    groups = {**GROUPS, "all": [*GROUPS["all"], "sw1", "sw2"], "nvlink_switches": ["sw1", "sw2"]}
    made = Run(groups, groups["all"], "", lambda pattern: groups.get(pattern, []))
    assert made.hosts == ["ctl", "r01t01", "r01t02"]
    assert targets.wrong_pattern(made, "fabric_hosts", "nvlink", in_run=True) == ""
    assert targets.wrong_pattern(made, "fabric_hosts", "all", in_run=True) == (
        "fabric_hosts: 'all' has sw1 of the group nvlink_switches, to which Ansible does not connect;"
        " write all:!nvlink_switches"
    )


def test_a_run_that_changes_whole_domains_refuses_a_limit() -> None:
    check = CHECKS["partition"]
    assert check.files == ["verdict_file"]
    sentence = next(targets.problems(check, run("localhost,r01t01"), lambda _host, _name: None, (), False))
    assert sentence.startswith("--limit localhost,r01t01: this playbook needs all controllers and trays")
    found = targets.problems(check, run(), lambda _host, _name: None, (), False)
    assert [text for text in found if "--limit" in text] == []


def test_a_variable_that_trays_have_and_localhost_reads_is_found_there() -> None:
    def found(name: str) -> str:
        check = replace(CHECKS["partition"], fabric_variable="")
        return next(filter(None, targets.problems(check, run(), lambda host, _name: host == name, (), False)))

    assert found("").startswith("nvlink_partitions: is not set; add -e ")
    assert found("r01t01") == f"{found('')}, or move it from r01t01 to the group all, since localhost reads it"
