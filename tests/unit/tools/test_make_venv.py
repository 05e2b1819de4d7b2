# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make venv takes uv and the wheel `ansible` by their hashes only: pip offers it others with the same names."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
MAKE = "import sys; sys.path.insert(0, sys.argv[1]); import make_venv; "


def other_wheel(folder: Path, name: str, version: str) -> None:
    """A wheel with another content than the published one."""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(
            f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{name}-{version}.dist-info/RECORD", "")


@pytest.mark.parametrize(
    ("name", "version", "call"),
    [
        ("uv", "make_venv.UV_VERSION", "make_venv.find_uv()"),
        pytest.param(
            "ansible",
            "make_venv.ANSIBLE_WHEEL.partition('==')[2]",
            "make_venv.dependencies(sys.executable)",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_wheel_with_another_hash_is_refused(tmp_path: Path, name: str, version: str, call: str) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3"
    links = tmp_path / "links"
    links.mkdir()
    asked = subprocess.run(
        [python, "-c", f"{MAKE}print({version})", TOOLS], capture_output=True, text=True, check=True
    ).stdout
    other_wheel(links, name, asked.strip())
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links)}
    done = subprocess.run(
        [python, "-c", MAKE + call, TOOLS], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    cache = tmp_path / "rackscale.nvlink"
    assert list(cache.iterdir()) == []
