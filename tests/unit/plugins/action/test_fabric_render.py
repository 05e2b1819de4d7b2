# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.rackscale.nvlink.plugins.action.fabric_render import ActionModule
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, proposal
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics


class Bench:
    """A fabric file, its state and a directory to render to."""

    def __init__(self, tmp_path: Path, run_action: Callable[..., dict[str, Any]]) -> None:
        self.file = tmp_path / "fabric.json"
        self.out = tmp_path / "out"
        self._run_action = run_action
        self.fabric = fabrics.fabric()

    def write(self) -> None:
        self.file.write_bytes(fabric_file.serialise(self.fabric))

    def empty(self, clique: str) -> None:
        """Write the fabric file with the trays of a split rack's clique in the other one."""
        for name in self.fabric.members[clique]:
            # The fabric is read-only to the product; here it is bent before it is written.
            self.fabric.trays[name]["clique"] = "r02b"  # type: ignore[index]
        self.write()

    def render(self, **more: Any) -> dict[str, Any]:
        return self._run_action(ActionModule, **{"fabric_file": str(self.file), "render_dir": str(self.out), **more})

    def tree(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.out)): path.read_bytes() for path in self.out.rglob("*") if path.is_file()}


@pytest.fixture
def bench(tmp_path: Path, run_action: Callable[..., dict[str, Any]]) -> Bench:
    built = Bench(tmp_path, run_action)
    built.write()
    return built


def test_renders_once_and_then_changes_nothing(bench: Bench) -> None:
    first = bench.render()
    assert first["changed"]
    folders = Counter(path.partition("/")[0] for path in first["files"])
    assert {row.split()[1] for row in first["actions"]} == {str(bench.out / path) for path in bench.tree()}
    assert folders == {"imex": 3, "kubernetes": 17, "metrics": 1, "report": 1, "slurm": 2}
    before = {path: (bench.out / path).stat().st_mtime_ns for path in bench.tree()}
    again = bench.render()
    assert (again["changed"], again["actions"]) == (False, [])
    assert {path: (bench.out / path).stat().st_mtime_ns for path in bench.tree()} == before
    assert set(before) == {*first["files"], ".fabric_render.json"}
    rendered = bench.tree()
    assert not bench.render(renderers=["imex"])["changed"]
    assert bench.tree() == rendered, "the files of other renderers stay"
    (bench.out / "slurm" / "topology.yaml").write_text("edited\n")
    assert bench.render()["changed"]
    assert bench.tree() == rendered
    bench.render(renderers=["slurm"], block_sizes=[9, 18])
    assert bench.tree()["slurm/topology.conf"].endswith(b"BlockSizes=9,18\n")


def test_check_mode_reports_the_same_and_writes_nothing(bench: Bench) -> None:
    planned = bench.render(check=True, diff=True)
    assert (planned["changed"], planned["actions"]) == (True, [])
    assert not bench.out.exists()
    assert planned["diff"] == bench.render(diff=True)["diff"]
    assert not bench.render(check=True)["changed"]


def test_without_a_fabric_file_check_mode_warns_and_a_run_fails(bench: Bench) -> None:
    bench.file.unlink()
    checked = bench.render(check=True)
    assert (checked["changed"], checked["files"]) == (False, [])
    assert "run discover and accept first" in checked["warnings"][0]
    with pytest.raises(AnsibleActionFail, match="does not exist; run discover"):
        bench.render()


def test_diff_shows_lines_of_texts_and_only_names_the_report(bench: Bench) -> None:
    bench.render()
    bench.fabric.trays["r01t01"]["imex_address"] = "10.9.9.9"
    bench.write()
    diff = bench.render(diff=True)["diff"]
    assert [(entry.get("before_header") or entry["prepared"]).split("out/")[1] for entry in diff] == [
        "imex/r01/nodes_config.cfg",
        "metrics/nvlink_fabric.prom",
        "report/index.html: changed\n",
    ]
    assert diff[0]["before"].startswith("10.0.1.1\n")
    assert diff[0]["after"].startswith("10.9.9.9\n")


