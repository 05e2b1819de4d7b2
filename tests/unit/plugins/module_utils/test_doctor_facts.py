# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inspect a host for the playbook doctor: ports on loopback, programs that are scripts."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import inspection
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays


def target(port: int, address: str = "127.0.0.1") -> dict[str, object]:
    return {"name": "peer", "address": address, "port": port}


def test_open_and_refused_ports_are_reached_and_a_name_that_does_not_resolve_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ports = server.getsockname()[1], free.getsockname()[1]
        rows = inspection.connect_all([target(ports[0]), target(ports[1]), target(22, "no such name")])
    # What refuses a connection has been reached.
    assert [row["reason"] for row in rows[:2]] == ["", ""]
    assert rows[2]["reason"]


def test_all_connections_together_have_one_deadline() -> None:
    """A full backlog of a listening socket answers no further connection."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        fillers = [socket.socket() for _number in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            started = time.monotonic()
            rows = inspection.connect([target(address[1]) for _number in range(20)], 0.5)
        finally:
            for filler in fillers:
                filler.close()
    assert time.monotonic() - started < 10
    assert {row["reason"] for row in rows} == {"timed out"}
    assert len(rows) == 20


def test_slurmctld_is_read_with_its_ports(tmp_path: Path) -> None:
    trays.script(tmp_path / "slurmctld", "echo slurm-wlm 24.11.5")
    config = "SlurmdPort = 6818\\nSlurmctldPort = 6817-6819\\n"
    trays.script(tmp_path / "scontrol", f'case "$*" in *config*) printf "{config}";; esac')
    found = inspection.inspect_slurm(Slurm(str(tmp_path)))
    assert found == {
        "version": "24.11.5",
        "slurmd_port": 6818,
        "slurmctld_port": 6817,
        "problem": None,
        "limits": [],
    }
    trays.script(tmp_path / "scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    down = inspection.inspect_slurm(Slurm(str(tmp_path)))
    assert down["version"] == "24.11.5"
    assert "check that slurmctld runs" in down["problem"]


@pytest.mark.parametrize("candidate", ["580.95.05-1", "570.1.1-1"])
def test_the_cache_of_apt_is_read_and_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, candidate: str
) -> None:
    trays.script(tmp_path / "apt-cache", f'echo "$*" > {tmp_path}/said; echo "nvidia-imex | {candidate} | http://x"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = inspection.imex_offers("580.95.05", None)
    assert found["candidate"] == (candidate if candidate.startswith("580") else None)
    assert found["offered"] == [candidate]
    said = (tmp_path / "said").read_text()
    assert "Dir::Cache::pkgcache= " in said
    assert "update" not in said
