# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook imex refuses wrong variables of the role before it reads a tray: the modules do not know them all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .commands import ansible


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("imex_tls", "CA", "imex_tls (variable of r01t01) is 'CA'; use one of off, site, ca."),
        ("imex_wait_for_quorum", "ALL", "imex_wait_for_quorum (variable of r01t01) is 'ALL'"),
        ("imex_owner", "domian", "imex_owner (variable of r01t01) is 'domian'; did you mean domain?"),
        ("imex_config_extra", "a text", "imex_config_extra (variable of r01t01) is not a dictionary"),
        ("imex_server_port", "a port", "imex_server_port (variable of r01t01) is 'a port', write an integer."),
    ],
)
def test_a_wrong_variable_is_refused(tmp_path: Path, name: str, value: str, words: str) -> None:
    fabric = tmp_path / "fabric.json"
    fabric.write_text(json.dumps(fabrics.fabric(racks=1, trays=1, split=()).as_dict()))
    # A tray that were read would fail for its Python.
    tray = {"ansible_connection": "local", "ansible_python_interpreter": "/nowhere/python", name: value}
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"r01t01": tray}}}))
    given = json.dumps({"imex_hosts": "all", "fabric_file": str(fabric)})
    done = ansible("ansible-playbook", "-i", inventory, "rackscale.nvlink.imex", "--check", "-e", given, check=False)
    assert done.returncode == 2
    assert words in done.stdout + done.stderr
    assert "/nowhere/python" not in done.stdout + done.stderr
    # Without the specification of the role's variables.
    assert len(done.stdout) < 2000
