# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers that a bundle has, and the kind of each of their fields. Pure.

An answer is mapped field by field: by the element of XML, the key of JSON, the setting of Slurm or the place in a line.
A field without a kind keeps its name and its value's shape, so a bundle shows what a new driver adds. Free text, such
as comments, reasons of failures and names of processes, is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from xml.sax.saxutils import escape, unescape

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.nvidia_smi import TEXTS, without_process_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import status
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture.kinds import REMOVED, Substitutes

Kind = Callable[[Substitutes, str], str]
"""A method of Substitutes."""

_ELEMENTS: dict[str, Kind] = {
    **dict.fromkeys(("uuid", "clusterUuid"), Substitutes.uuid),
    **dict.fromkeys(("pdi", "gpu_fabric_guid"), Substitutes.guid),
    **dict.fromkeys(("serial", "chassis_serial_number"), Substitutes.serial),
    "process_name": Substitutes.removed,
    **dict.fromkeys(
        (
            *("driver_version", "kmd_version", "cuda_version", "attached_gpus", "timestamp", "minor_number"),
            *("product_name", "product_brand", "product_architecture", "vbios_version", "pci_bus_id", "module_id"),
            *("gpu_module_id", "slot_number", "tray_index", "host_id", "peer_type", "current_mig", "pending_mig"),
            *("gpu_recovery_action", "state", "status", "cliqueId", "clique_type", "clique_id", "summary"),
            *("bandwidth", "route_recovery_in_progress", "route_unhealthy", "access_timeout_recovery"),
            *("incorrect_configuration", "partition_assigned", "gfm_state"),
        ),
        Substitutes.plain,
    ),
}
"""Elements of nvidia-smi -q -x, R535 to R615."""
_KEYS: dict[str, Kind] = {
    "uuid": Substitutes.uuid,
    **dict.fromkeys(("fabric_guid", "pdi"), Substitutes.guid),
    "chassis_serial": Substitutes.serial,
    **dict.fromkeys(("host", "hostName"), Substitutes.name),
    "problem": Substitutes.removed,
    **dict.fromkeys(("driver_version", "name", "pci_bus_id", "status", "timestamp", "version"), Substitutes.plain),
    **dict.fromkeys(("code", "part", "severity"), Substitutes.plain),
    **dict.fromkeys(("driver", "imex", "imex_package", "slurmd", "slurmctld", "kernel"), Substitutes.version),
}
"""Keys of nvidia-imex-ctl -N -j, R570 to R595, and of the return values of the module doctor."""
_BY_ID = ("nodes", "connections")
"""Keys of objects whose own keys are node IDs."""

MAX_NUMBER = 99_999
"""A larger number of JSON may identify something."""
# Where the cluster UUID stands in each version of NVML's fabric struct (nvml.h of CUDA 13.5), in digits.
_UUID_AT = {"4": 0, "3": 8, "2": 8}

_TOKEN = re.compile(r"<[^<>]*>?|[^<]+")
# Of the attributes only the bus ID of a GPU.
_TAG = re.compile(r"<(/?)([A-Za-z_][A-Za-z0-9_.-]{0,80})( id=\"[0-9A-Fa-f:.]{1,20}\")?(?: [^<>]*?)?(/?)>")
_HEAD = re.compile(
    r"<\?xml(?: [a-z]+=\"[A-Za-z0-9.-]{1,20}\")* ?\?>|<!DOCTYPE nvidia_smi_log SYSTEM \"[a-z0-9_.]{1,40}\">"
)
_SMI_TEXT = re.compile(
    "|".join([*map(re.escape, TEXTS), r"unable to determine the device handle for gpu[0-9a-f:. ]{1,24}"]), re.IGNORECASE
)

_KEY = re.compile("[A-Za-z_]{1,64}")

# Settings of `scontrol show config` that decide where jobs run, and hold no name, path or secret of a site. No other
# one is in the bundle.
KEPT_SETTINGS = frozenset(
    (
        *("AccountingStorageEnforce", "AccountingStorageType", "CommunicationParameters", "GresTypes", "JobCompType"),
        *("LaunchParameters", "MpiDefault", "NodeFeaturesPlugins", "PreemptMode", "PreemptType", "PriorityType"),
        *("ProctrackType", "PrologFlags", "ReconfigFlags", "SchedulerParameters", "SchedulerType", "SelectType"),
        *("SelectTypeParameters", "SLURM_VERSION", "SlurmctldDebug", "SlurmctldParameters", "SlurmdDebug"),
        *("SlurmdParameters", "SwitchParameters", "SwitchType", "TaskPlugin", "TaskPluginParam", "TopologyParam"),
        "TopologyPlugin",
    )
)
_SETTING = re.compile(r"([A-Za-z]+)([ \t]*=[ \t]*)(.*)")
_NUMBER = r"[0-9]{1,10}(?:\.[0-9]{1,6}){0,2}"
# Slurm's own words have no digits, which names of hosts have.
_OPTION = re.compile(
    rf"[A-Za-z][A-Za-z_/-]{{0,40}}(?:=[+-]?{_NUMBER}[A-Za-z%]?)?|{_NUMBER}(?: sec| min| percent)?|\(null\)|"
)


