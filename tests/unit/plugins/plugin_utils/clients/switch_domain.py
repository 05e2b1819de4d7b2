# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's NVLink switches as local HTTPS servers, for the trays of a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import switch
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets

ONE, TWO = "r01sw1", "r01sw2"


class Switches:
    """The switches of NVLink domain r01, and what they set of GPUs."""

    def __init__(self, folder: Path, facts: Mapping[str, Any], seconds: float = 0.05, lag: float = 0.05) -> None:
        self.folder = folder
        if not folder.exists():
            listed = [gpu for tray, row in facts.items() for gpu in switch.gpus_of(tray, row)]
            switch.create(folder, [ONE, TWO], listed)
        self.driven: list[tuple[str, dict[str, str]]] = []
        self.domain = switch.Domain(folder, lambda tray, rows: self.driven.append((tray, dict(rows))), seconds, lag)
        self.servers = switch.serve(self.domain)

    def fault(self, name: str = ONE, /, **settings: str) -> None:
        switch.set_faults(self.folder, name, list(settings.items()))

    def options(self, name: str = ONE, **more: Any) -> dict[str, Any]:
        port = self.servers[self.domain.switches.index(name)].server_port
        login = {"username": switch.USER, "password": switch.PASSWORD, "ca_file": str(self.folder / "ca.crt")}
        return {"url": f"https://127.0.0.1:{port}", **login, "timeout": 5, **more}

    def client(self, name: str = ONE, **more: Any) -> nvue.Switch:
        return nvue.switch(name, self.options(name, **more))

    def report(self, name: str = ONE, **more: Any) -> nvue.Report:
        return self.client(name, **more).read()

    def stop(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()


@contextmanager
def switches(folder: Path, trays: int = 4, **more: Any) -> Iterator[Switches]:
    """The switches of a rack of a simulation with so many trays."""
    running = Switches(folder, fleets.fleet(racks=1, trays_per_rack=trays), **more)
    try:
        yield running
    finally:
        running.stop()
