# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Support bundles: nothing of the site is left, and what was equal, a prefix or a hostlist stays so."""

from __future__ import annotations

import ipaddress
import json
import re
import struct
import time
import uuid
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvidia_smi
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import anonymise, bundle
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture.anonymise import Anonymiser, CaptureError
from hypothesis import given
from hypothesis import strategies as st

LABEL = st.from_regex(r"[a-z]{2,8}-?[a-z]{0,4}[0-9]{1,3}", fullmatch=True)
DOMAIN = st.sampled_from(["", ".corp.example.com", ".lab.example.org"])
NAMES = st.lists(st.builds(str.__add__, LABEL, DOMAIN), min_size=1, max_size=8, unique=True)
UUIDS = st.lists(st.uuids().map(str), min_size=1, max_size=8, unique=True)
IPV4 = st.lists(st.ip_addresses(v=4).map(str), min_size=1, max_size=8, unique=True)
# Of an IPv4-mapped address the IPv4 part is replaced alone, which is not the form that is compared here.
IPV6 = st.lists(
    st.ip_addresses(v=6).filter(lambda address: address.ipv4_mapped is None).map(str), max_size=4, unique=True
)
SERIALS = st.lists(st.from_regex(r"[0-9]{3}[0-9A-Z]{5,10}", fullmatch=True), max_size=4, unique=True)
MACS = st.lists(st.binary(min_size=6, max_size=6).map(lambda raw: raw.hex(":")), max_size=4, unique=True)


@given(NAMES, UUIDS, IPV4, IPV6, SERIALS, MACS)
def test_no_identifier_is_left_and_different_ones_stay_different(
    names: list[str], uuids: list[str], ipv4: list[str], ipv6: list[str], serials: list[str], macs: list[str]
) -> None:
    originals = [*names, *uuids, *ipv4, *ipv6, *serials, *macs]
    text = "".join(f"key={original} ({original}), GPU-{original};\n" for original in originals)
    anonymiser = Anonymiser([text], names, serials)
    written = anonymiser.rewrite(text)
    secret = [one for one in originals if one not in ("0.0.0.0", "::", "::1", anonymise.ZERO_UUID)]
    secret = [one for one in secret if not one.startswith("127.") and one != "255.255.255.255"]
    secret = [one for one in secret if one not in serials or len(set(one)) > 1]
    assert anonymise.leftovers({"a.txt": written}, secret) == []
    found = [re.search(r"key=(\S+) ", line) for line in written.splitlines()]
    substitutes = [match[1] for match in found if match]
    assert len(substitutes) == len(originals) == len(set(substitutes))
    assert anonymiser.rewrite(text) == written
    assert anonymiser.rewrite(written) == written


@pytest.mark.parametrize("serial", ["00000001", "000000000001", "00000002"])
def test_no_part_of_a_substitute_is_a_serial_number_of_the_site(serial: str) -> None:
    text = f"{serial} 2f2dbb4d-9d2b-4a83-8d2e-4a1f2e1c9b01 7f2dbb4d-9d2b-4a83-8d2e-4a1f2e1c9b02"
    written = Anonymiser([text], [], [serial]).rewrite(text)
    assert anonymise.leftovers({"a.txt": written}, [serial]) == []


@given(NAMES)
def test_names_keep_prefixes_digits_and_order_of_their_numbers(names: list[str]) -> None:
    rewrite = Anonymiser([], names, []).rewrite
    for name in names:
        assert re.findall("[0-9]+", rewrite(name)) == re.findall("[0-9]+", name)
        assert rewrite(name).count(".") == name.count(".")
        assert rewrite(f"{name}.") == f"{rewrite(name)}."
        for other in names:
            same = re.split("[0-9]", name)[0] == re.split("[0-9]", other)[0]
            assert same == (re.split("[0-9]", rewrite(name))[0] == re.split("[0-9]", rewrite(other))[0])


