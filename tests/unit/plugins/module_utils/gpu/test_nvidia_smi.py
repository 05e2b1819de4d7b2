# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvidia_smi
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import ZERO_UUID
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import (
    DriverError,
    unknown_gpu,
    unknown_health,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays

HEALTHY = {
    "summary": "healthy",
    "degraded_bandwidth": False,
    "route_recovery": False,
    "route_unhealthy": False,
    "access_timeout_recovery": False,
    "incorrect_configuration": None,
    "partition_assigned": None,
    "fabric_manager_connected": None,
}


def _failure(text: str) -> dict[str, Any]:
    with pytest.raises(DriverError) as caught:
        nvidia_smi.parse_xml(text)
    return worded(caught.value.finding)


def test_a_healthy_gb200_tray() -> None:
    readings = nvidia_smi.parse_xml(trays.smi())
    assert readings.findings == []
    assert readings.complete
    assert readings.driver_version == "580.173.02"
    assert readings.gpus[1] == {
        "index": 1,
        "uuid": "GPU-5a0c11e1-7d3b-4f10-9c22-0b6e4d1f2a30",
        "name": "NVIDIA GB200",
        "pci_bus_id": "00000000:2A:00.0",
        "module_id": 2,
        "fabric_guid": "0x5e1f00aa00c3d101",
        "pdi": "0x5e1f00aa00c3d101",
        "mig_enabled": False,
        "recovery_action": "none",
        "fabric": {
            "state": "completed",
            "status": "success",
            "cluster_uuid": "7b1d4c52-90fe-4a6d-b3c8-2f5a6e7d8091",
            "clique_id": 2,
            "cliques": None,
            "health": HEALTHY,
        },
        "platform": {"chassis_serial": "1825000000417", "slot_number": 14, "tray_index": 4, "host_id": 1},
    }


def test_an_hgx_h100_has_a_zero_uuid_no_platform_and_no_health() -> None:
    readings = nvidia_smi.parse_xml(trays.smi("hgx_h100"))
    gpu = readings.gpus[0]
    assert gpu["fabric"] == {
        "state": "completed",
        "status": "success",
        "cluster_uuid": None,
        "clique_id": 0,
        "cliques": None,
        "health": unknown_health(),
    }
    assert set(gpu["platform"].values()) == {None}
    assert (gpu["module_id"], gpu["fabric_guid"]) == (2, None)
    # Two of the eight GPUs that it counts are described.
    assert [found["code"] for found in readings.findings] == ["gpu_lost"]
    assert not readings.complete


def test_a_vera_rubin_tray_has_cliques_by_kind_and_a_connected_fabric_manager() -> None:
    """The shape of driver 615.23 on a pre-release tray, whose product had no name yet."""
    readings = nvidia_smi.parse_xml(trays.smi("vr200"))
    assert (readings.driver_version, readings.findings) == ("615.23", [])
    assert {gpu["name"] for gpu in readings.gpus} == {"NVIDIA Graphics Device"}
    kinds = ("unicast_pointer", "multicast_pointer", "unicast_logical_endpoint", "multicast_logical_endpoint")
    fabric = readings.gpus[0]["fabric"]
    assert (fabric["clique_id"], fabric["cliques"]) == (32766, {kind: [32766] for kind in kinds})
    health = {"incorrect_configuration": "none", "partition_assigned": True, "fabric_manager_connected": True}
    assert fabric["health"] == {**HEALTHY, **health}


@pytest.mark.parametrize(
    ("old", "new", "expected", "noted"),
    [
        (">Multicast Pointer<", ">Multicast Sparse<", [], 0),
        ("<clique_type>Multicast Pointer</clique_type>", "", [], 0),
        ("<clique_type>Multicast Pointer</clique_type>", "<clique_type><a/></clique_type>", [], 0),
        (
            ">Multicast Pointer</clique_type>\n\t\t\t\t\t<clique_id>32766<",
            ">Multicast Pointer</clique_type>\n\t\t\t\t\t<clique_id>x<",
            [],
            2,
        ),
        (">Unicast LE<", ">Multicast Pointer<", [32766, 32766], 0),
    ],
)
def test_a_clique_that_cannot_be_used_is_left_out(old: str, new: str, expected: list[int], noted: int) -> None:
    text = trays.smi("vr200")
    changed = text.replace(old, new)
    assert changed != text
    readings = nvidia_smi.parse_xml(changed)
    assert [gpu["fabric"]["cliques"]["multicast_pointer"] for gpu in readings.gpus] == [expected] * 2
    assert [row["code"] for row in readings.findings] == ["unusable_value"] * noted


@pytest.mark.parametrize("rows", ["", "N/A", "<clique_entry>7</clique_entry>"])
def test_a_list_without_a_clique_is_unknown(rows: str) -> None:
    text = trays.smi().replace("</fabric>", f"<cliques>{rows}</cliques></fabric>")
    readings = nvidia_smi.parse_xml(text)
    assert ([gpu["fabric"]["cliques"] for gpu in readings.gpus], readings.findings) == ([None] * 2, [])


@pytest.mark.parametrize(
    "rows",
    [
        "<kmd_version>620.70.06</kmd_version>",
        "<driver_version>N/A</driver_version><kmd_version>620.70.06</kmd_version>",
        "<driver_version>620.70.06 [Deprecated; will be removed in CUDA 14.0. Use KMD Version]</driver_version>",
        "<driver_version>Deprecated</driver_version><kmd_version>620.70.06</kmd_version>",
        "<kmd_version>N/A</kmd_version><driver_version>620.70.06</driver_version>",
    ],
)
def test_the_driver_is_named_as_before_and_after_cuda_14(rows: str) -> None:
    text = trays.smi().replace("<driver_version>580.173.02</driver_version>", rows)
    readings = nvidia_smi.parse_xml(text)
    assert (readings.driver_version, readings.findings) == ("620.70.06", [])


BROKEN = dict.fromkeys(("degraded_bandwidth", "route_recovery", "route_unhealthy", "access_timeout_recovery"), True)
BROKEN |= {"summary": "unhealthy", "incorrect_configuration": "insufficient_nvlinks"}
MODULE = "<module_id>1</module_id>"
UUID = "7b1d4c52-90fe-4a6d-b3c8-2f5a6e7d8091"


@pytest.mark.parametrize(
    ("name", "change", "gpu", "where", "value"),
    [
        ("hgx_b200", (), 0, "platform", {"chassis_serial": None, "slot_number": 1, "tray_index": 0, "host_id": 1}),
        ("l40s", (), 0, "fabric", {**unknown_gpu(0)["fabric"], "state": "not_supported"}),
        ("l40s", (), 0, "mig_enabled", None),
        ("in_progress", (), 1, "fabric", {**unknown_gpu(0)["fabric"], "state": "in_progress"}),
        ("r570", (), 0, "fabric.health", {**HEALTHY, "summary": None}),
        ("drained", (), 0, "fabric.health", {**HEALTHY, "incorrect_configuration": "none"}),
        ("degraded", (), 1, "fabric.health", {**HEALTHY, **BROKEN}),
        ("drained", (), 1, "recovery_action", "drain_and_reset"),
        ("refused", (), 0, "fabric.status", "insufficient_resources"),
        ("refused", (), 0, "fabric.clique_id", 0),
        ("refused", (), 0, "fabric.cluster_uuid", None),
        ("refused", ("Insufficient Resources", "Unknown Error"), 0, "fabric.status", "unknown_error"),
        ("refused", ("Insufficient Resources", "Fabric Error 5"), 0, "fabric.status", "fabric_error_5"),
        # As nvidia-smi 615.23 prints it for other elements on a Vera Rubin tray.
        ("gb200", (">Disabled<", ">Requested functionality has been deprecated<"), 0, "mig_enabled", None),
        ("gb200", (UUID, UUID.upper()), 0, "fabric.cluster_uuid", UUID),
        ("gb200", ("GPU-5a0c11e0-7d3b-4f10-9c22-0b6e4d1f2a30", f"GPU-{ZERO_UUID}"), 0, "uuid", None),
        # Documents of version 12, and early ones of version 13, have the older element.
        ("v12_a100", (), 0, "module_id", 4),
        ("v12_a100", (), 0, "fabric.state", "not_supported"),
        ("l40s", (MODULE, "</platformInfo><gpu_module_id>3</gpu_module_id><platformInfo>"), 0, "module_id", 3),
    ],
)
def test_a_value_of_a_tray_is_read_without_a_finding(
    name: str, change: tuple[str, str] | tuple[()], gpu: int, where: str, value: Any
) -> None:
    text = trays.smi(name)
    changed = text.replace(*change) if change else text
    readings = nvidia_smi.parse_xml(changed)
    found: Any = readings.gpus[gpu]
    for key in where.split("."):
        found = found[key]
    assert (found, readings.findings, changed != text) == (value, [], bool(change))


@pytest.mark.parametrize("words", ["GPU is lost", "GPU requires reset"])
def test_a_lost_gpu_is_reported_and_the_others_are_read(words: str) -> None:
    readings = nvidia_smi.parse_xml(trays.smi(gpus=3, lost=1).replace("GPU is lost", words))
    assert [(found["code"], found["gpu"]) for found in readings.findings] == [("gpu_lost", 1)]
    assert readings.gpus[1] == unknown_gpu(1)
    assert [gpu["fabric"]["state"] for gpu in readings.gpus] == ["completed", None, "completed"]


def test_a_fabric_that_this_user_may_not_read_is_one_finding() -> None:
    text = trays.smi().replace("<state>Completed</state>", "<state>Insufficient Permissions</state>")
    readings = nvidia_smi.parse_xml(text)
    assert [found["code"] for found in readings.findings] == ["no_permission"]
    assert {gpu["fabric"]["state"] for gpu in readings.gpus} == {None}


def test_a_driver_without_the_fabric_section_gives_an_unknown_fabric() -> None:
    text = "<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu><uuid>N/A</uuid></gpu></nvidia_smi_log>"
    readings = nvidia_smi.parse_xml(text)
    assert readings.findings == []
    assert readings.gpus == [unknown_gpu(0)]


NO_HANDLE = "Unable to determine the device handle for GPU"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("\n \n", "driver_unreadable", ""),
        ("\x00", "driver_unreadable", ""),
        ("<\ud800>", "driver_unreadable", ""),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
            " NVIDIA driver is installed and running.\n",
            "driver_missing",
            "",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library: 580.1\n", "version_mismatch", ""),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "driver_missing", ""),
        ("No devices were found\n", "no_gpu", ""),
        ("Failed to initialize NVML: Insufficient Permissions\n", "no_permission", ""),
        (f"{NO_HANDLE} 0000:01:00.0: GPU is lost.  Reboot the system", "gpu_lost", ""),
        (f"{NO_HANDLE}0000:0F:00.0: GPU requires reset\n", "gpu_lost", "because GPU 0000:0F:00.0 needs a reset;"),
        (f"{NO_HANDLE}3: 0000:5F:00.0: GPU requires reset\n", "gpu_lost", "because GPU 0000:5F:00.0 needs a reset;"),
        ("GPU requires reset", "gpu_lost", "one of them needs a reset;"),
        ("+------+\n| {{ 7 * 7 }} [x] |\n", "driver_unreadable", ""),
        # XML that ends early, beyond the limits, or of something else; entities are neither expanded nor looked up.
        *((trays.smi()[:size], "driver_unreadable", "") for size in (800, 2500, 4300)),
        *(
            pytest.param(f"<nvidia_smi_log>{inside}</nvidia_smi_log>", "driver_unreadable", "", id=inside[:5])
            for inside in ("<a>" * 100, "<gpu/>" * 2000, "x" * (nvidia_smi.MAX_XML + 1))
        ),
        ("<html><body>It works!</body></html>", "driver_unreadable", ""),
        *(
            (f"<!DOCTYPE nvidia_smi_log [{entity}]><nvidia_smi_log>&a;</nvidia_smi_log>", "driver_unreadable", "")
            for entity in (
                '<!ENTITY a "b">',
                '<!ENTITY a SYSTEM "file:///etc/passwd">',
                '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">',
            )
        ),
        (trays.smi().replace("<driver_version>580", "<driver_version>&a;580"), "driver_unreadable", ""),
    ],
)
def test_a_text_that_is_no_document_is_recognized_or_quoted_safely(text: str, code: str, words: str) -> None:
    found = _failure(text)
    assert found["code"] == code
    assert words in found["message"]
    assert "{" not in found["message"]
    assert "\n" not in found["message"]


