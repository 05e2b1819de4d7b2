# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host did not answer: one cause for the many texts of ssh, sudo and Python, so that equal ones are one. Pure."""

from __future__ import annotations

import re

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.checks import ERROR, Check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import sentence

_SSH, _BECOME, _PYTHON, _ANSWER = "ssh", "become", "python", "answer"
# Pattern of the message -> check and sentence; {0} is what the pattern's group found.
_CAUSES = (
    (
        r"(Permission denied \([a-z,-]+\))",
        _SSH,
        "{0}: install the public key of Ansible's user there, or set ansible_user and ansible_ssh_private_key_file",
    ),
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        _SSH,
        "the host key is unknown or has changed: compare it with the host's and add it to known_hosts (ssh-keyscan)",
    ),
    (
        r"Could not resolve hostname",
        _SSH,
        "the name does not resolve: set ansible_host to the address, or correct the inventory name",
    ),
    (
        r"(Connection refused|No route to host|Network is unreachable|Connection timed out|Operation timed out"
        r"|Connection closed|Connection reset)",
        _SSH,
        "{0}: check the power of the host, its network and sshd",
    ),
    (
        r"(Missing sudo password|[Aa] password is required|Incorrect sudo password|not in the sudoers file"
        r"|may not run sudo|Timeout .{0,20}waiting for privilege escalation prompt|sudo: .{0,40}not found)",
        _BECOME,
        "{0}: allow sudo without a password, or set ansible_become_password (from a vault), or run with -K",
    ),
    (
        r"requires a minimum of Python.{0,60}Current version: ?([0-9.]+)|future feature annotations is not defined",
        _PYTHON,
        "Python {0} is too old: set ansible_python_interpreter to Python 3.9 or later",
    ),
    (
        r"interpreter .{0,200}not found|(?:python[0-9.]*|interpreter).{0,80}(?:[Nn]ot found|No such file)"
        r"|No python interpreters found",
        _PYTHON,
        "there is no Python where ansible_python_interpreter names it: install Python 3.9 or later, or correct the"
        " variable",
    ),
)


def of(host: str, message: str) -> Check:
    """The check that a host failed by not answering."""
    for pattern, name, text in _CAUSES:
        found = re.search(pattern, message, re.DOTALL)
        if found:
            quoted = next((group for group in found.groups() if group), "of the host")
            return Check(name, ERROR, text.format(sentence(quoted)), host)
    text = sentence(message.replace(host, "the host"), 300) or "no answer"
    return Check(_ANSWER, ERROR, f"{text}: run ansible with -m ansible.builtin.ping -vvv on the host", host)
