# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, domain, formats, packages
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.formats import ImexError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import variables as role_variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.clique import Clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.desired import desired_state
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex.imex_fleet import addresses, tray

ROLE = Path(__file__).parents[5] / "roles" / "imex"
LIST = addresses(4)
DROP_IN, LIST_SOCKET = "imex_drop_in_template", "imex_list_socket_template"
OFFER = packages.Offer("nvidia-imex", "580.173.02-1")
TLS = {"key": "KEY\n", "certificate": "CERT\n", "authority": "CA\n"}


def load(name: str) -> Any:
    return yaml.safe_load((ROLE / name).read_text())


def rendered(name: str, **variables: Any) -> str:
    """A template of the role, with these variables of the role."""
    role = {**load("defaults/main.yml"), **load("vars/main.yml")}
    trusted = {name: trust_as_template(value) if isinstance(value, str) else value for name, value in role.items()}
    text = trust_as_template((ROLE / "templates" / role[name]).read_text())
    return str(Templar(DataLoader(), {**trusted, **variables}).template(text) or "")


def config_of(**variables: Any) -> str:
    return rendered("imex_config_template", **variables)


def owned_by(owner: str, tls: str) -> Any:
    """The values of config.cfg that they need."""
    text = trust_as_template(load("vars/main.yml")["imex_config_owned"])
    role = {name: value for name, value in load("vars/main.yml").items() if name.startswith("imex_config_")}
    role.update(imex_owner=owner, imex_tls_used=tls != "off" and owner in ("domain", "host_managed", "job"))
    return Templar(DataLoader(), role).template(text)


def desire(**more: Any) -> domain.DesiredState:
    """The desired state of a tray of clique r01, by variables of the role, its nodes, config.cfg and TLS files."""
    owner, tls = more.get("owner", "domain"), more.pop("tls", {})
    kind = "site" if tls else "off"
    role = {f"imex_{name}": more[name] for name in ("channel_count", "create_channel0") if name in more}
    role.update(imex_owner=owner, imex_tls=kind)
    texts = {path: rendered(name, **role) for name, path in domain.TEMPLATES.items()}
    texts[formats.CONFIG_FILE] = more.pop("config", texts[formats.CONFIG_FILE])
    texts[domain.DROP_IN] = more.pop("drop_in", texts[domain.DROP_IN])
    entries = tuple(more.pop("nodes", LIST))
    clique = Clique("r01", tuple(f"t{number}" for number in range(len(entries))), entries)
    service = owner in domain.SERVICE_OWNERS
    usual = {**load("defaults/main.yml"), "imex_channel_count": None, "imex_create_channel0": None}
    options = {"imex_config_owned": owned_by(owner, kind), **{f"imex_{name}": value for name, value in more.items()}}
    used = tls if service or owner == "job" else {}
    return desired_state({**usual, **options}, texts, clique if service else None, "t0", used)


def table(given: domain.DesiredState) -> dict[str, str | None]:
    return {path: text for path, (text, _mode) in domain.files_of(given, OFFER).items()}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"config": "SERVER_PORT=70000\n"}, "config.cfg: SERVER_PORT is '70000'; use a number from 1 to 65535"),
        ({"config": "IMEX_CMD_PORT=\n"}, "config.cfg: IMEX_CMD_PORT is ''; use a number"),
        ({"list_port": 50005}, "Two of the ports 50000, 50005, 50005 of IMEX are equal; use three ports."),
        ({"config": "IMEX_NODE_CONFIG_FILE=nodes\n"}, "no absolute path"),
        ({"config": "DAEMONIZE=0\n"}, "DAEMONIZE is '0', but needs '1'"),
        ({"channels": [-1]}, "imex_channels"),
        ({"owner": "host_managed", "config": "IMEX_CMD_ENABLED=0\n"}, "but needs '1' with owner host_managed"),
        ({"tls": TLS, "config": "LOG_LEVEL=4\n"}, "needs '1' with owner domain; correct imex_config_extra"),
        (
            {"owner": "job", "drop_in": f"[Service]\nExecCondition={domain.PROGRAM} check\n"},
            "imex_drop_in_template: it names /usr/local/libexec/nvlink-imex, which owner job removes; leave",
        ),
    ],
)
def test_a_wrong_option_fails_with_one_sentence(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ImexError, match=re.escape(message)):
        desire(**more)


