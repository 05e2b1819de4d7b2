# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``nvlink_fabric`` of a tray: read from one backend, checked, in the documented shape.

``gather`` reads the backend and the clock, ``assemble`` is pure: the same readings give the same facts, whichever
backend they are from.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, interfaces
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants, nvidia_smi, nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import (
    Cliques,
    Gpu,
    Readings,
    quoted,
    tally_cliques,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import ALPHANUMERIC, count, summarize

BACKENDS = ("auto", "nvml", "nvidia_smi")
MAX_TIMEOUT = 3600
_ADDRESSES_TIMEOUT = 5.0
# Findings that explain why a tray with readings is in no clique; without one of them fabric_unknown is added.
_WHY_NOT_ATTACHED = {
    "no_permission",
    "no_gpu",
    "gpu_lost",
    "gpus_disagree",
    "gpus_partly_attached",
    "fabric_unknown",
    "fabric_not_supported",
    "fabric_uuid_zero",
    "fabric_not_started",
    "fabric_in_progress",
    "fabric_refused",
}
# The host is in no multi-node fabric, and is not meant to be in one.
_WITHOUT_DOMAIN = {"fabric_not_supported"}


class FabricFactsError(NvlinkError):
    """An option of fabric_facts is wrong."""


def gather(
    backend: str = "auto", nvidia_smi: str = "nvidia-smi", timeout: float = 20.0, ip: str | None = None
) -> dict[str, Any]:
    """Read the facts of this tray. Raises FabricFactsError for a wrong option only; other problems are findings.

    ``timeout`` (seconds) bounds the backend. With ``auto`` nvidia-smi gets the same time again where NVML has failed,
    and a quarter of it where NVML has hung, because both use the same driver.
    """
    check_options(backend, nvidia_smi, timeout)
    # One child for both: NVML's result is complete before the addresses, which may hang, are read.
    replies = () if backend == "nvidia_smi" else child.calls((nvml.query, interfaces.read)[: 1 if ip else 2], timeout)
    readings, used, notes = _read(backend, nvidia_smi, timeout, replies)
    own, more = addresses(ip, replies[1].value if len(replies) > 1 else None)
    return assemble(
        readings,
        backend=used,
        observed_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        hostname=os.uname().nodename,
        addresses=own,
        findings=[*notes, *more],
    )


def check_options(backend: Any, nvidia_smi: Any, timeout: Any) -> None:
    """Raise FabricFactsError for an option of gather() that is wrong."""
    if backend not in BACKENDS:
        raise FabricFactsError(f"backend is {quoted(backend)}, use one of {', '.join(BACKENDS)}.")
    if not isinstance(nvidia_smi, str) or not nvidia_smi.strip() or "\0" in nvidia_smi:
        raise FabricFactsError("nvidia_smi is empty or no path, name the program or leave the option out.")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout - timeout != 0:
        raise FabricFactsError(f"timeout is {quoted(timeout)}, use a number of seconds.")
    if not 0 < timeout <= MAX_TIMEOUT:
        raise FabricFactsError(f"timeout is {timeout:g}, use seconds above 0 and up to {MAX_TIMEOUT}.")


def _read(
    backend: str, program: str, timeout: float, replies: Sequence[child.Reply]
) -> tuple[Readings | None, str | None, list[Finding]]:
    """The readings, the backend that gave them, and the findings about the backends themselves.

    ``replies``: NVML's first, empty where NVML is not to be read.
    """
    notes: list[Finding] = []
    reserve: Readings | None = None
    smi_timeout = timeout
    if replies:
        try:
            readings = nvml.from_reply(replies[0], timeout)
        except nvml.NvmlError as failure:
            if backend == "nvml":
                return None, None, [failure.finding, *failure.others]
            first = failure.finding
            # A hang is reported even where nvidia-smi responds.
            notes = [first, *failure.others] if first["code"] == "driver_timeout" else []
            if notes:
                smi_timeout = max(timeout / 4, 1.0)
        else:
            old = [found for found in readings.findings if found["code"] == "fabric_unknown"]
            if backend == "nvml" or not old:
                return readings, "nvml", []
            first, reserve = old[0], readings
        notes.append(
            finding(
                "backend_fallback",
                f"NVML could not be used, so nvidia-smi was read: {first['message']}",
                gpu=None,
            )
        )
    try:
        return nvidia_smi.read(program, smi_timeout), "nvidia_smi", notes
    except nvidia_smi.NvidiaSmiError as failure:
        found = [failure.finding, *failure.others]
        if reserve is not None:
            return reserve, "nvml", [*notes, *found]
        if backend == "auto" and first not in notes:
            notes.insert(0, first)
        # Where both fail for one reason, NVML's finding is the more exact one.
        known = {note["code"] for note in notes}
        return None, None, [*notes, *(note for note in found if note["code"] not in known)]


def assemble(
    readings: Readings | None,
    *,
    backend: str | None,
    observed_at: str,
    hostname: Any,
    addresses: Sequence[interfaces.Address],
    findings: Sequence[Finding] = (),
) -> dict[str, Any]:
    """The facts made of ``readings``; None: nothing could be read, everything is unknown."""
    notes = list(findings)
    if not (isinstance(hostname, str) and _is_hostname(hostname)):
        notes.append(
            finding(
                "unusable_value",
                f"The tray's hostname is {quoted(hostname)}, which is not valid and counts as unknown; set one of"
                " letters, digits, dots and dashes.",
                gpu=None,
            )
        )
        hostname = None
    facts: dict[str, Any] = {
        "observed_at": observed_at,
        "hostname": hostname,
        "addresses": list(addresses),
        "backend": backend,
        "driver_version": None,
        "attached": False,
        "cluster_uuid": None,
        "clique_id": None,
        "clique": None,
        "chassis_serial": None,
        "slot_number": None,
        "tray_index": None,
        "host_id": None,
        "gpu_count": None,
        "gpus": [],
        "findings": notes,
    }
    if readings is None:
        return facts
    notes.extend(readings.findings)
    gpus = sorted(readings.gpus, key=lambda gpu: int(gpu["index"]))
    facts["driver_version"] = readings.driver_version
    facts["gpu_count"] = len(gpus)
    facts["gpus"] = [{key: value for key, value in gpu.items() if key != "platform"} for gpu in gpus]
    facts.update(_platform(gpus, notes))
    facts.update(_place(gpus, readings.complete, facts["chassis_serial"], notes))
    if facts["attached"]:
        notes.extend(_smaller_cliques([gpu["fabric"]["cliques"] or {} for gpu in gpus]))
    local = any(found["code"] in _WITHOUT_DOMAIN for found in notes)
    for gpu in gpus:
        notes.extend(_evaluate(gpu, facts["chassis_serial"] is not None, local))
    if not facts["attached"] and not any(found["code"] in _WHY_NOT_ATTACHED for found in notes):
        notes.append(
            finding(
                "fabric_unknown",
                "Not all GPUs of this tray report whether they are in an NVLink fabric, so it is in no clique; check"
                " that its driver is R550 or newer, and run nvidia-smi -q on it.",
                gpu=None,
            )
        )
    return facts


def _is_hostname(text: str) -> bool:
    letters = ALPHANUMERIC + "_"
    return 0 < len(text) <= 253 and text[0] in letters and not text.strip(letters + ".-")


def _platform(gpus: Sequence[Gpu], notes: list[Finding]) -> dict[str, Any]:
    """The values that all GPUs of a tray share; null where they differ."""
    platform: dict[str, Any] = {}
    for key, word in (
        ("chassis_serial", "chassis serial numbers"),
        ("slot_number", "slot numbers"),
        ("tray_index", "tray indexes"),
        ("host_id", "host ids"),
    ):
        values = {gpu["platform"][key] for gpu in gpus} - {None}
        platform[key] = next(iter(values)) if len(values) == 1 else None
        if len(values) > 1:
            notes.append(
                finding(
                    "unusable_value",
                    f"The GPUs of this tray report different {word} ({summarize(sorted(map(str, values)))}), so the"
                    " value counts as unknown; check the tray's firmware.",
                    gpu=None,
                )
            )
    return platform


def _place(gpus: Sequence[Gpu], complete: bool, chassis_serial: str | None, notes: list[Finding]) -> dict[str, Any]:
    """Whether the tray is attached, and its clique: every GPU is completed and success with a UUID, and all agree."""
    nowhere = {"attached": False, "cluster_uuid": None, "clique_id": None, "clique": None}
    if not gpus:
        notes.append(
            finding(
                "no_gpu",
                "The driver is loaded and finds no GPU; check the kernel log for Xid messages, and the GPUs' power.",
                gpu=None,
            )
        )
        return nowhere
    fabrics = [gpu["fabric"] for gpu in gpus]
    probed = [fabric for fabric in fabrics if fabric["state"] == "completed" and fabric["status"] == "success"]
    if all(fabric["state"] == "not_supported" for fabric in fabrics):
        notes.append(
            finding(
                "fabric_not_supported",
                "The GPUs of this tray have no NVLink fabric, so it is in no clique; no action for PCIe cards, else"
                " check the driver's version.",
                gpu=None,
            )
        )
    elif probed and len(probed) == len(fabrics) and all(fabric["cluster_uuid"] is None for fabric in fabrics):
        # An HGX baseboard has the readings of a tray whose fabric has lost its UUID, but without a chassis serial.
        if chassis_serial is None:
            code = "fabric_not_supported"
            message = (
                "The NVLink fabric of this host ends at the host (its cluster UUID is zero, as on HGX), so it is in no"
                " clique; no action needed."
            )
        else:
            code = "fabric_uuid_zero"
            message = (
                "The GPUs of this tray report a chassis, as those of a rack do, but the cluster UUID of their NVLink"
                " fabric is zero, so the tray is in no clique; check the NMX controller, unless the fabric ends here."
            )
        notes.append(finding(code, message, gpu=None))
    named = {(fabric["cluster_uuid"], fabric["clique_id"]) for fabric in probed if fabric["cluster_uuid"] is not None}
    mixed = bool(named) and any(fabric["cluster_uuid"] is None for fabric in probed)
    if len(named) > 1 or mixed:
        shown = {f"{cluster_uuid}.{clique_id}" for cluster_uuid, clique_id in named} | ({"none"} if mixed else set())
        notes.append(
            finding(
                "gpus_disagree",
                f"The GPUs of this tray are in different cliques ({summarize(sorted(map(str, shown)))}), so the tray is"
                " in none; check the NVLink partitions on the switches.",
                gpu=None,
            )
        )
    without = [str(gpu["index"]) for gpu in gpus if gpu["fabric"]["state"] == "not_supported"]
    if named and without:
        notes.append(
            finding(
                "gpus_partly_attached",
                f"{count(len(without), 'GPU')} of this tray (index {summarize(without)}) without an NVLink fabric, the"
                " others are attached, so the tray is in no clique; run nvidia-smi -q on it, then reset its GPUs or"
                " reboot it.",
                gpu=None,
            )
        )
    whole = complete and len(probed) == len(gpus) and len(named) == 1 and not mixed
    if not whole:
        return nowhere
    cluster_uuid, clique_id = next(iter(named))
    if clique_id is None:
        return nowhere
    return {
        "attached": True,
        "cluster_uuid": cluster_uuid,
        "clique_id": clique_id,
        "clique": f"{cluster_uuid}.{clique_id}",
    }


def _smaller_cliques(cliques: list[Cliques]) -> list[Finding]:
    """The findings about operations that the GPUs of an attached tray, one row each, cannot all do with each other."""
    notes = []
    for operation, _text in constants.CLIQUE_TYPES.values():
        ids = [set(row.get(operation, ())) for row in cliques]
        if any(ids) and not set.intersection(*ids):
            notes.append(
                finding(
                    "fabric_cliques_smaller",
                    f"The GPUs of this tray are in one clique, but in different ones for {operation.replace('_', ' ')}"
                    f" operations ({tally_cliques('GPU', ids)}); check the multicast limits of the NVLink partitions on"
                    " the switches.",
                    gpu=None,
                )
            )
    return notes


def _evaluate(gpu: Gpu, in_rack: bool, local: bool) -> list[Finding]:
    """The findings about one GPU's fabric, health, MIG mode and recovery action.

    ``in_rack``: the host reports a chassis serial, as the trays of a rack do, and an HGX baseboard does not (captures
    of GB200, GB300, HGX H100 and HGX B200). ``local``: the host has no multi-node fabric.
    """
    host = "" if in_rack else "nvidia-fabricmanager on this host if it is HGX, else "
    index, fabric, health = gpu["index"], gpu["fabric"], gpu["fabric"]["health"]
    notes: list[Finding] = []

    def note(code: str, message: str) -> None:
        notes.append(finding(code, f"GPU {index} {message}", gpu=index))

    if fabric["state"] == "not_started":
        note(
            "fabric_not_started",
            "has not started to register with the fabric manager; start nvidia-persistenced on the tray, then run"
            " fabric_facts again.",
        )
    elif fabric["state"] == "in_progress":
        note(
            "fabric_in_progress",
            "waits for the fabric manager to register it, and CUDA calls hang until then; check"
            f" {host}the NMX controller and that an NVLink partition has this GPU.",
        )
    elif fabric["state"] == "completed" and fabric["status"] not in (None, "success"):
        note(
            "fabric_refused",
            f"was rejected by the fabric manager with {fabric['status']}; check {host}on the switches that an NVLink"
            " partition has this GPU.",
        )
    if health["summary"] == "unhealthy":
        note(
            "fabric_unhealthy",
            "has an unhealthy NVLink fabric; drain the tray and check the health of the NVLink switches.",
        )
    elif health["summary"] == "limited_capacity":
        note(
            "fabric_degraded",
            "has an NVLink fabric of limited capacity; check the NVLink switches for disabled or failed links.",
        )
    if health["degraded_bandwidth"]:
        note("fabric_degraded", "has degraded NVLink bandwidth; check the NVLink switches for failed links.")
    if health["route_unhealthy"]:
        note(
            "fabric_unhealthy",
            "has NVLink routes that could not be recovered; drain the tray and reset its GPUs.",
        )
    if health["route_recovery"] or health["access_timeout_recovery"]:
        note("fabric_recovering", "is recovering its NVLink routes or accesses; wait, then run fabric_facts again.")
    if health["incorrect_configuration"] not in (None, "none"):
        note(
            "fabric_refused",
            f"has an incorrect configuration ({health['incorrect_configuration']}), as the fabric manager reports;"
            " correct it.",
        )
    if health["partition_assigned"] is False:
        note("fabric_no_partition", "is in no NVLink partition; add it to one on the switches.")
    if health["fabric_manager_connected"] is False:
        note(
            "fabric_manager_disconnected",
            f"is disconnected from the fabric manager; check {host}the NMX controller.",
        )
    if gpu["mig_enabled"] and not local:
        note("mig_enabled", "has MIG mode on, which disables NVLink between GPUs; disable MIG for multi-node jobs.")
    if gpu["recovery_action"] not in (None, "none"):
        note(
            "recovery_action",
            f"needs the recovery action {gpu['recovery_action']}, as its driver reports; drain the tray and run it.",
        )
    return notes


def addresses(
    ip: str | None = None, found: list[interfaces.Address] | None = None
) -> tuple[list[interfaces.Address], list[Finding]]:
    """The tray's addresses but loopback and link-local ones: (list of interface, address, prefix; findings).

    From the C library, or from the program ``ip`` where one is set. ``found``: what the C library has returned before.

    Read in a child too, since a faulty network driver can hold the kernel's lock on addresses for ever.
    """
    if found is None and ip:
        found = interfaces.parse(child.run([ip, "-j", "address", "show"], _ADDRESSES_TIMEOUT).stdout)
    elif found is None:
        found = child.call(interfaces.read, _ADDRESSES_TIMEOUT).value
    if found:
        return found, []
    return [], [
        finding(
            "addresses_unknown",
            "The tray's addresses could not be read; check its network, or set its addresses in the inventory.",
            gpu=None,
        )
    ]
