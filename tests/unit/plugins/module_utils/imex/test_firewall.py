# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The output of ufw. tests/integration/test_imex_firewall.py runs ufw and firewalld on trays of the lab."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import firewall

RULES = (
    ("22/tcp", "ALLOW", "Anywhere", ""),
    ("50000/tcp", "DENY", "Anywhere", ""),
    ("50005/tcp", "ALLOW", "Anywhere", "# the site's"),
    ("50006/tcp", "ALLOW", "198.51.100.0/24", ""),
    ("50100/tcp (v6)", "ALLOW", "Anywhere (v6)", ""),
)
# As ufw 0.36.2 prints them, blanks at the end included.
STATUS = "Status: active\n\n" + "".join(f"{to:<26} {verb:<11} {who:<25} {note}\n" for to, verb, who, note in RULES)


@pytest.fixture
def ufw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "ufw"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{STATUS}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(firewall, "OPENED", str(tmp_path / "opened.json"))
    return tmp_path


def test_a_port_is_open_where_a_rule_allows_every_source(ufw: Path) -> None:
    assert firewall._open_ports(Host(check=True), firewall.UFW, [22, 50000, 50005, 50006, 50100]) == {22, 50005}


def test_a_port_that_the_site_opened_is_not_closed(ufw: Path) -> None:
    (ufw / "opened.json").write_text('{"ufw": [22]}')
    host = Host(check=True)
    firewall.apply(host, [50000, 50005])
    assert host.changes[:2] == ["close port 22/tcp in ufw", "open port 50000/tcp in ufw"]
    assert host.after == {str(ufw / "opened.json"): '{"ufw": [50000]}\n'}


def test_an_invalid_record_of_ports_counts_as_empty(ufw: Path) -> None:
    (ufw / "opened.json").write_text("[1]")
    host = Host(check=True)
    firewall.apply(host, [50005])
    assert host.changes == [f"remove {ufw / 'opened.json'}"]
