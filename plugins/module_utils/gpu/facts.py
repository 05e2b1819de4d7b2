# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``nvlink_fabric`` of a tray: read from one backend, checked, in the documented shape.

``gather`` reads the backend and the clock, ``assemble`` is pure: the same readings give the same facts, whichever
backend they are from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, interfaces
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants, nvidia_smi, nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import (
    Cliques,
    DriverError,
    Gpu,
    Readings,
    quoted,
    tally_cliques,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, gpu_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, rfc3339

BACKENDS = ("auto", "nvml", "nvidia_smi")
MAX_TIMEOUT = 3600
_ADDRESSES_TIMEOUT = 5.0
_HOSTNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
# Findings that explain why a tray with readings is in no clique; without one of them fabric_unknown is added.
_WHY_NOT_ATTACHED = {
    "no_permission",
    "no_gpu",
    "gpu_lost",
    "gpus_disagree",
    "gpus_partly_attached",
    "fabric_unknown",
    "fabric_not_supported",
    "fabric_missing",
    "fabric_uuid_zero",
    "fabric_not_started",
    "fabric_in_progress",
    "fabric_refused",
}
# A virtual machine with one GPU of a tray reports its chassis and no fabric, too (gpud, pull request 1140).
_GPUS_OF_A_TRAY = 4
# The host is in no multi-node fabric, and is not meant to be in one.
_WITHOUT_DOMAIN = {"fabric_not_supported"}


class FabricFactsError(NvlinkError):
    """An option of fabric_facts is wrong."""


def gather(
    backend: str = "auto", nvidia_smi: str = "nvidia-smi", timeout: float = 20.0, ip: str | None = None
) -> dict[str, Any]:
    """Read the facts of this tray. Raises FabricFactsError for a wrong option only; other problems are findings.

    ``timeout`` (seconds) bounds the backend: each call of NVML, which has nvml.PATIENCE times as much in all. With
    ``auto`` nvidia-smi gets the same time again where NVML has failed, and a quarter of it where NVML has hung, because
    both use the same driver.
    """
    check_options(backend, nvidia_smi, timeout)
    replies: Sequence[child.Reply] = ()
    if backend != "nvidia_smi":
        # One child for both: NVML's result is complete before the addresses, which may hang, are read.
        replies = nvml.ask((nvml.query, interfaces.read)[: 1 if ip else 2], timeout)
    readings, used, notes = _read(backend, nvidia_smi, timeout, replies)
    own, more = addresses(ip, replies[1].value if len(replies) > 1 else None)
    return assemble(
        readings,
        backend=used,
        observed_at=rfc3339(),
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
) -> tuple[Readings | None, str | None, list[HostFinding]]:
    """The readings, the backend that gave them, and the findings about the backends themselves.

    ``replies``: NVML's first, empty where NVML is not to be read.
    """
    notes: list[HostFinding] = []
    reserve: Readings | None = None
    smi_timeout = timeout
    if replies:
        try:
            readings = nvml.from_reply(replies[0], timeout)
        except DriverError as failure:
            # nvidia-smi would be as slow.
            if backend == "nvml" or replies[0].result.is_busy:
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
        notes.append(gpu_finding("backend_fallback", reason=first))
    try:
        return nvidia_smi.read(program, smi_timeout), "nvidia_smi", notes
    except DriverError as failure:
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
    findings: Sequence[HostFinding] = (),
) -> dict[str, Any]:
    """The facts made of ``readings``; None: nothing could be read, everything is unknown."""
    notes = list(findings)
    if not (isinstance(hostname, str) and _HOSTNAME.fullmatch(hostname)):
        notes.append(gpu_finding("unusable_value", "hostname", value=quoted(hostname)))
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
    place = _place(gpus, readings.complete, facts["chassis_serial"], notes)
    if place:
        facts["attached"] = True
        facts["cluster_uuid"], facts["clique_id"] = place
        facts["clique"] = f"{place[0]}.{place[1]}"
        notes.extend(_smaller_cliques([gpu["fabric"]["cliques"] or {} for gpu in gpus]))
    local = any(found["code"] in _WITHOUT_DOMAIN for found in notes)
    for gpu in gpus:
        notes.extend(_evaluate(gpu, facts["chassis_serial"] is not None, local))
    if not facts["attached"] and not any(found["code"] in _WHY_NOT_ATTACHED for found in notes):
        notes.append(gpu_finding("fabric_unknown"))
    return facts


def _platform(gpus: Sequence[Gpu], notes: list[HostFinding]) -> dict[str, Any]:
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
            notes.append(gpu_finding("unusable_value", "platform", what=word, found=sorted(map(str, values))))
    return platform


