# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host did not answer: one cause for the many texts of ssh, sudo and Python, so that equal ones are one. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.results import check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

_CAUSES = (
    (
        r"Permission denied \([a-z,-]+\)",
        "ssh",
        "install the public key of Ansible's user there, or set ansible_user and ansible_ssh_private_key_file",
    ),
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        "ssh",
        "compare the host's key, and add it to known_hosts (ssh-keyscan)",
    ),
    (r"Could not resolve hostname", "ssh", "set ansible_host to the address, or correct the inventory name"),
    (
        r"Connection refused|No route to host|Network is unreachable|Connection timed out|Operation timed out"
        r"|Connection closed|Connection reset",
        "ssh",
        "check the power of the host, its network and sshd",
    ),
    (
        r"Missing sudo password|[Aa] password is required|Incorrect sudo password|not in the sudoers file"
        r"|may not run sudo|Timeout .{0,20}waiting for privilege escalation prompt"
        r"|no sudo at \S+|sudo -n does not start its Python \(.{1,200}?\)",
        "become",
        "allow sudo without a password, or set ansible_become_password (from a vault), or run with -K",
    ),
    (
        r"(sudo|su|doas): .{0,40}not found",
        "become",
        "install it there, or connect as root and set ansible_become: false",
    ),
    (
        r"requires a minimum of Python.{0,60}Current version: ?[0-9.]+|future feature annotations is not defined"
        r"|interpreter .{0,200}not found|(?:python[0-9.]*|interpreter).{0,80}(?:[Nn]ot found|No such file)"
        r"|No python interpreters found|no Python at \S+|Python is too old or incomplete",
        "python",
        "install Python 3.9 or later, or set ansible_python_interpreter to it",
    ),
)
"""Pattern of the message, of which what matches is shown; the check; and the remedy."""


def problem(answer: Mapping[str, Any]) -> str:
    """The message of a module that failed on a host, with what the host printed instead of its result; may be empty."""
    texts = (answer.get("msg"), answer.get("module_stderr") or answer.get("module_stdout"))
    return ": ".join(str(text).strip() for text in texts if text)


def of(host: str, message: str) -> Finding:
    """The check that a host failed by not answering."""
    for pattern, name, remedy in _CAUSES:
        found = re.search(pattern, message, re.DOTALL)
        if found:
            return check(name, ERROR, f"{sentence(found[0])}: {remedy}", host)
    text = sentence(message.replace(host, "the host"), 300) or "no answer"
    return check("answer", ERROR, f"{text}: run ansible with -m ansible.builtin.ping -vvv for the host", host)