@pytest.mark.parametrize(
    "name",
    [
        *("\x00", "\x1b", "\ufffe", "a & b", "a<b", "</process_info>", "&nbsp;", "]]>", "<!--", "a</process_name>"),
        "<process_name>",
    ],
)
def test_a_process_may_have_any_name(name: str) -> None:
    """nvidia-smi prints a process name as it is, with characters and markup that XML does not allow."""
    text = trays.smi()
    row = f"<process_info><pid>7</pid><process_name>a{name}b</process_name></process_info>"
    changed = text.replace("</processes>", f"{row}{row}</processes>")
    assert changed != text
    assert vars(nvidia_smi.parse_xml(changed)) == vars(nvidia_smi.parse_xml(text))


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        (">NVIDIA GB200<", ">{{ lookup('pipe', 'id') }}<", ("name",)),
        (">NVIDIA GB200<", ">" + "A" * 10_000 + "<", ("name",)),
        (">NVIDIA GB200<", "><b>GB200</b><", ("name",)),
        (">1825000000417<", ">18250$(id)<", ("platform", "chassis_serial")),
        (">14<", ">256<", ("platform", "slot_number")),
        (">14<", ">\u0661\u0664<", ("platform", "slot_number")),
        ("<cliqueId>2<", "<cliqueId>4294967296<", ("fabric", "clique_id")),
        (">7b1d4c52-90fe-4a6d-b3c8-2f5a6e7d8091<", ">7b1d4c52<", ("fabric", "cluster_uuid")),
        ("<state>Completed<", "<state>Finished<", ("fabric", "state")),
        ("<status>Success<", "<status>Fine {{ 1 }}<", ("fabric", "status")),
        ("<summary>Healthy<", "<summary>Splendid<", ("fabric", "health", "summary")),
        ("<bandwidth>Full<", "<bandwidth>Half<", ("fabric", "health", "degraded_bandwidth")),
        ("<route_unhealthy>False<", "<route_unhealthy>Maybe<", ("fabric", "health", "route_unhealthy")),
        ("<current_mig>Disabled<", "<current_mig>Perhaps<", ("mig_enabled",)),
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Pray<", ("recovery_action",)),
        ("<uuid>GPU-5a0c11e0", "<uuid>MIG-5a0c11e0", ("uuid",)),
        ("<pci_bus_id>00000000:29:00.0<", "<pci_bus_id>somewhere<", ("pci_bus_id",)),
        # Characters that XML does not allow, and & as data, which is no character of a name.
        (">NVIDIA GB200<", ">NVIDIA\x00GB200<", ("name",)),
        (">NVIDIA GB200<", ">NVIDIA\ufffeGB200<", ("name",)),
        (">NVIDIA GB200<", ">NVIDIA&#32;GB200 &amp; more<", ("name",)),
    ],
)
def test_an_invalid_value_is_null_and_a_finding(old: str, new: str, where: tuple[str, ...]) -> None:
    text = trays.smi()
    assert old in text
    readings = nvidia_smi.parse_xml(text.replace(old, new, 1))
    value: Any = readings.gpus[0]
    for key in where:
        value = value[key]
    assert value is None
    if "<b>" not in new:  # an element in place of a text is absent, as any other that is not known
        assert ("unusable_value", 0) in [(found["code"], found["gpu"]) for found in readings.findings]
    for found in readings.findings:
        assert len(worded(found)["message"]) < 400
        assert not set("{}[]\n$<>") & set(worded(found)["message"])


