# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signature of a fabric file, which a site may require: fabric.json.sig, as `ssh-keygen -Y sign` writes it.

An environment variable requires it, since inventory, lookups and actions all read the fabric file, and neither whoever
can write its folder nor the answer of a tray may lift it.
"""

from __future__ import annotations

import os
import shlex
import subprocess

from ansible import constants

VARIABLE = "NVLINK_FABRIC_ALLOWED_SIGNERS"
"""The environment variable with the path of an allowed_signers file (ssh-keygen(1)); empty requires nothing."""
NAMESPACE = "nvlink-fabric"
_SECONDS = 20


def required() -> bool:
    """Whether the site requires a signature."""
    return bool(os.environ.get(VARIABLE))


def signature_path(path: str) -> str:
    """fabric.json -> fabric.json.sig, in the folder of the file itself where fabric.json is a symbolic link."""
    return f"{os.path.realpath(path)}.sig"


def command(path: str) -> str:
    """The command that signs the file."""
    return shlex.join(["ssh-keygen", "-Y", "sign", "-f", "KEY", "-n", NAMESPACE, os.path.realpath(path)])


def problem(path: str, data: bytes) -> str | None:
    """Why a required signature does not hold for these bytes of the file at path, with the remedy; None if it does.

    A file that this run has made in the folder of its own, as to rehearse a plan, needs none. That is by the path as it
    was given: fabric.json cannot become a link to such a file.
    """
    if not required() or os.path.dirname(path) == constants.DEFAULT_LOCAL_TMP:
        return None
    signers, signature = os.environ[VARIABLE], signature_path(path)
    remedy = f"review the file, then run: {command(path)}"
    for file, cannot in (
        (signers, f"{VARIABLE}: {signers} cannot be read; set it to an allowed_signers file"),
        (signature, f"{path}: is not signed, and {VARIABLE} requires it; {remedy}"),
    ):
        if not os.access(file, os.R_OK) or not os.path.isfile(file):
            return cannot
    common = ["-f", signers, "-s", signature]
    try:
        found = _ssh_keygen(["-Y", "find-principals", *common], b"")
        for principal in found.stdout.decode(errors="replace").splitlines() if found.returncode == 0 else []:
            verified = _ssh_keygen(["-Y", "verify", "-n", NAMESPACE, "-I", principal, *common], data)
            if verified.returncode == 0:
                return None
    except subprocess.TimeoutExpired:
        return f"{path}: ssh-keygen has not verified {signature} in {_SECONDS} s; check the file systems of both files"
    except OSError as error:
        return f"{path}: cannot be verified without ssh-keygen ({error.strerror}); install OpenSSH's client"
    if found.returncode:
        return f"{path}: is signed with a key that {signers} does not allow; {remedy}"
    return f"{path}: has changed since it was signed, or was signed for another purpose; {remedy}"


def _ssh_keygen(arguments: list[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ssh-keygen", *arguments], input=data, capture_output=True, timeout=_SECONDS, check=False)
