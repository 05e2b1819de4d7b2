# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A required signature of the fabric file, made and verified by the real ssh-keygen."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible import constants
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, signature
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError

from .. import fabrics

NO_KEY = b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"


class Signed:
    """A fabric file, a key that may sign it, and another key."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "site" / "fabric.json"
        self.path.parent.mkdir()
        self.path.write_bytes(fabric_file.serialise(fabrics.fabric()))
        self.folder = folder
        for key in ("ada", "mallory"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        self.signers = folder / "allowed_signers"
        self.signers.write_text(f'ada@example.org namespaces="nvlink-fabric" {(folder / "ada.pub").read_text()}')

    def sign(self, key: str = "ada", namespace: str = "nvlink-fabric") -> None:
        Path(f"{self.path}.sig").unlink(missing_ok=True)
        command = signature.command(str(self.path)).replace("KEY", str(self.folder / key))
        subprocess.run(command.replace("nvlink-fabric", namespace), shell=True, check=True, capture_output=True)

    def problem(self) -> str:
        with pytest.raises(FabricFileError) as caught:
            fabric_file.load(str(self.path))
        return str(caught.value)


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signed:
    made = Signed(tmp_path)
    monkeypatch.setenv(signature.VARIABLE, str(made.signers))
    return made


def test_a_file_or_a_link_to_it_is_read_with_the_signature_of_an_allowed_key(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed.sign()
    link = tmp_path / "fabric.json"
    link.symlink_to(signed.path)
    for path in (signed.path, link):
        assert fabric_file.load(str(path)) == fabrics.fabric()
    Path(f"{signed.path}.sig").unlink()
    monkeypatch.setenv(signature.VARIABLE, "")
    assert fabric_file.load(str(signed.path)) == fabrics.fabric()


CHANGED = "{file}: has changed since it was signed, or was signed for another purpose; review"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda signed: Path(f"{signed.path}.sig").unlink(),
            "{file}: is not signed, and NVLINK_FABRIC_ALLOWED_SIGNERS requires it; review the file, then run: "
            "ssh-keygen -Y sign -f KEY -n nvlink-fabric {file}",
        ),
        (lambda signed: signed.path.write_bytes(signed.path.read_bytes().replace(b"r01t01", b"r01t99", 1)), CHANGED),
        (lambda signed: signed.sign("ada", "git"), CHANGED),
        (lambda signed: signed.sign("mallory"), "{file}: is signed with a key that "),
        (lambda signed: Path(f"{signed.path}.sig").write_bytes(b""), "{file}: is signed with a key that "),
        (lambda signed: Path(f"{signed.path}.sig").write_bytes(NO_KEY), "{file}: is signed with a key that "),
        (
            lambda signed: signed.signers.unlink(),
            "NVLINK_FABRIC_ALLOWED_SIGNERS: {signers} cannot be read; set it to an allowed_signers file",
        ),
    ],
)
def test_anything_else_is_refused(signed: Signed, change: Callable[[Signed], object], sentence: str) -> None:
    signed.sign()
    change(signed)
    assert signed.problem().startswith(sentence.format(file=signed.path, signers=signed.signers))


def test_without_ssh_keygen_nothing_is_believed(
    signed: Signed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    signed.sign()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert signed.problem() == (
        f"{signed.path}: cannot be verified without ssh-keygen (No such file or directory); install OpenSSH's client"
    )


def test_an_ssh_keygen_that_hangs_ends(signed: Signed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    signed.sign()
    program = tmp_path / "bin" / "ssh-keygen"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(signature, "_SECONDS", 0.2)
    assert "ssh-keygen has not verified " in signed.problem()


def test_a_file_that_the_run_has_made_for_itself_needs_no_signature(
    signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = signed.folder / "ansible-local"
    own.mkdir()
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(own))
    planned = own / "fabric.planned.json"
    planned.write_bytes(signed.path.read_bytes())
    assert fabric_file.load(str(planned)) == fabrics.fabric()
    # Whoever can write the folder of the fabric file cannot lift its signature by it.
    signed.path.unlink()
    signed.path.symlink_to(planned)
    assert "is not signed" in signed.problem()
