# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, files, job_files, packages
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.files import ImexError
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex.imex_fleet import addresses, tray

ROLE = Path(__file__).parents[5] / "roles" / "imex"
LIST = addresses(4)
OFFER = packages.Offer("nvidia-imex", "580.173.02-1")
TLS = {"key": "KEY\n", "certificate": "CERT\n", "authority": "CA\n"}


PLAN = ("clique", "nodes", "tls")


def desire(**more: Any) -> domain.DesiredState:
    """The desired state of a tray of clique r01. Arguments in PLAN go to the plan, others to the options."""
    plan = {"clique": "r01", "nodes": LIST, **{name: more.pop(name) for name in PLAN if name in more}}
    return domain.desired_state({"owner": "domain", **more}, plan)


def table(given: domain.DesiredState, major: int | None = 234) -> dict[str, str | None]:
    return {path: text for path, (text, _mode) in domain.files_of(given, "#!program\n", major, OFFER).items()}


def difference(
    given: domain.DesiredState, facts: dict[str, Any], config: str = "IMEX_CMD_ENABLED=1\n"
) -> domain.Difference:
    return domain.difference(given, facts, config, None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"nodes": ["10.0.0.1", "10.0.0.1"]}, "line 2"),
        ({"settings": {"SERVER_PORT": 70000}}, "option settings: SERVER_PORT is '70000'; use a number from 1 to 65535"),
        ({"settings": {"DAEMONIZE": 0}}, "DAEMONIZE is 0"),
        ({"channels": [-1]}, "option channels"),
        ({"list_port": 65536}, "option list_port is 65536; use a number from 1 to 65535"),
        ({"channel_count": 1 << 20}, "option channel_count"),
        ({"tls": {"key": "x"}}, "authority, certificate is missing"),
        ({"owner": "host_managed", "settings": {"IMEX_CMD_ENABLED": False}}, "the DRA driver needs '1'"),
    ],
)
def test_a_wrong_option_fails_with_one_sentence(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ImexError, match=re.escape(message)):
        desire(**more)


def test_host_managed_has_the_socket_of_the_dra_driver() -> None:
    assert desire(owner="host_managed").settings == {
        "IMEX_CMD_ENABLED": "1",
        "IMEX_CMD_UNIX_DOMAIN_PATH": "/etc/nvidia-imex/imex_ctrl.sock",
    }


def test_no_member_uses_up_the_socket_of_the_node_lists() -> None:
    """systemd.socket(5): connections of one source are limited, and their number in a time stops nothing for good."""
    text = str(table(desire())[domain.SOCKET_UNIT])
    assert {"Accept=yes", "MaxConnectionsPerSource=16", "TriggerLimitIntervalSec=0"} <= set(text.splitlines())


def test_tls_files_are_readable_by_root_only() -> None:
    given = desire(tls=TLS, settings={"IMEX_ENABLE_AUTH_ENCRYPTION": False})
    assert given.settings["IMEX_ENABLE_AUTH_ENCRYPTION"] == "1"
    assert given.settings["IMEX_CLIENT_CERT_AUTH"] == domain.TLS_FILES["authority"]
    files_of = domain.files_of(given, "", None, None)
    assert [files_of[path] for path in domain.TLS_FILES.values()] == [(text, 0o600) for text in TLS.values()]
    assert "KEY" not in str([text for path, (text, _mode) in files_of.items() if path != domain.TLS_FILES["key"]])


@pytest.mark.parametrize("owner", domain.OWNERS)
def test_each_owner_removes_the_files_of_the_others(owner: str) -> None:
    given = desire(owner=owner, tls=TLS, channels=[0], channel_count=64)
    texts = table(given)
    service = owner in domain.SERVICE_OWNERS
    for path in (domain.PROGRAM, domain.DROP_IN, domain.SOCKET_UNIT, domain.TMPFILES):
        assert (texts[path] is not None) == service, path
    # A job's daemons read their certificates there too.
    assert all((texts[path] is not None) == (service or owner == "job") for path in domain.TLS_FILES.values())
    assert (texts[domain.MODPROBE] is None) == (owner == "none")
    assert (texts[packages.APT_PIN] is not None) == (owner in ("domain", "host_managed", "job"))


