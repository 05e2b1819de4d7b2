# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Support bundles: nothing of the site is left, and what was equal, a prefix or a hostlist stays so."""

from __future__ import annotations

import ipaddress
import json
import re
import time
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import bundle
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture.kinds import Substitutes
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets, standin_text
from hypothesis import given
from hypothesis import strategies as st

LABEL = st.from_regex(r"[a-z]{2,8}-?[a-z]{0,4}[0-9]{1,3}", fullmatch=True)
DOMAIN = st.sampled_from(["", ".corp.example.com", ".lab.example.org"])
NAMES = st.lists(st.builds(str.__add__, LABEL, DOMAIN), min_size=1, max_size=8, unique=True)
UUIDS = st.lists(st.uuids().map(str), min_size=1, max_size=8, unique=True)
IPV4 = st.lists(st.ip_addresses(v=4).map(str), min_size=1, max_size=8, unique=True)
IPV6 = st.lists(st.ip_addresses(v=6).map(str), max_size=4, unique=True)
SERIALS = st.lists(st.from_regex(r"[0-9]{3}[0-9A-Z]{5,10}", fullmatch=True), max_size=4, unique=True)
GUIDS = st.lists(st.integers(1 << 32, (1 << 64) - 1).map(hex), max_size=4, unique=True)
ZERO_UUID = "00000000-0000-0000-0000-000000000000"


def replaced(**fields: list[str]) -> list[str]:
    """What stands for values, kind by kind."""
    of = Substitutes()
    for _step in ("collect", "replace"):
        found = [getattr(of, kind)(text) for kind, texts in fields.items() for text in texts]
        of.assign()
    return found


@given(NAMES, UUIDS, IPV4, IPV6, SERIALS, GUIDS)
def test_no_identifier_is_left_and_different_ones_stay_different(
    names: list[str], uuids: list[str], ipv4: list[str], ipv6: list[str], serials: list[str], guids: list[str]
) -> None:
    given = {"uuid": uuids, "serial": serials, "guid": guids, "name": [*names, *ipv4, *ipv6]}
    found = replaced(**given)
    originals = [text for texts in given.values() for text in texts]
    assert len(found) == len(originals) == len(set(found))
    secret = {one for one in originals if one not in ("0.0.0.0", "::", "::1", ZERO_UUID)}
    secret = {one for one in secret if not one.startswith("127.")}
    secret = {one for one in secret if one not in serials or set(one) != {"0"}}
    assert not secret & set(found)
    assert replaced(**given) == found


@given(NAMES)
def test_names_keep_prefixes_digits_and_order_of_their_numbers(names: list[str]) -> None:
    found = dict(zip(names, replaced(name=names), strict=True))
    for name, other_name in found.items():
        assert re.findall("[0-9]+", other_name) == re.findall("[0-9]+", name)
        assert other_name.count(".") == name.count(".")
        for other in names:
            same = re.split("[0-9]", name)[0] == re.split("[0-9]", other)[0]
            assert same == (re.split("[0-9]", other_name)[0] == re.split("[0-9]", found[other])[0])


def test_addresses_keep_their_networks_and_last_numbers() -> None:
    texts = ["192.0.2.7", "192.0.2.9", "192.0.3.7", "fd12:3456::1", "fd12:3456::2", "10.0.0.1", "127.0.0.1", "0.0.0.0"]
    one, two, other, six, next_six, ten, *own = replaced(name=texts)
    assert not ten.startswith("10.0.0.")
    assert own == ["127.0.0.1", "0.0.0.0"]
    assert (one.rpartition(".")[0], one.rpartition(".")[2]) == (two.rpartition(".")[0], "7")
    assert one.rpartition(".")[0] != other.rpartition(".")[0]
    assert ipaddress.ip_network(f"{six}/64", strict=False) == ipaddress.ip_network(f"{next_six}/64", strict=False)


def test_names_that_hold_an_address_follow_it() -> None:
    names = ["10.1.2.3", "ip-10-1-2-3.ec2.internal", "ip-10-1-2-[3-4]", "10.1.2.[3-4]"]
    address, *found = replaced(name=names)
    network = address.rpartition(".")[0]
    assert f"-{network.replace('.', '-')}-3." in found[0]
    assert found[1].endswith(f"-{network.replace('.', '-')}-[3-4]")
    assert found[2] == f"{network}.[3-4]"


