# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats, status
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import rows
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex.imex_fleet import (
    CONFIG,
    addresses,
    answer,
    codes,
    domain_json,
    process,
    tray,
    unit,
)
from hypothesis import given
from hypothesis import strategies as st

NONE = {"major": 234, "devices": []}
HUNG = child.Result(None, "", "", timed_out=True, survivor_pid=4711)
STOPPED = {"processes": [], "answers": {}, "unit": unit(active="inactive", enabled="disabled", main_pid=None)}
RUNS = "[Nov 21 2026 05:00:00] [INFO] [tid 8] IMEX version 580.173.02 is running with the following\n"


def answers(state: str = "READY\n", domain: Any = None, **cells: Any) -> dict[str, Any]:
    """What the ctl of t0 prints. domain: a text or a result instead of that of a domain with these cells."""
    text = domain_json(addresses(3), **cells) if domain is None else domain
    return {"state": answer(state), "domain": answer(text) if isinstance(text, str) else text}


def test_a_healthy_tray_has_no_finding() -> None:
    facts = tray(1)
    assert facts["findings"] == []
    assert facts["reason"] is None
    assert (facts["ready"], facts["state"], facts["domain_state"]) == (True, "ready", "up")
    assert (facts["version"], facts["nodes"]["own_id"]) == ("580.173.02", 1)
    assert facts["peers"] == [
        {"id": 0, "host": "198.51.100.11", "connection": "connected", "state": "ready"},
        {"id": 2, "host": "198.51.100.13", "connection": "connected", "state": "ready"},
    ]
    assert facts["owners"] == [{"owner": "service", "why": "process 812 belongs to nvidia-imex.service", "pid": 812}]


def test_only_the_own_row_is_used() -> None:
    cells = {(1, 0): "INVALID", (1, 2): "NODE_MAP_MISMATCH", (2, 0): "RECOVERING"}
    facts = tray(0, answers=answers(cells=cells, states={1: "UNAVAILABLE"}, status="DEGRADED"))
    assert {peer["connection"] for peer in facts["peers"]} == {"connected"}
    assert codes(facts) == ["imex_peer_lost"]


def test_an_own_row_that_was_filled_in_is_not_used() -> None:
    gone = answers("Query Status returned error code: 14\n", cells={(0, 1): "INVALID"}, states={0: "UNAVAILABLE"})
    facts = tray(answers=gone)
    assert (facts["state"], facts["peers"]) == (None, [])
    assert codes(facts) == ["imex_not_ready"]


def test_json_of_early_releases_is_parsed() -> None:
    """Ids with gaps, a version that is none, no hostName, tabs, and unknown keys."""
    nodes = {
        "2": {"status": "READY", "host": "192.0.2.9", "gpus": 4},
        "0": {"status": "READY", "connections": {"2": {"host": "192.0.2.9", "status": "CONNECTED"}}, "version": "N/A"},
    }
    facts = tray(answers=answers(domain=json.dumps({"nodes": nodes, "status": "DOWN", "new": {}}, indent="\t")))
    assert [peer["connection"] for peer in facts["peers"]] == [None, "connected"]
    assert (facts["domain_state"], facts["version"]) == ("down", "580.173.02")