@pytest.mark.parametrize("line", [f"# not {domain.PROGRAM}", f"ExecStartPre={domain.PROGRAM}-job x", "Restart=no"])
def test_a_drop_in_of_the_site_for_owner_job_is_used(line: str) -> None:
    text = f"[Service]\n{line}\n"
    assert table(desire(owner="job", drop_in=text))[domain.DROP_IN] == text


SHARED = {domain.DROP_IN, domain.SOCKET_UNIT, domain.SERVICE_UNIT, domain.MODPROBE, *domain.TLS_FILES.values()}


@pytest.mark.parametrize(
    ("owner", "paths", "ports"),
    [
        ("domain", {*SHARED, domain.PROGRAM, packages.APT_PIN}, (50100, 50005, 50006)),
        ("host_managed", {*SHARED, domain.PROGRAM, packages.APT_PIN}, (50100, 50005, 50006)),
        # A job's daemons read their certificates there too.
        ("job", {*SHARED, domain.TMPFILES, packages.APT_PIN}, (50100, 50005, 50006)),
        ("driver_managed", {domain.MODPROBE}, ()),
        ("none", set(), ()),
    ],
)
def test_each_owner_removes_the_files_of_the_others(owner: str, paths: set[str], ports: tuple[int, ...]) -> None:
    config = config_of(imex_owner=owner, imex_tls="site", imex_config_extra={"SERVER_PORT": 50100})
    given = desire(owner=owner, tls=TLS, channel_count=64, config=config)
    assert {path for path, text in table(given).items() if text is not None} == paths
    assert given.ports_to_open == ports
    assert table(replace(given, pin_package=False))[packages.APT_PIN] is None
    files_of = domain.files_of(given, None).items()
    texts = {path: TLS[name] if path in paths else None for name, path in domain.TLS_FILES.items()}
    assert {path: entry for path, entry in files_of if path.startswith("/etc/nvidia")} == {
        path: (text, 0o600) for path, text in texts.items()
    }


def test_the_units_check_the_list_create_channels_and_limit_connections() -> None:
    lines = rendered(
        "imex_drop_in_template", imex_channels=[7, 0, 7], imex_boot_wait=30.5, imex_list_port=50106
    ).splitlines()
    assert f"ExecCondition={domain.PROGRAM} check --port 50106 --wait 30.5 --unconfirmed stay_off" in lines
    assert f"ExecStartPre=-{domain.PROGRAM} channels --proc-devices /proc/devices 0 7" in lines
    assert "TimeoutStartSec=150" in lines
    assert "ExecStartPre" not in rendered(DROP_IN)
    of_job = rendered(DROP_IN, imex_owner="job", imex_job_wait=61, imex_job_stop_wait=7)
    assert {"Restart=no", "TimeoutStartSec=61", "TimeoutStopSec=7"} <= set(of_job.splitlines())
    assert domain.PROGRAM not in of_job
    assert [
        rendered(name).count("nvlink-imex-list.socket")
        for name in ("imex_drop_in_template", "imex_list_socket_template")
    ] == [2, 0]
    # systemd.socket(5): connections of one source are limited, and their number in a time stops nothing for good.
    limits = {"Accept=yes", "MaxConnectionsPerSource=16", "TriggerLimitIntervalSec=0"}
    assert limits <= set(rendered(LIST_SOCKET).splitlines())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"channel_count": 64}, "NVreg_ImexChannelCount=64"),
        ({"create_channel0": False}, "NVreg_CreateImexChannel0=0"),
        ({"channel_count": 0, "create_channel0": True}, "NVreg_ImexChannelCount=0 NVreg_CreateImexChannel0=1"),
    ],
)
def test_the_options_of_the_driver(options: dict[str, Any], words: str) -> None:
    assert str(table(desire(**options))[domain.MODPROBE]).splitlines()[1:] == [f"options nvidia {words}"]
    assert table(desire())[domain.MODPROBE] is None