@pytest.mark.parametrize("name", ["1042", "42acme", "../x", "züri-7", "a b", "fe80::1%eth0", "[2001:db8::9]:6817"])
def test_a_name_of_any_form_is_replaced_and_is_a_name_of_a_folder(name: str) -> None:
    [found] = replaced(name=[name])
    assert found != name
    assert re.fullmatch("[a-z0-9:]+", found)


KEPT = {
    "plain": ("580.173.02", "97.00.B9.00.76", "00000008:06:00.0", "NVIDIA GB200", "P0"),
    "guid": ("0x0000000000000004", "N/A"),
    "uuid": (ZERO_UUID, "N/A", ""),
    "serial": ("0", "N/A", ""),
    "name": ("N/A", "(null)", "localhost"),
}


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        *((kind, text, text) for kind, texts in KEPT.items() for text in texts),
        ("plain", "jdoe@fs9", "xxxx@xx0"),
        ("guid", "AB12CD", "XX00XX"),
        ("uuid", "GPU-7", "XXX-0"),
        ("version", "6.8.0-1021-acme7", "6.8.0-1021-xxxx0"),
    ],
)
def test_what_identifies_nothing_stays_and_of_a_value_of_another_form_the_shape(
    kind: str, text: str, found: str
) -> None:
    assert replaced(**{kind: [text]}) == [found]


# ------------------------------------------------------------------------------------------------------------- bundles


def whole(made: bundle.Bundle) -> str:
    return "\n".join([*made.files, *made.files.values()])


def printed(name: str, text: str, problem: str | None = None) -> dict[str, Any]:
    """An output as the module returns it."""
    return {"name": name, "problem": problem, "parts": [text]}


def tray(number: int, *outputs: dict[str, Any]) -> bundle.Host:
    """A tray that printed nvidia-smi's XML, or these outputs."""
    facts = list(fleets.fleet(racks=1, trays_per_rack=2).values())[number - 1]
    found = list(outputs) or [printed("nvidia-smi.xml", standin_text.smi_text(facts))]
    nvml = {"problem": None, "driver_version": "580.173.02", "count": 0, "gpus": []}
    return bundle.Host(f"gb7n{number:02d}", {"versions": {}, "findings": [], "nvml": nvml, "outputs": found})


# ~w, ~d, ~a, ~u and ~g stand for a word, a serial number, an address, a UUID and a GUID, each of its own.
XML = """~w ~a
<?xml version="1.0" ?>
<nvidia_smi_log><!-- ~w > ~w --><?~w x?><![CDATA[~w]]>< ~w
<serial>~d</serial><uuid>GPU-~u</uuid><clusterUuid>~u</clusterUuid><chassis_serial_number>~d</chassis_serial_number>
<pdi>~g</pdi><gpu_fabric_guid>~g</gpu_fabric_guid><state>/srv/~w</state><product_name>~w@~w</product_name>
<hostname>~w</hostname><hostname at="~w"/><rack_guid>~d</rack_guid><new_element>~a ~u</new_element><x name="~w">~w</x>
<process_name>/home/~w/~w.py</process_name><process_name>~w<process_name>x</process_name>
<process_name><b>~w</b> & ~w</process_name><process_name>x</process_name>~w</process_name></nvidia_smi_log>"""
IMEX = """{"nodes": {"0": {"host": "~w", "hostName": "~a", "new": ["~w"], "at": ~d, "connections": {"0": {"host": "~a"},
"~w": {"host": "~w"}}}, "~w": {}}, "status": "@~w"}"""
NVML = """{"problem": "~w failed", "driver_version": "#~w", "count": 1, "gpus": [{"index": 0, "code": 0, "name": "~w@x",
"uuid": "GPU-~u", "pdi": "~g", "platform": {"chassis_serial": "~d",
"fabric_guid": "~g"}, "structs": [{"version": 9, "bytes": "~d"}]}]}"""
FACTS = """{"versions": {"kernel": "6.8.0-~w", "driver": "~w", "imex_package": "1:580.1-~w"}, "findings": [{"code": "x",
"severity": "error", "message": "~w", "values": {"hosts": ["~w"]}, "tray": "~w", "gpu": 1}]}"""
SETTINGS = """AccountingStorageHost AccountingStoragePass AccountingStorageUser AuthInfo ClusterName Epilog MailProg
ControlMachine JobCompHost JobCompLoc JobCompPass JobCompUser LicenseParameters Licenses MailDomain PluginDir
SlurmUser SlurmctldHost[0] SlurmctldLogFile SlurmdUser StateSaveLocation X11Parameters DefaultStorageUser
SchedulerParameters SlurmctldParameters SwitchParameters LaunchParameters CommunicationParameters GresTypes
SlurmdParameters ReconfigFlags PriorityType TopologyParam"""
OTHER_LINES = "\n# ~w\nSlurmctld(primary) at ~w is UP\nClusterName = 42~w\nSlurmUser = 42~w\nAuthInfo=~a(~w)"
BLOCKS = """BlockName=~w BlockIndex=0 Nodes=~wn[01-02],~a,~d BlockSize=2
SwitchName=42~w Level=0 LinkSpeed=~w Switches=~w[1-9] ~w"""
FORMS = {"w": "canary{:03d}", "d": "77{:03d}44155", "a": "192.{}.2.7", "g": "0xc0ffee{:010d}"}


