# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tray whose facts set variables of the role imex, with Ansible's defaults: it gets no file and no certificate.

It is the first of the play, on the local connection.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from cryptography import x509

from . import hostile
from .commands import ansible

HOSTILE, HONEST = "r01t01", "r01t02"
# Any module of the site's own may run on trays first; Ansible makes its facts variables.
FIRST = {
    "hosts": "all",
    "gather_facts": False,
    "tasks": [{"name": "Any task of the site", "ansible.builtin.ping": {}}],
}


@pytest.fixture
def site(tmp_path: Path) -> Any:
    """site(plays, facts, *options): run plays where the hostile tray returns these facts; the output."""
    fabric = tmp_path / "fabric.json"
    fabric.write_text(json.dumps(fabrics.fabric(racks=1, trays=2, split=()).as_dict()))

    def run(plays: list[Any], facts: dict[str, Any], *options: str, inject: str = "true", **variables: Any) -> str:
        python = hostile.write_python(tmp_path / "python3", {"ansible_facts": facts}, real=sys.executable)
        hosts = {HOSTILE: {"ansible_python_interpreter": str(python)}, HONEST: {}}
        # This machine may run trays of the lab, whose daemons are no daemons of this tray.
        alone = tmp_path / "python-alone"
        user = "" if os.geteuid() == 0 else "--user --map-root-user "
        alone.write_text(f'#!/bin/sh\nexec unshare {user}--pid --fork --mount-proc {sys.executable} "$@"\n')
        alone.chmod(0o755)
        every = {
            "ansible_connection": "local",
            "ansible_python_interpreter": str(alone),
            "fabric_file": str(fabric),
            **variables,
        }
        inventory = tmp_path / "hosts.json"
        inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": every}}))
        book = tmp_path / "play.yml"
        book.write_text(json.dumps([FIRST, *plays]))
        settings = {"ANSIBLE_INJECT_INVOCATION": "true", "ANSIBLE_INJECT_FACT_VARS": inject}
        done = ansible("ansible-playbook", "-i", inventory, book, *options, check=False, **settings)
        text = done.stdout + done.stderr
        assert done.returncode == 2, text
        assert f"The facts of {HOSTILE} set {', '.join(sorted(facts))}, which only the site may set" in text
        recap = {line.split()[0]: line for line in text.partition("PLAY RECAP")[2].splitlines() if "ok=" in line}
        assert "failed=1" in recap[HOSTILE], text
        assert "failed=0" in recap[HONEST], text
        return text

    return run


def test_a_tray_is_sent_no_file_of_the_controller(site: Any, tmp_path: Path) -> None:
    # As the certificate: Ansible would hide the key's text in what it prints.
    canary, other = tmp_path / "id_ed25519", tmp_path / "other"
    canary.write_text("THE CANARY\n")
    other.write_text("another file\n")
    paths = {"key": str(other), "certificate": str(canary), "authority": str(canary)}
    facts = {"imex_tls": "site", "imex_tls_files": paths}
    plays = [{"import_playbook": "rackscale.nvlink.imex"}]
    # Its own IMEX stays as it is: check mode.
    options = ("--check", "-vvvv", "-e", "imex_owner=none", "-e", "imex_hosts=all")
    assert "THE CANARY" not in site(plays, facts, *options)


SIGN = {
    "hosts": "all",
    "gather_facts": False,
    "tasks": [
        {"name": part, "ansible.builtin.include_role": {"name": "rackscale.nvlink.imex", "tasks_from": part}}
        for part in ("inspect", "tls_ca")
    ],
}


@pytest.mark.parametrize(
    ("inject", "facts"),
    [
        ("true", {"imex_tls_ca_dir": "/nonexistent/hostile", "imex_tls_days": 36500, "imex_tray": HONEST}),
        ("false", {"nvlink_imex_address": "198.51.100.99"}),
    ],
    ids=["facts are variables", "facts are no variables"],
)
def test_a_tray_with_foreign_facts_is_signed_no_certificate(
    site: Any, tmp_path: Path, inject: str, facts: dict[str, Any]
) -> None:
    """The authority, which is made once for all, and the others' certificates are as the site has them."""
    folder = tmp_path / "ca"
    site([SIGN], facts, inject=inject, imex_tls="ca", imex_tls_ca_dir=str(folder), imex_tls_days=7)
    assert {path.name for path in folder.iterdir()} == {
        *("ca.key", "ca.csr", "ca.pem"),
        *(f"{HONEST}.{kind}" for kind in ("key", "csr", "pem")),
    }
    signed = x509.load_pem_x509_certificate((folder / f"{HONEST}.pem").read_bytes())
    names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["10.0.1.2", HONEST]
    assert (signed.not_valid_after_utc - signed.not_valid_before_utc).days <= 8