def test_a_site_switches_the_check_at_boot_and_its_port_off() -> None:
    given = desire()
    off = replace(given, files={formats.CONFIG_FILE: given.config})
    assert (given.offers_list, off.offers_list, off.ports_to_open) == (True, False, (50000, 50005))
    assert {table(off)[path] for path in (domain.DROP_IN, domain.SOCKET_UNIT, domain.SERVICE_UNIT)} == {None}


MISMATCH = [{**peer, "connection": "map_mismatch"} for peer in tray(0, 4)["peers"][:1]]
STOP = ["owner driver_managed, which does not run nvidia-imex.service"]


@pytest.mark.parametrize(
    ("more", "change", "config", "clique", "own"),
    [
        ({}, {}, "", [], []),
        # A list that was edited under a daemon with the right one is written again without a restart.
        ({}, {"nodes": {**tray(0, 4)["nodes"], "sha256": "0" * 64}}, "", [], []),
        ({"nodes": LIST[::-1]}, {"running": False}, "", [], []),
        ({}, {"peers": MISMATCH}, "", ["the lost connection to 198.51.100.12 (!M!)"], []),
        ({"owner": "driver_managed"}, {}, "", [], STOP),
        ({"nodes": LIST[::-1]}, {}, "", ["the node list of clique r01"], []),
        ({}, {}, "SERVER_PORT=50100\n", ["SERVER_PORT of config.cfg"], []),
        ({}, {}, "LOG_LEVEL=3\n", [], ["LOG_LEVEL of config.cfg"]),
        # NVIDIA's defaults, but for a key whose default differs by release.
        ({}, {}, "IMEX_CONN_WAIT_TIMEOUT=70\n", [], []),
        ({}, {}, "IMEX_CMD_ENABLED=\n", [], ["IMEX_CMD_ENABLED of config.cfg"]),
        # A key that left imex_config_extra.
        ({}, {}, "NEW=1\n", [], ["NEW of config.cfg"]),
        ({"tls": TLS}, {}, config_of(imex_tls="site"), [], []),
        ({"tls": TLS}, {}, "IMEX_ENABLE_AUTH_ENCRYPTION=0\n", ["IMEX_ENABLE_AUTH_ENCRYPTION of config.cfg"], None),
    ],
)
def test_a_difference_restarts_the_clique_or_one_daemon(
    more: dict[str, Any], change: dict[str, Any], config: str, clique: list[str], own: list[str] | None
) -> None:
    """config: what config.cfg has on the tray besides the keys of the command service."""
    text = f"IMEX_CMD_ENABLED=1\nIMEX_CMD_PORT=50005\n{config}"
    present = tray(0, 4, config={"path": formats.CONFIG_FILE, "text": text})["config"]
    observed = {**tray(0, 4), "config": present, **change}
    restart_clique, restart = domain.difference(desire(**more), observed, None)
    assert restart_clique == clique
    assert own is None or restart == own


def test_the_record_keeps_since_when_the_tray_has_the_list() -> None:
    given = desire()
    first = boot.parse_record(domain.render_record(given, 1, None, 100.0))
    assert first is not None
    assert boot.parse_record(domain.render_record(replace(given, channels=(0,)), 2, first, 200.0))["since"] == 100.0
    assert boot.parse_record(domain.render_record(desire(nodes=LIST[::-1]), 2, first, 200.0))["since"] == 200.0