def test_no_canary_of_any_field_is_in_the_bundle() -> None:
    canaries: list[str] = []

    def planted(text: str) -> str:
        def canary(found: re.Match[str]) -> str:
            number = len(canaries)
            uuid_of = f"c{number:07d}-7777-4444-9999-{number:012d}"
            canaries.append(FORMS.get(found[1], uuid_of).format(number))
            return canaries[-1]

        return re.sub("~([wdaug])", canary, text)

    config = "\n".join(f"{name} = {value}" for name in SETTINGS.split() for value in ("~w", "~a", "a=/~w,b"))
    tools = {
        "imex-state.txt": "~w ~a",
        "imex.json": IMEX,
        "nvidia-smi.xml": XML,
        "x.txt": "~w",
    }
    outputs = [printed(name, planted(text), planted("exit 9 ~w")) for name, text in tools.items()]
    answer = {**json.loads(planted(FACTS)), "nvml": json.loads(planted(NVML)), "outputs": outputs}
    canaries.append(planted("~u").replace("-", ""))
    answer["nvml"]["gpus"][0]["structs"].append({"version": 4, "code": 0, "bytes": canaries[-1] + "0" * 64})
    slurm = {"config.txt": config + OTHER_LINES, "topology.txt": BLOCKS}
    hosts = [bundle.Host(planted(name), answer) for name in ("~w.~w.net", "~a", "~d")]
    controllers = [bundle.Host("ctl", {"outputs": [printed(name, planted(text)) for name, text in slurm.items()]})]
    made = bundle.make(hosts, controllers)
    assert len(canaries) > 116
    assert [canary for canary in canaries if canary in whole(made).lower()] == []
    for kept in ("new_element", "<rack_guid>0000000000</rack_guid>", '"connections"', "BlockName", "SwitchParameters"):
        assert kept in whole(made)


LIKE_TOOLS = ["driver_version", "READY", "null", "state", "at", "backup", "SLURMCTLD", "slurm", "GB200"]