def edited(**record: float) -> dict[str, Any]:
    """Readings of a tray whose list was edited after the daemon has started at 1000."""
    known = {"clique": "r01", "generation": 3, "sha256": "0" * 64, **record}
    nodes = {"path": formats.NODES_FILE, "text": "198.51.100.11\n198.51.100.12\n198.51.100.13\n", "changed_at": 1100.0}
    return {"record": {"path": formats.RECORD_FILE, "text": json.dumps(known)}, "nodes": nodes}


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("NODE_MAP_MISMATCH", "imex_list_differs"),
        ("CONFIG_MISMATCH", "imex_list_differs"),
        ("VERSION_MISMATCH", "imex_peer_version"),
        ("AUTHENTICATION_ERROR", "imex_peer_authentication"),
        ("AUTH_FAILED", "imex_peer_authentication"),
        ("AUTHENTICATING", "imex_peer_lost"),
        ("NEVER_CONNECTED", "imex_peer_lost"),
    ],
)
def test_each_connection_state_of_a_lost_peer_has_its_finding(word: str, code: str) -> None:
    facts = tray(answers=answers(cells={(0, 2): word}, status="DEGRADED"))
    assert codes(facts) == [code]
    assert "198.51.100.13" in facts["findings"][0]["message"]
    assert "198.51.100.12" not in facts["findings"][0]["message"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({**STOPPED}, []),
        ({**STOPPED, "program": None, "version": None, "package": None}, ["imex_missing"]),
        ({"processes": [], "answers": {}, "unit": unit(active="inactive", main_pid=None)}, ["imex_unit_down"]),
        ({**STOPPED, "unit": unit(active="failed", result="exit-code")}, ["imex_unit_down"]),
        ({**STOPPED, "persist": {"path": "x", "exists": True}}, ["imex_persist_left"]),
        ({"persist": {"path": "x", "exists": True}}, []),
        ({"answers": answers(domain=HUNG)}, ["imex_timeout"]),
        *(
            ({"answers": answers(domain=text)}, ["imex_not_ready"])
            for text in ("Killed", "[]", '{"nodes": []}', "{" * 9999)
        ),
        ({"answers": answers(domain=answer(domain_json([]), 3))}, ["imex_not_ready"]),
        *(({"answers": answers(state)}, ["imex_not_ready"]) for state in ("INIT_GPU\n", "SOME_NEW_STATE\n")),
        ({"driver_version": "595.58.03"}, ["imex_version_mismatch"]),
        ({"answers": answers(version="595.58.03")}, ["imex_version_mismatch"]),
        ({"config": {"path": "/x", "text": None}}, ["imex_list_unusable"]),
        ({"config": {"path": "/x", "text": "IMEX_CMD_ENABLED=0\n"}, "answers": {}}, ["imex_cmd_disabled"]),
        ({"addresses": ["198.51.100.77"]}, ["imex_no_own_address"]),
        ({"processes": [process(started_at=800.0)]}, ["imex_restart_pending"]),
        (edited(since=990.0), ["imex_list_outdated"]),
        (edited(since=1100.0), ["imex_list_outdated", "imex_restart_pending"]),
        # Of an earlier release.
        (edited(), ["imex_list_outdated", "imex_restart_pending"]),
        ({"channels": NONE}, ["imex_channel_missing"]),
        ({"channels": {**NONE, "major": None}}, ["imex_channel_missing", "imex_channels_off"]),
        # Somebody else gives jobs a channel: Slurm's plugin, a prolog, the DRA driver.
        ({"channels": NONE, "slurm_gives_channels": True}, []),
        ({"channels": NONE, "prolog_gives_channels": True}, []),
        ({"channels": NONE, "config": {"path": "/x", "text": f"{CONFIG}IMEX_CMD_UNIX_DOMAIN_PATH=/x.sock\n"}}, []),
        (
            {"channels": {"major": 9, "devices": [{"name": "channel0", "major": 8, "minor": 0, "mode": "0666"}]}},
            ["imex_channel_stale"],
        ),
        ({"unit": unit(active="activating")}, ["imex_unit_starting"]),
        (
            {
                "channels": {"major": 8, "devices": [{"name": "channel0", "major": 8, "minor": 0, "mode": "0666"}]},
                "slurm_gives_channels": True,
            },
            ["imex_channel_slurm_conflict"],
        ),
        ({"prolog_files": ["/etc/slurm/prolog.d/imex.sh"]}, ["imex_two_owners"]),
        ({**STOPPED, "prolog_files": ["/etc/slurm/prolog.d/imex.sh"]}, []),
        ({**STOPPED, "processes": [process(7, cgroup="/kubepods.slice/x", argv=["nvidia-imex"])]}, ["imex_not_ready"]),
        ({"processes": [process(), process(9, "compute-domain-", cgroup="/x")]}, ["imex_two_owners"]),
        ({"processes": [process(), process(9, cgroup="/user.slice")]}, ["imex_two_owners"]),
        (
            {"unit": unit(enabled="disabled", active="inactive"), "processes": [process(9, cgroup="/user.slice")]},
            ["imex_foreign_daemon"],
        ),
        ({"unit": unit(enabled="disabled"), "processes": [process(cgroup="/x/slurmstepd")]}, []),
    ],
)
def test_each_fault_has_its_finding(changes: dict[str, Any], expected: list[str]) -> None:
    assert codes(tray(**changes)) == expected


def test_the_command_line_of_a_foreign_daemon_is_not_shown() -> None:
    argv = ["nvidia-imex", "-c", "/x.cfg", "--secret=abc"]
    foreign = [process(9, argv=argv, cgroup="/user.slice")]
    facts = tray(unit=unit(enabled="disabled", active="inactive"), processes=foreign)
    assert facts["owners"][0]["why"] == "process 9 (nvidia-imex) has no known owner"
    assert "secret" not in str(facts)


