# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The serial numbers that sysfs has of a tray's parts, against a folder of the test's own."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import serials


def cpu(serial: bytes, number: int = 3) -> bytes:
    """An entry of DMI for a processor with three texts."""
    fields = bytearray(48)
    fields[:2], fields[0x20] = bytes((4, 48)), number
    return bytes(fields) + b"\0".join((b"CPU 0", b"NVIDIA", serial)) + b"\0\0"


def adapter(*fields: tuple[bytes, bytes]) -> bytes:
    """The product data of an adapter: its name, the read-only fields and the end."""
    rows = b"".join(key + bytes((len(text),)) + text for key, text in fields)
    name = b"ConnectX-7"
    return b"\x82" + len(name).to_bytes(2, "little") + name + b"\x90" + len(rows).to_bytes(2, "little") + rows + b"\x78"


SN = adapter((b"PN", b"MCX75310"), (b"SN", b"MT2445X00123"), (b"RV", b"\x11\0"))
FOUND = {"baseboard": "/7X1ABC/", "cpus": ["0x17820B1C8"], "nics": "MT2445X00123", "codes": []}
UNKNOWN = {"baseboard": None, "cpus": None, "nics": None, "codes": []}


@pytest.mark.parametrize(
    ("board", "processor", "product", "expected"),
    [
        pytest.param(b"/7X1ABC/\n", cpu(b"0x17820B1C8"), SN, FOUND, id="known"),
        pytest.param(None, None, None, UNKNOWN, id="root only"),
        pytest.param(b"None\n", cpu(b"Not Specified"), adapter((b"PN", b"1")), UNKNOWN, id="none"),
        pytest.param(b"", cpu(b"1", 0), b"", UNKNOWN, id="empty"),
        pytest.param(b"\n", cpu(b"1", 9), SN[:20], UNKNOWN, id="cut"),
        pytest.param(b"\xff", cpu(b"1")[:20], b"\x90\xff\xff", UNKNOWN, id="garbage"),
        pytest.param(b"{{ 7 }}", None, None, {**UNKNOWN, "codes": ["unusable_value"]}, id="template"),
    ],
)
def test_serial_numbers_of_baseboard_cpus_and_adapters(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    board: bytes | None,
    processor: bytes | None,
    product: bytes | None,
    expected: dict[str, Any],
) -> None:
    files = {
        "class/dmi/id/board_serial": board,
        "firmware/dmi/entries/4-0/raw": processor,
        "class/net/ibp3s0/device/vpd": product,
        "class/net/lo/address": b"00:00:00:00:00:00",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        if data is not None:
            (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(serials, "query", functools.partial(serials.query, str(tmp_path)))
    found = serials.gather()
    assert found["nics"] == [{"interface": "ibp3s0", "serial": expected["nics"]}]
    assert {key: found[key] for key in ("baseboard", "cpus")} == {key: expected[key] for key in ("baseboard", "cpus")}
    assert [note["code"] for note in found["findings"]] == expected["codes"]


def test_an_adapter_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serials, "query", lambda: time.sleep(60))
    monkeypatch.setattr(serials, "TIMEOUT", 0.2)
    with pytest.raises(NvlinkError, match=r"^reading serial numbers from /sys: "):
        serials.gather()