@pytest.mark.parametrize(("where", "shown"), [(">&2", 2), ("", 3)])
def test_a_gpu_without_a_handle_next_to_the_others_is_one_finding(tmp_path: Path, where: str, shown: int) -> None:
    """The line is that of drivers since R550; the others of the tray must not pass for all of its GPUs."""
    file = tmp_path / "smi.xml"
    counted = f"<attached_gpus>{shown}</attached_gpus>"
    file.write_text(trays.smi().replace("<attached_gpus>2</attached_gpus>", counted))
    line = "Unable to determine the device handle for GPU2: 0000:5F:00.0: Unknown Error"
    readings = nvidia_smi.read(trays.script(tmp_path / "nvidia-smi", f"echo '{line}' {where}; cat {file}"), 20)
    assert (len(readings.gpus), readings.complete) == (2, False)
    assert [found["code"] for found in readings.findings] == ["gpu_lost"]


@pytest.mark.parametrize(
    ("script", "timeout", "code"),
    [
        ("echo '<nvidia_smi_log>'; exec sleep 600", 0.7, "driver_timeout"),
        ("exit 4", 60, "driver_unreadable"),
        ("", 60, "driver_missing"),
        ("echo Failed to initialize NVML: Driver/library version mismatch >&2; exit 18", 60, "version_mismatch"),
        ("kill -SEGV $$", 60, "driver_unreadable"),
        ("echo '<nvidia_smi_log><gpu>'; exit 1", 60, "driver_unreadable"),
    ],
)
def test_a_failing_program_is_a_finding_within_the_timeout(
    tmp_path: Path, script: str, timeout: float, code: str
) -> None:
    with pytest.raises(DriverError) as caught:
        nvidia_smi.read(
            trays.script(tmp_path / "nvidia-smi", script) if script else str(tmp_path / "nvidia-smi"), timeout
        )
    assert caught.value.finding["code"] == code
    assert script or str(tmp_path)[:30] in worded(caught.value.finding)["message"]


def test_an_exit_code_other_than_0_with_valid_output_is_a_finding(tmp_path: Path) -> None:
    readings = nvidia_smi.read(
        trays.script(tmp_path / "nvidia-smi", f'[ "$*" = "-q -x" ] && cat {trays.FIXTURES}/gb200.xml; exit 14'), 20
    )
    assert (len(readings.gpus), [found["code"] for found in readings.findings]) == (1, ["unusable_value"])
