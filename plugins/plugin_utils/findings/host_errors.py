# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cause alone in what Ansible or ssh says of a host that it could not use: equal ones are equal texts. Pure."""

from __future__ import annotations

import re

MAX_LENGTH = 160

# What Ansible and ssh write around a cause, and what of it differs from host to host.
_FRAME = (
    (re.compile(r"Warning: Permanently added \S+ \(\S+\) to the list of known hosts\.? *"), ""),
    (re.compile(r"^(Task failed|Action failed|Failed to connect to the host via ssh|ssh): *"), ""),
    # With pipelining, where ssh has ended before Ansible wrote to it.
    (
        re.compile(r'^Data could not be sent to remote host "[^"]*"\. Make sure this host can be reached over ssh: *'),
        "",
    ),
    (re.compile(r"^connect to (host )?\S+ port ([0-9]+): "), r"port \2: "),
    (re.compile(r"^Could not resolve hostname \S+: "), "its address cannot be resolved: "),
    (re.compile(r"^[^\s:@]+@[^\s:]+: "), ""),
    (re.compile(r"^([A-Z][a-z ]+) (by|from|to|with) \S+ port [0-9]+"), r"\1"),
    (
        re.compile(r"^((No )?(\S+ )?[Hh]ost key( is known)?) for \S+( has changed| was revoked)? and you have .*"),
        r"\1\5",
    ),
    (re.compile(r"\.? *>>> Standard Error *"), ": "),
)


def cause(problem: str) -> str:
    """The cause alone in the message of a task or of ssh."""
    text, before = problem, None
    # One message may stand in several frames: `Task failed: Failed to connect ...: ssh: ...`.
    while text != before:
        before = text
        for form, with_what in _FRAME:
            text = form.sub(with_what, text)
    text = text.strip().rstrip(".") or problem
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."