@pytest.mark.parametrize("name", [*LIKE_TOOLS, "1042", "x" * 9999, "slurm.corp2.net"])
def test_no_name_of_a_tray_or_cluster_stops_the_bundle(name: str) -> None:
    settings = f"ClusterName = {name}\nSlurmctldHost[1] = {name}(192.0.2.3)\nSlurmctld(primary) at {name} is UP\n"
    controller = bundle.Host("head1", {"outputs": [printed("config.txt", settings)]})
    made = bundle.make([tray(1), bundle.Host(name, tray(2).answer)], [controller])
    trays = json.loads(made.files["bundle.json"])["trays"]
    assert len(trays) == 2
    assert "corp2" not in whole(made)
    assert all(json.loads(made.files[f"trays/{one}/nvml.json"])["driver_version"] == "580.173.02" for one in trays)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.txt", "\n" * 100_000 + " " * 100_000 + "\nx"),
        ("config.txt", "SlurmdParameters = " + "a" * 100_000 + "@"),
        ("topology.txt", "BlockName=" + "a-" * 4000 + " Nodes=" + "a" * 100_000 + "@"),
        ("topology.txt", "\n".join(f"BlockName=b{number} Nodes=n{number}x[00001-65536]" for number in range(80))),
        ("topology.txt", "Nodes=" + "[" * 100_000 + " Nodes=" + "[1," * 100_000),
        ("topology.txt", " ".join(f"Nodes={number}-{number}-1-1" for number in range(9000))),
        ("topology.txt", "Nodes=" + ",".join(f"2001:{at >> 15:x}:{at & 32767:x}::1" for at in range(3000))),
        ("imex.json", "[" * 100_000),
        ("nvidia-smi.xml", "<" * 100_000),
        ("nvidia-smi.xml", "<x>" + "<process_name>" * 9000),
        ("nvidia-smi.xml", "<x>" + "".join(f"<serial>{number:05d}</serial>" for number in range(1, 20_000))),
    ],
    ids=lambda value: value if len(value) < 20 else value[:20].strip().replace(" ", ""),
)
def test_a_hostile_answer_takes_linear_time(name: str, text: str) -> None:
    began = time.process_time()
    bundle.make([tray(1, printed(name, text))], [])
    assert time.process_time() - began < 20


def test_what_a_new_driver_adds_keeps_its_name_and_shape_and_a_broken_document_stays_broken() -> None:
    text = (
        '<?xml version="1.0" ?>\n<nvidia_smi_log><gpu id="00000008:06:00.0"><x_link>GB-7 ab</x_link><state>New</state>'
    )
    made = bundle.make([tray(1, printed("nvidia-smi.xml", text))], [])
    [written] = [text for path, text in made.files.items() if path.endswith("nvidia-smi.xml")]
    assert written == text.replace("GB-7 ab", "XX-0 xx")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("No devices were found\n", "No devices were found\n"),
        ("Unable to determine the device handle for GPU0000:0F:00.0: Unknown Error on fs9\n<?xml ?>\n", "Unable to"),
        ("Failed to initialize fs9: Driver/library version mismatch", "Driver/library version mismatch\n"),
    ],
)
def test_the_known_part_of_a_text_in_place_of_xml_stays(text: str, written: str) -> None:
    made = bundle.make([tray(1, printed("nvidia-smi.xml", text, "exit 9"))], [])
    [found] = [text for path, text in made.files.items() if path.endswith("nvidia-smi.xml")]
    assert found.startswith(written)
    assert "fs9" not in found
    [row] = json.loads(made.files["bundle.json"])["trays"].values()
    assert row["outputs"]["nvidia-smi.xml"] == {"command": "nvidia-smi -q -x", "problem": "exit 9"}


@pytest.mark.parametrize(
    ("problem", "written"), [("no answer in time",) * 2, ("203.0.113.77:6817 (02:42:c0:a8:07:09): refused", "failed")]
)
def test_the_reason_of_a_failure_is_left_out_and_its_kind_stays(problem: str, written: str) -> None:
    made = bundle.make([tray(1)], [bundle.Host("head1", {"outputs": [printed("topology.txt", "", problem)]})])
    [row] = json.loads(made.files["bundle.json"])["slurm"].values()
    assert row["outputs"]["topology.txt"]["problem"] == written


@pytest.mark.parametrize("value", ["fm_url=https://fm.corp2.example.net", "a,b=jdoe@fm.corp2.example.net,c=1"])
def test_of_a_kept_setting_the_values_of_the_site_are_removed(value: str) -> None:
    settings = f"SwitchParameters = {value}\nSchedulerParameters = bf_window=9\nAccountingStoragePass = hunter2\n"
    made = bundle.make([tray(1)], [bundle.Host("head1", {"outputs": [printed("config.txt", settings)]})])
    [config] = [text for path, text in made.files.items() if path.endswith("config.txt")]
    assert "=(removed)" in config
    assert not re.search("corp2|jdoe|hunter2|StoragePass", config)
    assert "SchedulerParameters = bf_window=9" in config