def _place(
    gpus: Sequence[Gpu], complete: bool, chassis_serial: str | None, notes: list[HostFinding]
) -> tuple[str, int] | None:
    """The clique of an attached tray: every GPU is completed and success with a UUID, and all agree."""
    if not gpus:
        notes.append(gpu_finding("no_gpu"))
        return None
    fabrics = [gpu["fabric"] for gpu in gpus]
    probed = [fabric for fabric in fabrics if fabric["state"] == "completed" and fabric["status"] == "success"]
    if all(fabric["state"] == "not_supported" for fabric in fabrics):
        in_rack = chassis_serial is not None and len(gpus) >= _GPUS_OF_A_TRAY
        notes.append(gpu_finding("fabric_missing" if in_rack else "fabric_not_supported"))
    elif probed and len(probed) == len(fabrics) and all(fabric["cluster_uuid"] is None for fabric in fabrics):
        # An HGX baseboard has the readings of a tray whose fabric has lost its UUID, but without a chassis serial.
        is_hgx = chassis_serial is None
        notes.append(gpu_finding("fabric_not_supported", "local") if is_hgx else gpu_finding("fabric_uuid_zero"))
    named = {(fabric["cluster_uuid"], fabric["clique_id"]) for fabric in probed if fabric["cluster_uuid"] is not None}
    mixed = bool(named) and any(fabric["cluster_uuid"] is None for fabric in probed)
    if len(named) > 1 or mixed:
        shown = {f"{cluster_uuid}.{clique_id}" for cluster_uuid, clique_id in named} | ({"none"} if mixed else set())
        notes.append(gpu_finding("gpus_disagree", cliques=sorted(shown)))
    without = [str(gpu["index"]) for gpu in gpus if gpu["fabric"]["state"] == "not_supported"]
    if named and without:
        notes.append(gpu_finding("gpus_partly_attached", gpus=count(len(without), "GPU"), indexes=without))
    whole = complete and len(probed) == len(gpus) and len(named) == 1 and not mixed
    cluster_uuid, clique_id = next(iter(named)) if whole else (None, None)
    return None if cluster_uuid is None or clique_id is None else (cluster_uuid, clique_id)


def _smaller_cliques(cliques: list[Cliques]) -> list[HostFinding]:
    """The findings about operations that the GPUs of an attached tray, one row each, cannot all do with each other."""
    notes = []
    for operation, _text in constants.CLIQUE_TYPES.values():
        ids = [set(row.get(operation, ())) for row in cliques]
        if any(ids) and not set.intersection(*ids):
            kind, cliques_of = operation.replace("_", " "), tally_cliques("GPU", ids)
            notes.append(gpu_finding("fabric_cliques_smaller", operation=kind, cliques=cliques_of))
    return notes


def _evaluate(gpu: Gpu, in_rack: bool, local: bool) -> list[HostFinding]:
    """The findings about one GPU's fabric, health, MIG mode and recovery action.

    ``in_rack``: the host reports a chassis serial, as the trays of a rack do, and an HGX baseboard does not (captures
    of GB200, GB300, HGX H100 and HGX B200). ``local``: the host has no multi-node fabric.
    """
    host = "" if in_rack else "nvidia-fabricmanager on this host if it is HGX, else "
    index, fabric, health = gpu["index"], gpu["fabric"], gpu["fabric"]["health"]
    notes: list[HostFinding] = []

    def note(code: str, case: str = "", **values: str | None) -> None:
        notes.append(gpu_finding(code, case, index, **values))

    if fabric["state"] == "not_started":
        note("fabric_not_started")
    elif fabric["state"] == "in_progress":
        note("fabric_in_progress", host=host)
    elif fabric["state"] == "completed" and fabric["status"] not in (None, "success"):
        note("fabric_refused", "status", status=fabric["status"], host=host)
    if health["route_unhealthy"]:
        # Routes that are lost make the summary unhealthy too.
        note("fabric_unhealthy", "routes")
    elif health["summary"] == "unhealthy":
        note("fabric_unhealthy", "summary")
    if health["summary"] == "limited_capacity":
        note("fabric_degraded", "capacity")
    if health["degraded_bandwidth"]:
        note("fabric_degraded", "bandwidth")
    if health["route_recovery"] or health["access_timeout_recovery"]:
        note("fabric_recovering")
    if health["incorrect_configuration"] not in (None, "none"):
        note("fabric_refused", "configuration", configuration=str(health["incorrect_configuration"]))
    if health["partition_assigned"] is False:
        note("fabric_no_partition")
    if health["fabric_manager_connected"] is False:
        note("fabric_manager_disconnected", host=host)
    if gpu["mig_enabled"] and not local:
        note("mig_enabled")
    if gpu["recovery_action"] not in (None, "none"):
        note("recovery_action", str(gpu["recovery_action"]), action=gpu["recovery_action"])
    return notes


def addresses(
    ip: str | None = None, found: list[interfaces.Address] | None = None
) -> tuple[list[interfaces.Address], list[HostFinding]]:
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
    return [], [gpu_finding("addresses_unknown")]