@pytest.mark.parametrize(
    ("owner", "ports"),
    [("domain", (50100, 50005, 50006)), ("job", (50100, 50005)), ("driver_managed", ()), ("none", ())],
)
def test_the_ports_that_each_owner_needs_open(owner: str, ports: tuple[int, ...]) -> None:
    assert desire(owner=owner, settings={"SERVER_PORT": 50100}).ports_to_open == ports


def test_without_a_major_there_is_no_tmpfiles_rule() -> None:
    assert table(desire(channels=[0, 7]), None)[domain.TMPFILES] is None
    rule = table(desire(channels=[7, 0]))[domain.TMPFILES]
    assert rule is not None
    assert "c /dev/nvidia-caps-imex-channels/channel7 0666 root root - 234:7\n" in rule
    assert domain.channels_of_tmpfiles(rule) == {0, 7}


def test_a_tray_in_the_desired_state_has_no_difference() -> None:
    found = difference(desire(settings={"SERVER_PORT": 50000}), tray(0, 4))
    assert found == domain.Difference()


@pytest.mark.parametrize(
    ("more", "config", "clique", "own"),
    [
        ({"nodes": LIST[::-1]}, "", ["the node list of clique r01"], []),
        ({"settings": {"SERVER_PORT": 50100}}, "SERVER_PORT=50000\n", ["SERVER_PORT of config.cfg"], []),
        ({"settings": {"LOG_LEVEL": 3}}, "LOG_LEVEL=4\n", [], ["LOG_LEVEL of config.cfg"]),
        ({"settings": {"LOG_LEVEL": 4}}, "", [], []),
        ({"settings": {"IMEX_CONN_WAIT_TIMEOUT": 99}}, "", [], []),
        (
            {"settings": {"IMEX_CONN_WAIT_TIMEOUT": 99}},
            "IMEX_CONN_WAIT_TIMEOUT=70\n",
            [],
            ["IMEX_CONN_WAIT_TIMEOUT of config.cfg"],
        ),
        ({"tls": TLS}, "", ["IMEX_ENABLE_AUTH_ENCRYPTION of config.cfg"], None),
    ],
)
def test_changes_that_restart_the_clique_or_one_daemon(
    more: dict[str, Any], config: str, clique: list[str], own: list[str] | None
) -> None:
    found = difference(desire(**more), tray(0, 4), config)
    assert found.restart_clique == clique
    assert own is None or found.restart == own


def test_a_daemon_that_does_not_run_needs_no_restart() -> None:
    facts = {**tray(0, 4), "running": False}
    assert difference(desire(nodes=LIST[::-1]), facts) == domain.Difference()


def test_a_map_mismatch_restarts_the_clique() -> None:
    facts = tray(0, 4)
    facts["peers"][1]["connection"] = "map_mismatch"
    assert "(!M!)" in difference(desire(), facts).restart_clique[0]


def test_another_owner_stops_the_service() -> None:
    found = difference(desire(owner="driver_managed"), tray(0, 4))
    assert found.stop
    assert found.restart == ["owner driver_managed, which does not run nvidia-imex.service"]


def owned(*owners: str) -> dict[str, Any]:
    return {
        **tray(0, 4),
        "owners": [{"owner": owner, "why": f"found by {owner}", "pid": 7} for owner in owners],
        "findings": [],
    }


@pytest.mark.parametrize(
    ("owners", "owner", "stops"),
    [
        (["service"], "driver_managed", False),
        (["driver"], "domain", True),
        (["driver"], "none", True),
        (["prolog"], "domain", True),
        (["prolog"], "job", False),
        (["foreign"], "none", True),
    ],
)
def test_two_owners_block_a_change(owners: list[str], owner: str, stops: bool) -> None:
    notes = domain.findings_of(desire(owner=owner), owned(*owners), "580.173.02")
    assert [note["code"] for note in notes] == (["imex_two_owners"] if stops else [])