def test_a_hostlist_is_that_of_the_substitutes() -> None:
    hosts = expand("gb200-rack[01-02]-t[01-18],login1")
    rewrite = Anonymiser([], hosts, []).rewrite
    listed = rewrite("Nodes=gb200-rack[01-02]-t[01-18],login1")
    assert listed.startswith("Nodes=")
    assert expand(listed.partition("=")[2]) == [rewrite(host) for host in hosts]


def test_addresses_keep_their_networks_and_last_numbers() -> None:
    text = "192.0.2.7 192.0.2.9 192.0.3.7 fd12:3456::1 fd12:3456::2 10.0.0.1 127.0.0.1 0.0.0.0"
    one, two, other, six, next_six, ten, *own = Anonymiser([text], [], []).rewrite(text).split()
    assert own == ["127.0.0.1", "0.0.0.0"]
    assert (one.rpartition(".")[0], one.rpartition(".")[2]) == (two.rpartition(".")[0], "7")
    assert one.rpartition(".")[0] != other.rpartition(".")[0]
    assert one.split(".")[:2] == other.split(".")[:2] != ten.split(".")[:2]
    assert ipaddress.ip_network(f"{six}/64", strict=False) == ipaddress.ip_network(f"{next_six}/64", strict=False)


def test_names_that_hold_an_address_follow_it() -> None:
    rewrite = Anonymiser(["10.1.2.3"], ["ip-10-1-2-3.ec2.internal", "ip-10-1-2-4.ec2.internal"], []).rewrite
    network = rewrite("10.1.2.3").rpartition(".")[0].replace(".", "-")
    assert f"-{network}-3." in rewrite("ip-10-1-2-3.ec2.internal")
    assert f"-{network}-[3-4]" in rewrite("ip-10-1-2-[3-4]")


@pytest.mark.parametrize(
    "text",
    [
        "580.173.02 97.00.B9.00.76 00000008:06:00.0 nvidia-imex-ctl R570 P0 13.0",
        "0x0000000000000004 00000000-0000-0000-0000-000000000000 12:30:45 32766",
    ],
)
def test_versions_numbers_and_masks_stay(text: str) -> None:
    assert Anonymiser([text], ["ctl", "p01", "r01"], ["0"]).rewrite(text) == text


def test_a_name_of_digits_alone_is_refused() -> None:
    with pytest.raises(CaptureError, match="1042 has no letter"):
        bundle.make([bundle.Host("1042", (), {"outputs": []})], [])


# ------------------------------------------------------------------------------------------------------------- bundles

CONFIG = """\
Configuration data as of 2026-11-23T18:00:00
AuthAltParameters       = (null)
AuthAltTypes            = (null)
AuthType                = auth/munge
AuthInfo                = socket=/run/secret-munge
AccountingStorageHost   = db7.corp.example.com
AccountingStoragePass   = hunter22
ClusterName             = alpine
SlurmUser               = jdoe(1234)
SlurmctldHost[0]        = head1.corp.example.com(192.0.2.1)
StateSaveLocation       = /srv/acme/slurm
TopologyPlugin          = topology/block
TreeWidth               = 16

Slurmctld(primary) at head1.corp.example.com is UP
"""
TOPOLOGY = "BlockName=gb7 BlockIndex=0 Nodes=gb7n[01-02] BlockSize=2\n"
CLUSTER = uuid.UUID("5d1f9d30-3d5b-4b0a-9a55-0c9f6a7b8c9d")