def test_states_of_this_run_replace_those_of_the_verdict_and_assumed_trays_must_exist(bench: Bench) -> None:
    drained = {"r01t01": "DRAIN+IDLE: RMA"}
    verdict = bench.file.with_name("verdict.json")
    verdict.write_text(json.dumps(fabrics.verdict(slurm_nodes=drained)))
    shown = [
        bench.render(verdict=str(verdict), domain_map=True, **more)["domain_map"] for more in ({}, {"scontrol": []})
    ]
    assert ["drained: RMA" in "".join(lines) for lines in shown] == [True, False]
    assert "Slurm shows no state of 36 trays (r[01-02]t[01-18])" in bench.tree()["report/index.html"].decode()
    assumed = bench.render(without=["r01t02"], domain_map=True)
    assert "drained: assumed" in "".join(assumed["domain_map"])
    assert "metrics/nvlink_fabric.prom" not in assumed["files"]
    with pytest.raises(AnsibleError, match="without: 'r9' is no tray of the fabric file"):
        bench.render(without=["r01t02", "r9"])


def test_a_tray_has_the_health_of_a_verdict_that_is_newer_than_the_state(bench: Bench) -> None:
    state = fabrics.state(bench.fabric, r01t05={"health": "unhealthy"})
    bench.file.with_name("fabric.state.json").write_bytes(fabric_file.serialise(state))
    verdict = bench.file.with_name("verdict.json")
    rows = (("r01t03", "error", "hardware"), ("r01t04", "warning", "hardware"), ("r01t05", "warning", "hardware"))
    failures = [
        {**fabrics.FAILURE, "tray": tray, "trays": [tray], "severity": severity, "layer": layer}
        for tray, severity, layer in (*rows, ("r01t06", "error", "slurm"))
    ]
    known = []
    for at in ("2026-11-21T03:00:00Z", "2026-11-21T05:00:00Z"):
        verdict.write_text(json.dumps(fabrics.verdict(*failures, checked_at=at)))
        drawn = " ".join(bench.render(verdict=str(verdict), domain_map=True)["domain_map"])
        known.append(re.findall(r"r01t0[3-6]  r01 +\S (\w+)", drawn))
    assert known == [["healthy", "unhealthy", "healthy", "healthy"], ["healthy", "unhealthy", "degraded", "unhealthy"]]


def test_what_is_no_longer_rendered_is_removed_with_its_directory(bench: Bench) -> None:
    bench.render()
    bench.empty("r02a")
    cleared = bench.render()
    assert cleared["removed"] == ["imex/r02a/nodes_config.cfg"]
    assert "imex/r02a/nodes_config.cfg" in cleared["changes"]
    assert not (bench.out / "imex" / "r02a").exists()
    assert not bench.render()["changed"]


def test_files_that_others_wrote_or_changed_are_kept(bench: Bench) -> None:
    bench.render()
    (bench.out / "imex" / "notes.txt").write_text("mine")
    (bench.out / "imex" / "r02a" / "nodes_config.cfg").write_text("10.1.1.1\n")
    bench.empty("r02a")
    result = bench.render()
    assert result["removed"] == []
    assert "imex/r02a/nodes_config.cfg: is no longer rendered, but was changed by hand" in result["warnings"][0]
    assert {"imex/notes.txt", "imex/r02a/nodes_config.cfg"} <= set(bench.tree())


def test_a_tray_that_is_missing_in_a_file_is_a_warning(bench: Bench) -> None:
    bench.fabric.trays["r01t01"]["kubernetes_node"] = "No_Node"  # type: ignore[index]
    bench.write()
    (warning,) = bench.render()["warnings"]
    assert "Tray r01t01 has the kubernetes_node No_Node, which is not a Node name" in warning
    assert "No_Node" not in "".join(path.read_text() for path in (bench.out / "kubernetes").iterdir())


