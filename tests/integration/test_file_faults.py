# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks that write the fabric file, several at once, and its readers where a signature is required."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .commands import ansible, environment
from .test_discover import Site, sha256_of

pytestmark = pytest.mark.long


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site with an accepted fabric file and a pending proposal."""
    site = Site(tmp_path)
    site.accept_first()
    site.move("r01t01", 7)
    return site


def test_two_proposals_at_once_are_one_proposal_and_an_error_that_names_the_other_run(site: Site) -> None:
    """Both discover at the same time; each ends with a proposal, or says that the other one is writing it."""
    arguments = ["-i", f"{site.directory}/hosts.yml", "rackscale.nvlink.discover", "-e", f"fabric_file={site.path}"]
    before = site.path.read_bytes()
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "ansible", "playbook", *arguments],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _run in range(3)
    ]
    printed = [run.communicate(timeout=120)[0] for run in runs]
    ended = [run.returncode for run in runs]
    assert 0 in ended
    for status, text in zip(ended, printed, strict=True):
        if status == 0:
            assert " trays, 1 moved" in text
        else:
            assert "fabric.json: another run is writing it (pid " in text
    assert len({sha256_of(text) for status, text in zip(ended, printed, strict=True) if status == 0}) == 1
    assert sorted(site.files()) == [
        "fabric.audit.jsonl",
        "fabric.json",
        "fabric.proposed.json",
        "fabric.proposed.md",
        "fabric.state.json",
    ]
    assert site.path.read_bytes() == before
    site.accept("-e", f"fabric_proposal={sha256_of(printed[ended.index(0)])}")
    assert site.fabric()["trays"]["r01t01"]["clique"] != "r01"


def test_every_reader_refuses_a_fabric_file_without_the_required_signature(site: Site, tmp_path: Path) -> None:
    inventory = tmp_path / "site.nvlink.yml"
    inventory.write_text(
        f"plugin: rackscale.nvlink.fabric\nsources: [fabric_file]\nfabric_file: {site.path}\n", encoding="utf-8"
    )
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    (tmp_path / "signers").write_text(f"ada@example.org {(tmp_path / 'key.pub').read_text()}")
    render = ("-i", inventory, "rackscale.nvlink.render", "-e", f"fabric_file={site.path}", "-e")
    render += (f"render_dir={tmp_path / 'rendered'}",)
    readers = (("ansible-inventory", "-i", inventory, "--list"), ("ansible-playbook", *render))
    required = {"NVLINK_FABRIC_ALLOWED_SIGNERS": str(tmp_path / "signers")}
    for reader in readers:
        done = ansible(*reader, check=False, **required)
        assert done.returncode != 0
        assert "fabric.json: is not signed, and NVLINK_FABRIC_ALLOWED_SIGNERS requires it" in done.stdout + done.stderr
    command = ["ssh-keygen", "-Y", "sign", "-f", tmp_path / "key", "-n", "nvlink-fabric", site.path]
    subprocess.run(command, check=True)
    for reader in readers:
        ansible(*reader, **required)
