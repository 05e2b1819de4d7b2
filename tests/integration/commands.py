# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the tests run Ansible: real processes, with its own defaults and with each check on that hides no attack."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

# Facts stay variables and pipelining stays off, as users have them: neither may be set here.
STRICT = {
    "ANSIBLE_DEPRECATION_WARNINGS": "true",
    "ANSIBLE_LOCALHOST_WARNING": "false",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
    # A value that a tray sent must never be rendered as a template.
    "_ANSIBLE_TEMPLAR_UNTRUSTED_TEMPLATE_BEHAVIOR": "error",
}
# In place of the user's own ansible.cfg: how often a waiting Ansible looks for results, and nothing else.
CONFIG = Path(__file__).with_name("ansible.cfg")


LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


def unreachable(folder: Path) -> dict[str, str]:
    """Variables of a host that nobody reaches; the folder gets the ssh that fails."""
    nowhere = folder / "ssh-to-nowhere"
    nowhere.write_text("#!/bin/sh\nexit 255\n")
    nowhere.chmod(0o755)
    return {"ansible_connection": "ssh", "ansible_ssh_executable": str(nowhere)}


def environment(**more: str) -> dict[str, str]:
    """The environment of a strict run that finds the checkout's collection; `more` wins."""
    collections = os.environ.get("ANSIBLE_COLLECTIONS_PATH") or sysconfig.get_path("purelib")
    return {**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections, **STRICT, **more}


def ansible(
    program: str,
    *arguments: str | Path,
    check: bool = True,
    timeout: float = 300.0,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """Run one of ansible-core's programs; with `check` a failure fails the test, and so do two kinds of warnings.

    By module name rather than by script, since a chroot of tests has the libraries but not their scripts.
    """
    entry = program.removeprefix("ansible-") if program != "ansible" else "adhoc"
    done = subprocess.run(
        [sys.executable, "-m", "ansible", entry, *map(str, arguments)],
        env=environment(**{"ANSIBLE_CONFIG": str(CONFIG), **more}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert "[DEPRECATION WARNING]" not in done.stderr, done.stderr
        assert "Using a template for task args" not in done.stderr, done.stderr
    return done


def on_terminal(
    answer: str, prompt: str, command: Sequence[str], folder: Path, settings: dict[str, str], timeout: float = 300.0
) -> tuple[int, str]:
    """(exit status, output) of a command on a terminal of its own, which types the answer after the prompt."""
    terminal, other_end = pty.openpty()
    os.set_blocking(terminal, False)
    process = subprocess.Popen(
        ["setsid", "--ctty", *command],
        cwd=folder,
        env=settings,
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
    )
    os.close(other_end)
    output, deadline = "", time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < deadline:
        output += _printed(terminal)
        # Repeated, since Ansible drops what was typed before it reads.
        if prompt in output:
            os.write(terminal, f"{answer}\r".encode())
        time.sleep(0.5)
    process.kill()
    output += _printed(terminal)
    os.close(terminal)
    return process.wait(), output.replace("\r\n", "\n")


def _printed(terminal: int) -> str:
    """What a terminal got since the last call."""
    parts = []
    # No more for now, or its other end is closed.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 4096):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


def unchanged(output: str) -> bool:
    """Whether the output has a recap in which no host has a change."""
    return set(re.findall(r" changed=(\d+)", output)) == {"0"}