def test_a_tray_without_address_fails_but_everything_else_is_written(bench: Bench) -> None:
    files = bench.render(check=True)["files"]
    bench.fabric.trays["r02t05"]["imex_address"] = None
    bench.write()
    result = bench.render()
    assert result["failed"]
    assert result["msg"].startswith("The IMEX node list of clique r02a is not written, because imex_address is missing")
    errors = [finding["code"] for finding in result["findings"] if finding["severity"] == "error"]
    assert errors == ["imex_address_invalid"]
    assert set(files) - set(bench.tree()) == {"imex/r02a/nodes_config.cfg"}
    assert "imex_address_invalid" in (bench.out / "report" / "index.html").read_text()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{", "list of written files"),
        (json.dumps({"files": {"../fabric.json": {"part": "imex", "sha256": ""}}}), "list of written files"),
        (json.dumps({"files": {"/etc/passwd": {"part": "imex", "sha256": ""}}}), "list of written files"),
        (json.dumps({"files": {"imex": {"part": "imex", "sha256": ""}}}), "cannot be read"),
    ],
)
def test_an_invalid_manifest_removes_nothing(bench: Bench, content: str, word: str) -> None:
    bench.render()
    before = bench.tree()
    (bench.out / ".fabric_render.json").write_text(content)
    with pytest.raises(AnsibleActionFail, match=word):
        bench.render()
    assert bench.file.exists()
    assert bench.tree() == {**before, ".fabric_render.json": content.encode()}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"render_dir": None}, "render_dir"),
        ({"renderers": ["slurm", "imx"]}, r"^renderers\[1\] \(\w+\) is 'imx'; did you mean imex\?$"),
        ({"renderers": []}, r"^renderers: is empty; name one or more of slurm, .*, or leave it out$"),
        ({"domain_map": "perhaps"}, "domain_map"),
        ({"colour": True}, "colour"),
    ],
)
def test_wrong_options_name_the_option(bench: Bench, options: dict[str, Any], word: str) -> None:
    with pytest.raises(AnsibleError, match=word):
        bench.render(**options)
    assert not bench.out.exists()


def test_a_directory_that_cannot_be_written_is_one_sentence(bench: Bench) -> None:
    bench.out.write_text("a file")
    with pytest.raises(AnsibleActionFail, match="out: cannot be written"):
        bench.render()


def test_a_proposal_is_drawn_and_never_rendered(bench: Bench, tmp_path: Path) -> None:
    after = fabrics.fabric()
    after.trays["r01t01"]["clique"] = "r02a"
    file = tmp_path / "elsewhere.json"

    def draw(**more: Any) -> dict[str, Any]:
        return bench.render(**{"render_dir": None, "proposal_file": str(file), "domain_map": True, **more})

    with pytest.raises(AnsibleActionFail, match=r"e\.json: there is no proposal; run discover first\.$"):
        draw()
    proposed = proposal.propose(bench.file.read_bytes(), after, [], "2026-11-21T05:00:00Z")
    file.write_bytes(proposed.encode())
    drawn = draw()
    assert (drawn["changed"], drawn["warnings"]) == (False, [])
    assert drawn["domain_map"][-1] == "The proposal changes 1 of 36 trays, in 1 NVLink domain."
    with pytest.raises(AnsibleActionFail, match=r"^render_dir: nothing is rendered from a proposal; accept it first, "):
        draw(render_dir=str(bench.out))
    bench.file.unlink()
    (warning,) = draw()["warnings"]
    assert "has changed since it was made, so it cannot be accepted; discover again" in warning


def test_the_domain_map_is_returned_and_the_state_read_from_its_own_folder(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "state").mkdir()
    state = fabrics.state(bench.fabric, r01t01={"health": "unhealthy"})
    (tmp_path / "state" / "fabric.state.json").write_bytes(fabric_file.serialise(state))
    given = {"render_dir": None, "domain_map": True}
    result = bench.render(**given)
    assert not result["changed"]
    assert any("r01t18" in line and "r02t18" in line for line in result["domain_map"])
    assert "unhealthy" not in "\n".join(result["domain_map"])
    assert "1 unhealthy" in "\n".join(bench.render(**given, state_dir=str(tmp_path / "state"))["domain_map"])
    # Only callbacks print, so that the output of those that print JSON can be read.
    assert capsys.readouterr().out == ""
    assert not bench.out.exists()