def _smi(text: str, of: Substitutes) -> str:
    """nvidia-smi -q -x: XML, or the known parts of a text that nvidia-smi prints in its place or before it."""
    start = 0 if text.lstrip("\ufeff \t\r\n").startswith("<") else text.find("<?xml")
    before, document = (text, "") if start < 0 else (text[:start], text[start:])
    known = "".join(f"{found[0]}\n" for found in _SMI_TEXT.finditer(before))
    return known + _xml(without_process_names(document), of)


def _xml(text: str, of: Substitutes) -> str:
    """A document that may be malformed, and stays so: each tag and each text by itself."""
    kind: Kind = Substitutes.masked
    parts = []
    for token in _TOKEN.findall(text):
        tag = _TAG.fullmatch(token)
        if tag:
            kind = Substitutes.masked if tag[1] or tag[4] else _ELEMENTS.get(tag[2], Substitutes.masked)
            parts.append(f"<{tag[1]}{tag[2]}{tag[3] or ''}{tag[4]}>")
        elif not token.startswith("<"):
            value = token.strip()
            parts.append(token.replace(value, escape(kind(of, unescape(value))), 1) if value else token)
        elif _HEAD.fullmatch(token):
            parts.append(token)
    return "".join(parts)


def _json(text: str, of: Substitutes) -> str:
    """Nothing where it is no JSON."""
    try:
        return json.dumps(values(json.loads(text), of), indent=1) + "\n"
    except (ValueError, RecursionError):
        return ""


def values(data: Any, of: Substitutes, field: str = "") -> Any:
    """Plain data, each text by the kind of the nearest key."""
    if isinstance(data, Mapping) and field == "structs":
        return _struct(data, of)
    if isinstance(data, Mapping):
        return {_key(str(key), of, field): values(value, of, str(key)) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [values(value, of, field) for value in data]
    if isinstance(data, str):
        return _KEYS.get(field, Substitutes.masked)(of, data)
    return data if data is None or isinstance(data, bool) or abs(data) <= MAX_NUMBER else 0


def _key(key: str, of: Substitutes, parent: str) -> str:
    is_kept = key.isdecimal() if parent in _BY_ID else _KEY.fullmatch(key)
    return key if is_kept else of.name(key)


def _struct(row: Mapping[str, Any], of: Substitutes) -> dict[str, Any]:
    """A fabric struct of NVML with another cluster UUID; without bytes where it is unknown where the UUID stands."""
    version, text, data = row.get("version"), str(row.get("bytes") or ""), ""
    at = _UUID_AT.get(str(version), len(text))
    raw = text[at : at + 32]
    if len(raw) == 32 and re.fullmatch("[0-9a-f]*", text):
        uuid = of.uuid("-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:])))
        data = text[:at] + uuid.replace("-", "") + text[at + 32 :]
    return {"version": values(version, of), "code": values(row.get("code"), of), "bytes": data}


def _imex_state(text: str, _of: Substitutes) -> str:
    return text if status.parse_state(text) else ""


def _topology(text: str, of: Substitutes) -> str:
    """scontrol show topology: words KEY=VALUE, of which each value but a number is a name or hostlist."""
    return re.sub(r"\S+", lambda word: _topology_word(word[0], of), text)


def _topology_word(word: str, of: Substitutes) -> str:
    key, sign, value = word.partition("=")
    if not sign or not _KEY.fullmatch(key):
        return of.masked(word)
    if key in ("BlockIndex", "BlockSize", "Level", "LinkSpeed"):
        return word if value.isdecimal() else f"{key}={of.masked(value)}"
    return f"{key}={of.name(value)}"


def _config(text: str, _of: Substitutes) -> str:
    """scontrol show config: the settings that are kept, without what a site adds."""
    settings = filter(None, map(_SETTING.fullmatch, text.splitlines()))
    return "".join(f"{row[1]}{row[2]}{_setting(row[3])}\n" for row in settings if row[1] in KEPT_SETTINGS)


def _setting(value: str) -> str:
    return ",".join(map(_option, value.strip().split(",")))


def _option(option: str) -> str:
    """One of a kept setting; of fm_url=https://fabric.example.com the name."""
    if _OPTION.fullmatch(option):
        return option
    name, sign, _value = option.partition("=")
    return f"{name}={REMOVED}" if sign and _OPTION.fullmatch(name) else REMOVED


OUTPUTS: dict[str, tuple[str, Callable[[str, Substitutes], str]]] = {
    "nvidia-smi.xml": ("nvidia-smi -q -x", _smi),
    "imex-state.txt": ("nvidia-imex-ctl -q", _imex_state),
    "imex.json": ("nvidia-imex-ctl -N -j", _json),
    "topology.txt": ("scontrol show topology", _topology),
    "config.txt": ("scontrol show config", _config),
}
"""File -> the command that printed it, and how its text is mapped."""