def test_without_a_drivers_version_nothing_is_installed() -> None:
    notes = domain.findings_of(desire(), owned(), None)
    assert [note["code"] for note in notes] == ["driver_missing"]
    assert domain.findings_of(desire(owner="none"), owned(), None) == []


def test_changed_driver_options_need_a_reboot() -> None:
    given = desire(channel_count=64, create_channel0=True)
    params = "ImexChannelCount: 2048\nCreateImexChannel0: 1\n"
    found = domain.reboot_needed(given, params, False)
    assert found is not None
    assert worded(found)["message"].startswith("NVreg_ImexChannelCount of ")
    assert domain.reboot_needed(given, "ImexChannelCount: 64\nCreateImexChannel0: 1\n", True) is None
    assert domain.reboot_needed(given, None, False) is None
    assert domain.reboot_needed(given, None, True) is not None
    assert domain.reboot_needed(desire(), params, True) is None


# The role's variables.


def load(name: str) -> Any:
    return yaml.safe_load((ROLE / name).read_text())


def test_every_key_of_config_cfg_is_a_role_variable_with_its_default() -> None:
    by_role = {"DAEMONIZE"} | set(files.SENSITIVE)
    keys = load("vars/main.yml")["imex_config_settings"]
    defaults, specs = load("defaults/main.yml"), load("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert set(keys) == set(files.KEYS) - by_role
    for key, template in keys.items():
        variable = re.fullmatch(r"\{\{ (imex_[a-z0-9_]+) \}\}", template).group(1)  # type: ignore[union-attr]
        assert files.check_settings({key: defaults[variable]}) == {key: files.KEYS[key].default}
        assert specs[variable]["default"] == defaults[variable]


def test_the_documented_ranges_of_role_variables_are_checked() -> None:
    """Each number has its range in the specification, and the modules reject values outside."""
    known = load("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    keys = {text.strip("{} "): key for key, text in load("vars/main.yml")["imex_config_settings"].items()}
    variables = load("vars/main.yml")
    checked = {}
    for ranges, options in ((domain.RANGES, "imex_domain_options"), (job_files.RANGES, "imex_job_options")):
        for name, limits in ranges.items():
            checked[re.findall(r"imex_[a-z0-9_]+", variables[options][name])[0]] = limits
    checked["imex_tls_days"] = (1, 36500)  # by an assertion of the role's own
    for name, option in known.items():
        if option["type"] not in ("int", "float") or "choices" in option:
            continue
        documented = re.search(r"from (-?[0-9]+)(?: \([^)]*\))?(?: to ([0-9]+))?", " ".join(option["description"]))
        assert documented, name
        if name in keys:
            key = files.KEYS[keys[name]]
            assert (key.kind, key.low) == ("number", int(documented[1])), name
            assert key.high == int(documented[2] or 2**31 - 1), name
        else:
            assert checked.pop(name) == (int(documented[1]), int(documented[2])), name
    assert not checked


def test_config_names_no_tls_file_of_the_role_without_tls() -> None:
    """A daemon of another owner would not start without these files."""
    ours = {key: value for key, value in desire(tls=TLS).settings.items() if key.startswith("IMEX_")}
    config = files.Config("".join(f"{key}={value}\n" for key, value in ours.items()))
    left = config.changed(domain.without_own_tls(config))
    assert not set(left.settings().values()) & set(domain.TLS_FILES.values())
    assert left.get("IMEX_ENABLE_AUTH_ENCRYPTION") == "0"
    assert domain.without_own_tls(left) == {}
    site = files.Config("IMEX_ENABLE_AUTH_ENCRYPTION=1\nIMEX_SERVER_KEY=/etc/pki/site.pem\n")
    assert domain.without_own_tls(site) == {}, "settings of the site stay"
