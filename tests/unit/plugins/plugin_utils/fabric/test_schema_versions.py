# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that a release wrote are read by every later one, and written back to the byte while nothing changes.

tests/unit/fixtures/fabric has files of each schema_version. They are never changed: a new key gets a new file.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file

FILES = Path(__file__).parents[3] / "fixtures" / "fabric"
SCHEMAS = Path(fabric_file.__file__).parent / "schema"
WRITTEN = {
    "1-acknowledged.state.json": "cdd35ad9dd3810f0216b9503d905ef9097081a28e768ae1a929a0a7ef957232f",
    "1-plain.json": "460f1083351d3c21a41305b5feb366a83567f48b6089e091a98d445abd5060f1",
    "1-split.json": "ba143745717471f55e360e0b415c37c7a9c0157de42f581101d9650229f16378",
    "1-every-key.json": "0f1baf22e9f26c3d34f2157b3724409c187d9185db323553baa71b463b98ddd9",
    "1-every-key.state.json": "bf57883e4752c522b4e6feab3067d7d9dae2c038d678afe5aeac002c2ca2fd28",
}
"""File -> SHA-256 of its bytes."""


def keys(schema: dict[str, Any]) -> Iterator[str]:
    """The names of all properties of a schema."""
    for name, value in schema.items():
        if name == "properties":
            yield from value
        if isinstance(value, dict):
            yield from keys(value)


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_file_of_an_earlier_release_is_read_and_written_back_to_the_byte(tmp_path: Path, name: str) -> None:
    data = (FILES / name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == WRITTEN[name], "A release has written this file: do not change it."
    shutil.copy(FILES / name, tmp_path / name)
    path = str(tmp_path / name)
    read = fabric_file.load_state(path.replace(".state", "")) if ".state." in name else fabric_file.load(path)
    assert read is not None
    assert fabric_file.serialise(read) == data


@pytest.mark.parametrize(("schema", "files"), [("fabric-1", "1-*.json"), ("state-1", "1-*.state.json")])
def test_every_key_of_a_schema_is_in_a_file(schema: str, files: str) -> None:
    texts = "".join(path.read_text() for path in FILES.glob(files))
    assert [key for key in keys(json.loads((SCHEMAS / f"{schema}.json").read_text())) if f'"{key}":' not in texts] == []
