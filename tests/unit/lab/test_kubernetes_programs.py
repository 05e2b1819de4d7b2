# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the programs of a control plane come from, and that what is pinned is what is built."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from nvlab.errors import LabError
from nvlab.kubernetes import programs


def test_a_sites_own_binaries_are_used_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("etcd", *programs.SERVERS, programs.KWOK, "kubectl"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert programs.servers() == {name: tmp_path / name for name in ("etcd", *programs.SERVERS, programs.KWOK)}
    assert programs.kubectl() == tmp_path / "kubectl"


def test_a_cached_build_is_kept_until_its_sources_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[Path] = []

    def make(target: Path) -> None:
        made.append(target)
        (target / "program").write_text("x")

    first = programs._cached("some", [b"one"], make)
    assert programs._cached("some", [b"one"], make) == first
    week_ago = time.time() - 8 * 24 * 3600
    os.utime(first, (week_ago, week_ago))
    second = programs._cached("some", [b"two"], make)
    assert len(made) == 2
    assert second.is_dir()
    assert not first.exists()

    def fail(target: Path) -> None:
        raise LabError("no network.")

    with pytest.raises(LabError):
        programs._cached("other", [b"one"], fail)
    assert not [path for path in first.parent.iterdir() if path.is_dir() and "other" in path.name]