@pytest.mark.parametrize(
    ("owners", "owner", "change", "codes"),
    [
        (["service"], "driver_managed", {}, []),
        (["driver"], "domain", {}, ["imex_two_owners"]),
        (["driver"], "none", {}, ["imex_two_owners"]),
        (["prolog"], "domain", {}, ["imex_two_owners"]),
        (["prolog"], "job", {}, []),
        (["foreign"], "none", {}, ["imex_two_owners"]),
        ([], "domain", {"driver_version": None}, ["driver_missing"]),
        ([], "none", {"driver_version": None}, []),
    ],
)
def test_another_owner_and_an_unknown_driver_block_a_change(
    owners: list[str], owner: str, change: dict[str, Any], codes: list[str]
) -> None:
    found = [{"owner": other, "why": f"found by {other}", "pid": 7} for other in owners]
    notes = domain.findings_of(desire(owner=owner), {**tray(0, 4), "owners": found, **change})
    assert [note["code"] for note in notes] == codes


def test_changed_driver_options_need_a_reboot() -> None:
    given = desire(channel_count=64, create_channel0=True)
    params = {"ImexChannelCount": 2048, "CreateImexChannel0": 1}
    found = domain.reboot_needed(given, params, False)
    assert found is not None
    assert worded(found)["message"].startswith("NVreg_ImexChannelCount of ")
    assert domain.reboot_needed(given, {**params, "ImexChannelCount": 64}, True) is None
    assert domain.reboot_needed(given, {}, False) is None
    assert domain.reboot_needed(given, {}, True) is not None
    assert domain.reboot_needed(desire(), params, True) is None


# The role's variables.


def test_config_cfg_has_nvidias_defaults_and_what_owner_tls_and_site_set() -> None:
    usual = formats.Config(config_of()).settings()
    assert usual == {key: formats.KEYS[key] for key in usual}
    assert set(formats.KEYS) - set(usual) == {"DAEMONIZE", "IMEX_CONN_WAIT_TIMEOUT", *formats.SENSITIVE}
    site = formats.Config(config_of(imex_config_extra={"SERVER_PORT": 50100, "LOG_USE_SYSLOG": True, "NEW": "x y"}))
    assert site.settings() == {**usual, "SERVER_PORT": "50100", "LOG_USE_SYSLOG": "1", "NEW": "x y"}
    host = formats.Config(config_of(imex_owner="host_managed")).settings()
    assert host == {**usual, "IMEX_CMD_UNIX_DOMAIN_PATH": domain.HOST_SOCKET}
    assert config_of(imex_owner="none", imex_tls="site") == config_of()


def test_a_variable_outside_its_range_is_wrong() -> None:
    given = {"imex_boot_wait": 2, "imex_list_port": "65536", "imex_pin_package": True}
    of_role = dict.fromkeys(("imex_config_owned", "imex_tls_used"))
    with pytest.raises(ImexError) as wrong:
        role_variables.values({"ansible_role_name": role_variables.ROLE, **of_role, **given}, lambda value: value)
    assert str(wrong.value).endswith(
        "imex_boot_wait is 2.0; use a number from 3 to 3600.; imex_list_port is 65536; use a number from 1 to 65535."
    )
    with pytest.raises(ImexError, match="a part of the role"):
        role_variables.values(given, lambda value: value)


def test_the_documented_ranges_of_role_variables_are_checked() -> None:
    """Each number has its range in the specification, and the modules reject values outside."""
    known = load("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    checked = dict(role_variables.RANGES)
    for name, option in known.items():
        if option["type"] not in ("int", "float") or "choices" in option:
            continue
        documented = re.search(r"from (-?[0-9]+)(?: \([^)]*\))?(?: to ([0-9]+))?", " ".join(option["description"]))
        assert documented, name
        assert checked.pop(name) == (int(documented[1]), int(documented[2])), name
    assert not checked