def tray(number: int) -> bundle.Host:
    facts = list(simulation.fleet(racks=1, trays_per_rack=2).values())[number - 1]
    for gpu in facts["gpus"]:
        gpu["fabric"]["cluster_uuid"] = str(CLUSTER)
    xml = simulation.nvidia_smi_xml({**facts, "cluster_uuid": str(CLUSTER)})
    xml = xml.replace("<processes>", "<processes><process_name>/home/jdoe/secret.py</process_name>")
    structs = [
        {"version": 4, "code": 13, "bytes": ""},
        {
            "version": 3,
            "code": 0,
            "bytes": struct.pack("<I16sIIB3xIB3x", 0x3000028, CLUSTER.bytes, 0, 7, 3, 170, 1).hex(),
        },
    ]
    gpus = [
        {
            "index": gpu["index"],
            "code": 0,
            "uuid": gpu["uuid"],
            "pdi": gpu["fabric_guid"],
            "platform": {"chassis_serial": facts["chassis_serial"]},
            "structs": structs,
        }
        for gpu in facts["gpus"]
    ]
    name = f"gb7n{number:02d}"
    address = f"192.0.2.{10 + number}"
    answer: dict[str, Any] = {
        "names": [f"{name}.corp.example.com", address],
        "versions": {"driver": "580.173.02"},
        "findings": [{"code": "imex_peer", "severity": "error", "message": f"{name} ({address}) lost gb7n02."}],
        "nvml": {"problem": None, "driver_version": "580.173.02", "count": 4, "gpus": gpus},
        "outputs": [
            {"name": "nvidia-smi.xml", "command": "nvidia-smi -q -x", "problem": None, "parts": [xml[:99], xml[99:]]},
            {"name": "../evil", "command": "", "problem": None, "parts": ["x"]},
        ],
    }
    return bundle.Host(name, (address,), answer)


def controller() -> bundle.Host:
    outputs = [
        {"name": "topology.txt", "command": "scontrol show topology", "problem": None, "parts": [TOPOLOGY]},
        {"name": "config.txt", "command": "scontrol show config", "problem": None, "parts": [CONFIG]},
    ]
    return bundle.Host("head1", (), {"names": ["head1.corp.example.com"], "outputs": outputs})


def test_a_bundle_has_what_the_tools_printed_and_no_name_of_the_site() -> None:
    down = bundle.Host("gb7n03", (), None, "unreachable")
    made = bundle.make([tray(1), tray(2), down], [controller()])
    whole = "\n".join([*made.files, *made.files.values()])
    for original in (
        *("gb7n01", "gb7n", "corp.example", "alpine", "jdoe", "hunter22", "head1", "db7", "/srv/acme", "secret"),
        *("192.0.2.", str(CLUSTER), CLUSTER.hex, "/home"),
    ):
        assert original not in whole
    index = json.loads(made.files["bundle.json"])
    assert [row["problem"] for row in index["trays"].values()] == [None, None, "unreachable"]
    one, two = list(index["trays"])[:2]
    assert not any("evil" in path for path in made.files)
    # The parser reads from it what it reads from the original, and the two sources of a tray still agree.
    readings = nvidia_smi.parse_xml(made.files[f"trays/{one}/nvidia-smi.xml"])
    raw = json.loads(made.files[f"trays/{one}/nvml.json"])
    for gpu, other in zip(readings.gpus, raw["gpus"]):
        assert gpu["uuid"] == other["uuid"]
        assert gpu["fabric_guid"] == other["pdi"]
        assert gpu["platform"]["chassis_serial"] == other["platform"]["chassis_serial"]
        data = bytes.fromhex(other["structs"][1]["bytes"])
        assert gpu["fabric"]["cluster_uuid"] == str(uuid.UUID(bytes=data[4:20]))
        assert gpu["fabric"]["clique_id"] == 32766
        assert data[24:28] == b"\x07\0\0\0"
    [controller_name] = index["slurm"]
    topology = made.files[f"slurm/{controller_name}/topology.txt"]
    nodes = re.search(r"Nodes=(\S+)", topology)
    assert nodes is not None
    assert expand(nodes[1]) == [one, two]
    config = made.files[f"slurm/{controller_name}/config.txt"]
    assert "TopologyPlugin          = topology/block" in config
    assert "TreeWidth               = 16" in config
    assert "AccountingStoragePass   = (removed)" in config
    assert made.removed == 10
    assert made.counts["UUIDs"] == 9


def test_a_secret_that_another_file_holds_stops_the_bundle() -> None:
    host = tray(1)
    assert host.answer is not None
    host.answer["outputs"][0]["parts"].append("<!-- hunter22 -->")
    with pytest.raises(CaptureError, match="would still hold 'hunter22' after anonymising"):
        bundle.make([host], [controller()])


