# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release is refused where its version is not the same everywhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import release


def checkout(
    path: Path, galaxy: str = "1.0.0", project: str = "1.0.0", lock: str = "1.0.0", changelog: str | None = "1.0.0"
) -> Path:
    (path / "changelogs").mkdir()
    (path / "galaxy.yml").write_text(f"version: {galaxy}\n")
    (path / "pyproject.toml").write_text(f'[project]\nversion = "{project}"\n')
    (path / "uv.lock").write_text(f'[[package]]\nname = "rackscale-nvlink"\nversion = "{lock}"\n')
    if changelog:
        (path / "changelogs" / "changelog.yaml").write_text(f"releases: {{{changelog}: {{}}}}\n")
    return path


def test_the_version_of_a_release(tmp_path: Path) -> None:
    assert release.check_version(checkout(tmp_path), "v1.0.0") == "1.0.0"


@pytest.mark.parametrize(
    ("versions", "tag", "message"),
    [
        ({"project": "0.1.0"}, "v1.0.0", "pyproject.toml has version 0.1.0, galaxy.yml 1.0.0"),
        ({"lock": "0.1.0"}, "", "uv.lock has another version than 1.0.0"),
        ({}, "v1.0.1", "the tag is v1.0.1, galaxy.yml has 1.0.0"),
        ({"changelog": "0.9.0"}, "", "the changelog has no 1.0.0"),
        ({"changelog": None}, "", "the changelog has no 1.0.0"),
    ],
    ids=["project", "lock", "tag", "changelog", "no-changelog"],
)
def test_a_release_is_refused(tmp_path: Path, versions: dict[str, str | None], tag: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        release.check_version(checkout(tmp_path, **versions), tag)


def test_every_table_of_figures_has_its_commit_and_its_code() -> None:
    tables = dict(release.ages.TABLE.findall(release.ages.PAGE.read_text("utf-8")))
    assert tables.keys() == release.ages.CODE.keys()
    assert [name for name, text in tables.items() if not release.ages.COMMIT.search(text)] == []
    paths = {path for row in release.ages.CODE.values() for path in row}
    assert [path for path in paths if not (release.ages.CHECKOUT / path).exists()] == []


def test_a_release_does_not_show_old_figures() -> None:
    assert release.ages.old([("live", "0123456789", 200), ("runs", "0123456789", 201)]) == ["runs"]