def test_waiting_for_recovery_names_the_missing_peers() -> None:
    facts = tray(answers=answers("WAITING_FOR_RECOVERY\n", cells={(0, 1): "NEVER_CONNECTED"}, status="DEGRADED"))
    assert codes(facts) == ["imex_peer_lost", "imex_waiting_for_recovery"]
    assert "(198.51.100.12 not connected)" in facts["reason"]
    assert not facts["ready"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Failed to allocate Imex session with the driver: NV_ERR_IN_USE", "imex_in_use"),
        ("NvGpu Library version 1 is not matching with current GPU driver version 2", "imex_version_mismatch"),
        ("No matching network interface found for any IP addresses", "imex_no_own_address"),
    ],
)
def test_a_cause_in_the_log_counts_until_the_next_start(line: str, code: str) -> None:
    failed = {"processes": [], "answers": {}, "unit": unit(active="failed", main_pid=None)}
    assert codes(tray(**failed, log=f"{RUNS}{line}\n")) == sorted([code, "imex_unit_down"])
    assert codes(tray(**failed, log=f"{line}\n{RUNS}")) == ["imex_unit_down"]
    assert codes(tray(log=f"{RUNS}{line}\n")) == []


def test_a_list_with_a_wrong_line_and_one_that_was_edited() -> None:
    text = "198.51.100.11\n\n198.51.100.12\n"
    record = json.dumps({"clique": "r01", "generation": 7, "sha256": "0" * 64, "owner": ["domain"]})
    changes = {"nodes": {"path": "/n", "text": text, "changed_at": 900.0}, "record": {"path": "/r", "text": record}}
    facts = tray(**changes, **STOPPED)
    assert codes(facts) == ["imex_list_outdated", "imex_list_unusable"]
    assert [facts["nodes"][key] for key in ("generation", "clique", "recorded_owner")] == [7, "r01", None]
    assert "generation 7 of clique r01" in facts["findings"][1]["message"]


def test_an_unreadable_list_is_reported_once() -> None:
    refused = child.Result(255, "Failed to read node configuration file /n", "")
    facts = tray(
        nodes={"path": "/n", "text": None, "changed_at": None}, answers={"state": answer("", 1), "domain": refused}
    )
    assert codes(facts).count("imex_list_unusable") == 1


def test_a_key_pasted_into_the_configuration_is_not_shown() -> None:
    text = "IMEX_SERVER_KEY=-----BEGIN PRIVATE KEY----- abc\nIMEX_CLIENT_KEY=/etc/nvidia-imex/tls/key.pem\nNEW=1\n"
    config = tray(config={"path": "/c", "text": text})["config"]
    assert config["settings"] == {
        "IMEX_SERVER_KEY": None,
        "IMEX_CLIENT_KEY": "/etc/nvidia-imex/tls/key.pem",
        "NEW": "1",
    }
    assert config["unknown_keys"] == ["NEW"]


def test_a_gpuless_daemon_has_no_version_to_compare() -> None:
    facts = tray(answers=answers(version="NO_GPU"), version=None)
    assert facts["version"] is None
    assert codes(facts) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("570.172.08", "570.172.08", True),
        # AWS's table of 18 ready nodes: package 570.172.08, Version 570.172.
        ("570.172", "570.172.08", True),
        ("570.172.08", "570.172.18", False),
        ("570.17", "570.172.08", False),
        # A branch alone is no version of a driver.
        ("570", "570.172.08", False),
    ],
)
def test_a_version_that_ends_early_is_the_same_version(one: str, other: str, same: bool) -> None:
    assert status.is_same_version(one, other) == status.is_same_version(other, one) == same


TEXT = st.text(max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT | st.sampled_from(["READY", "CONNECTED", "UP"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
CELL = st.sampled_from(["CONNECTED", {"status": "CONNECTED"}]) | st.fixed_dictionaries({"status": JSON}) | JSON
CELLS = st.dictionaries(st.sampled_from(["0", "1", "x"]), CELL)
NODE = st.fixed_dictionaries({"status": JSON, "version": JSON, "connections": CELLS | JSON})
DOMAIN = st.fixed_dictionaries({"nodes": st.fixed_dictionaries({"0": NODE | JSON}), "status": JSON})


@given(TEXT, DOMAIN.map(json.dumps), st.lists(TEXT))
def test_any_readings_of_a_tray_give_facts(state: str, domain: str, texts: list[str]) -> None:
    entries = formats.render_nodes(addresses(3))
    nodes, config, record, log, *_rest = [*texts, entries, "", "", ""] if texts[3:] else [entries, *texts, "", "", ""]
    facts = tray(
        answers=answers(state, domain),
        nodes={"path": "/n", "text": nodes, "changed_at": 1.0},
        config={"path": "/c", "text": config},
        record={"path": "/r", "text": record},
        log=log,
    )
    assert facts["running"]
    rows.SCHEMA["row"]({"facts": {**facts, "findings": []}})
    for note in facts["findings"]:
        assert note["message"].isprintable()
        assert "{{" not in note["message"]