def changed_controller(settings: str, problem: str = "") -> bundle.Host:
    """The controller with further settings, and a command that failed."""
    host = controller()
    assert host.answer is not None
    host.answer["outputs"][1]["parts"].append(settings)
    failed = {"name": "other.txt", "command": "scontrol show other", "problem": problem or None, "parts": []}
    host.answer["outputs"].append(failed)
    return host


def test_what_is_only_in_the_reason_of_a_failure_is_replaced() -> None:
    problem = "connect to [2001:db8:7::9]:6817 (02:42:c0:a8:07:09) or 203.0.113.77:6817: refused"
    made = bundle.make([tray(1)], [changed_controller("", problem)])
    assert not re.search("2001:db8|203[.]0|c0:a8", "\n".join(made.files.values()))


@pytest.mark.parametrize("value", ["fm_url=https://fm.corp2.example.net", "a,b=jdoe@fm.corp2.example.net,c=1"])
def test_of_a_kept_setting_the_values_of_the_site_are_removed(value: str) -> None:
    settings = f"SwitchParameters = {value}\nSchedulerParameters = bf_window=9\n"
    made = bundle.make([tray(1)], [changed_controller(settings)])
    [config] = [text for path, text in made.files.items() if path.endswith("config.txt")]
    assert "=(removed)" in config
    assert not re.search("corp2|jdoe", config)
    assert "SchedulerParameters = bf_window=9" in config


@pytest.mark.parametrize("name", ["slurm", "GB200", "slurm.corp2.example.net"])
def test_a_cluster_named_as_the_tools_name_things_is_captured(name: str) -> None:
    settings = f"ClusterName = {name}\nSlurmctldHost[1] = {name}(192.0.2.3)\n"
    made = bundle.make([tray(1)], [changed_controller(settings)])
    assert "corp2" not in "\n".join(made.files.values())


def test_of_the_config_only_settings_and_headings_stay() -> None:
    lines = ("# of jdoe", "Cgroup Support Configuration:", "  free text on fs9.corp2.example.net", "TreeWidth = 9")
    made = bundle.make([tray(1)], [changed_controller("\n".join(lines))])
    [config] = [text for path, text in made.files.items() if path.endswith("config.txt")]
    assert config.endswith("(removed)\nCgroup Support Configuration:\n(removed)\nTreeWidth = 9")
    assert config.startswith("Configuration data as of 2026-11-23T18:00:00\n")
    assert re.search(r"\n\nSlurmctld\(primary\) at \S+ is UP\n", config)


def test_a_hostile_config_takes_linear_time() -> None:
    began = time.process_time()
    bundle.make([tray(1)], [changed_controller("\n" * 300_000 + " " * 300_000 + "\nx")])
    assert time.process_time() - began < 20


def test_the_home_of_a_user_and_any_guid_of_the_rack_are_replaced() -> None:
    host = tray(1)
    assert host.answer is not None
    message = '"/home/jroe/bin/nvidia-smi" cannot be started'
    host.answer["findings"].append({"code": "driver_missing", "severity": "error", "message": message})
    parts = "".join(host.answer["outputs"][0]["parts"]).replace(
        "<platformInfo>", "<platformInfo><rack_guid>AB12CD34EF</rack_guid>"
    )
    host.answer["outputs"][0]["parts"] = [parts]
    whole = "\n".join(bundle.make([host], []).files.values())
    assert "rack_guid" in whole
    assert not re.search("jroe|AB12CD34EF", whole)


def test_the_whole_name_of_a_process_is_removed() -> None:
    host = tray(1)
    assert host.answer is not None
    row = "<process_name>/home/jdoe/<b>private & secret</process_name>"
    parts = host.answer["outputs"][0]["parts"]
    host.answer["outputs"][0]["parts"] = ["".join(parts).replace("<processes>", f"<processes>{row}", 1)]
    whole = "\n".join(bundle.make([host], []).files.values())
    assert not re.search("jdoe|private|secret", whole)
