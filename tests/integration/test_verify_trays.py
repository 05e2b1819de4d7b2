# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook verify with trays alone: real ansible-playbook processes, trays that are directories."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import pages
from .commands import ansible
from .test_discover import Site


class Verified(Site):
    """Four discovered and accepted trays."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.accept_first()
        self.verdict_file = directory / "verdict.json"

    def verify(
        self, *arguments: str, playbook: str | Path = "rackscale.nvlink.verify", **more: Any
    ) -> tuple[subprocess.CompletedProcess[str], list[tuple[str, Any]]]:
        """(the run, (code, tray) of each failure).

        The trays share the processes of this machine, so daemons of a lab would be theirs: IMEX codes are left out.
        """
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"nvlink": {"hosts": self.hosts}}))
        given = {
            "fabric_file": str(self.path),
            "verdict_file": str(self.verdict_file),
            "verify_backend": "nvidia_smi",
            "verify_ip": "ip",
            **more,
        }
        command = ("-i", inventory, playbook, "-e", json.dumps(given), *arguments)
        done = ansible("ansible-playbook", *command, check=False)
        rows = self.verdict()["failures"] if self.verdict_file.exists() else []
        return done, [(row["code"], row["tray"]) for row in rows if not row["code"].startswith("imex_")]

    def verdict(self) -> dict[str, Any]:
        return json.loads(self.verdict_file.read_text())


@pytest.fixture
def site(tmp_path: Path) -> Verified:
    return Verified(tmp_path)


def test_a_way_of_reading_that_only_trays_have_is_an_error(site: Verified) -> None:
    site.hosts["r02t02"]["tray_reading"] = "ssh"
    done, _rows = site.verify()
    assert "tray_reading: set for trays with another value than for localhost, where it is read; set it" in done.stdout
    assert (done.returncode, site.verdict_file.exists()) == (2, False)


def test_unreachable_broken_and_moved_trays_are_named_and_the_run_continues(site: Verified) -> None:
    site.cut_off("r01t01")
    (site.directory / "r01t02" / "python").write_text("#!/bin/sh\nexit 3\n")
    site.move("r02t02", 7)
    done, rows = site.verify()
    assert done.returncode == 2
    assert rows == [("tray_unreachable", "r01t01"), ("tray_unreachable", "r01t02"), ("tray_moved", "r02t02")]
    assert "No route to host" in site.verdict()["failures"][0]["message"]
    assert site.verdict()["queried"] == 4

    # verify_fail=false: the caller decides.
    done, again = site.verify(verify_fail=False)
    assert (done.returncode, again) == (0, rows)


@pytest.mark.long
def test_quick_queries_no_tray_and_a_limit_only_its_own(site: Verified) -> None:
    """The quick one by the playbook for AWX of the page."""
    playbook = site.directory / "verify.yml"
    playbook.write_text(pages.files("docs/verify.md")["verify.yml"])
    for name in site.facts:
        site.move(name, 9)
    done, rows = site.verify("--tags", "quick", playbook=playbook)
    assert (done.returncode, rows, site.verdict()["queried"]) == (0, [], 0)
    assert "Read the facts of the tray]" not in done.stdout, "the task on trays"
    assert "r01t01" not in done.stdout, "the run is checked on localhost"
    # As site --tags verify,quick: the other tag selects the play on the trays.
    done, rows = site.verify("--tags", "trays,quick")
    assert (done.returncode, rows, site.verdict()["queried"]) == (0, [], 0)
    assert "ok: [r01t01]" not in done.stdout

    done, rows = site.verify("--limit", "r02t02,localhost")
    assert (done.returncode, rows, site.verdict()["queried"]) == (2, [("tray_moved", "r02t02")], 1)
