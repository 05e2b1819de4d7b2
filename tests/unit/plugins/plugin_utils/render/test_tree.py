# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tree of generated files in which somebody else, such as a pull request, left symbolic links."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import RenderError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import tree


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a file that no run may change; out/slurm is a link to it."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "topology.yaml").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "slurm").symlink_to(folder)
    return folder


@pytest.mark.parametrize("files", [{}, {"slurm/topology.yaml": "new"}])
def test_a_linked_folder_below_the_root_is_refused(tmp_path: Path, outside: Path, files: dict[str, str]) -> None:
    sha256 = hashlib.sha256(b"mine").hexdigest()
    row = {"files": {"slurm/topology.yaml": {"part": "slurm", "sha256": sha256}}}
    (tmp_path / "out" / ".fabric_render.json").write_text(json.dumps(row))
    with pytest.raises(RenderError, match=r"out/slurm: is a symbolic link, .* remove the link$"):
        tree.plan(str(tmp_path / "out"), {"slurm": files}).apply()
    assert (outside / "topology.yaml").read_text() == "mine"


def test_a_file_that_no_earlier_run_has_written_is_named_and_replaced_on_request_alone(tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "topology.conf").write_text("mine")
    files = {f"slurm/{name}": "new" for name in ("topology.conf", "topology.yaml")}
    sentence = r"no earlier run has written slurm/topology\.conf there: use another directory, or .*render_replace=true"
    with pytest.raises(RenderError, match=sentence):
        tree.plan(str(tmp_path), {"slurm": files})
    tree.plan(str(tmp_path), {"slurm": files}, replace=True).apply()
    assert (tmp_path / "slurm" / "topology.conf").read_text() == "new"
    # It is in the manifest now.
    changed = dict.fromkeys(files, "newer")
    assert len(tree.plan(str(tmp_path), {"slurm": changed}).changes) == 2


def test_the_root_may_be_a_link_and_a_linked_file_is_replaced(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "chosen").symlink_to(outside)
    (outside / "linked").symlink_to("topology.yaml")
    tree.plan(str(tmp_path / "chosen"), {"part": {"linked": "new"}}, replace=True).apply()
    assert [(outside / name).read_text() for name in ("linked", "topology.yaml")] == ["new", "mine"]
