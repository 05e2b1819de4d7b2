# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings import lines
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.host_errors import MAX_LENGTH, cause

SSH = "Task failed: Failed to connect to the host via ssh: "


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (f"{SSH}root@r01t01: Permission denied (publickey).", "Permission denied (publickey)"),
        (
            f"{SSH}Warning: Permanently added '10.0.0.1' (ED25519) to the list of known hosts. root@r01t01: "
            "Permission denied (publickey,password)",
            "Permission denied (publickey,password)",
        ),
        (f"{SSH}ssh: connect to host 10.0.0.1 port 22: Connection refused", "port 22: Connection refused"),
        (
            f"{SSH}ssh: Could not resolve hostname r01t01: Name or service not known",
            "its address cannot be resolved: Name or service not known",
        ),
        (
            "Task failed: Premature end of stream waiting for become success. >>> Standard Error sudo: no password",
            "Premature end of stream waiting for become success: sudo: no password",
        ),
        ('Data could not be sent to remote host "a". Make sure this host can be reached over ssh: ssh: x', "x"),
        ("Host key for r01t01 has changed and you have requested strict checking.", "Host key has changed"),
        (
            "ED25519 host key for [10.0.0.6]:22 was revoked and you have requested strict checking.",
            "ED25519 host key was revoked",
        ),
        ("ECDSA host key for r01t01 has changed and you have requested strict checking.", "ECDSA host key has changed"),
        ("Connection reset by 10.0.0.6 port 22", "Connection reset"),
        ("Connection closed by UNKNOWN port 65535", "Connection closed"),
        (f"{SSH}Connection to fd00::6 port 22 timed out", "Connection timed out"),
        ("Disconnected from 10.0.0.6 port 22", "Disconnected"),
        (
            "Unable to negotiate with 10.0.0.6 port 22: no matching host key type found. Their offer: ssh-rsa",
            "Unable to negotiate: no matching host key type found. Their offer: ssh-rsa",
        ),
        ("Missing sudo password", "Missing sudo password"),
        ("ssh:", "ssh:"),
    ],
)
def test_the_cause_has_neither_ansibles_frame_nor_the_host(problem: str, expected: str) -> None:
    assert cause(problem) == expected


def test_equal_causes_are_one_with_the_hosts_folded_and_most_hosts_first() -> None:
    problems = [("r01t03", "timed out"), *((f"r01t{n:02}", f"root@r01t{n:02}: denied") for n in (2, 1))]
    assert lines.grouped(problems) == ["2 trays (r01t[01-02]): denied", "1 tray (r01t03): timed out"]


def test_names_that_do_not_fold_are_bounded() -> None:
    assert lines.folded((f"t{n:02}" for n in range(1, 19)), "host") == "18 hosts (t[01-18])"
    odd = lines.folded("x" * n for n in range(1, 200))
    assert odd.startswith("199 trays (x, xx, xxx, xxxx, xxxxx and 194 more)")


def test_the_causes_of_hostile_hosts_are_bounded() -> None:
    found = lines.grouped((f"t{n}", f"{n} " + "x" * 1000) for n in range(200))
    assert len(found) == lines.MAX_CAUSES + 1
    assert found[-1] == f"{200 - lines.MAX_CAUSES} trays with other causes"
    assert all(len(text) < MAX_LENGTH + 40 for text in found)
