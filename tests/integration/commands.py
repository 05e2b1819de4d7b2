# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the tests run Ansible: real processes, with its own defaults and with each check on that hides no attack."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
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


def unchanged(output: str) -> bool:
    """Whether the output has a recap in which no host has a change."""
    return set(re.findall(r" changed=(\d+)", output)) == {"0"}
