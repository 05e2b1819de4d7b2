# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root-cause correlation: one fault is one failure, in the layer where it originates.

A fault in a low layer causes failures in higher ones: a tray that is off is missing from its IMEX domain, a tray that
moved has a node label of another clique. EXPLAINS maps a root cause to the codes that follow from it on the same tray;
those failures are dropped from the verdict. A fault outside the trays, such as one of an NVLink switch, is on all trays
of a domain: their failures are one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import folded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, rank
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import (
    CATALOGUE,
    LAYERS,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import only
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence

_IMEX_DOWN = frozenset(
    {"imex_not_ready", "imex_unit_down", "imex_pair_disconnected", "imex_timeout", "imex_waiting_for_recovery"}
)
_PLACE = frozenset({"k8s_clique_label_wrong", "dra_node_outdated", "tray_misplaced"})
_IN_KUBERNETES = frozenset(
    {
        "k8s_clique_label_missing",
        "k8s_clique_label_wrong",
        "dra_plugin_unready",
        "dra_node_outdated",
        "node_not_ready",
    }
)
_NO_GPUS = _IMEX_DOWN | _IN_KUBERNETES | {"tray_not_attached", "gpu_missing", "imex_version_mismatch", "drivers_differ"}
_NO_DRIVER = _NO_GPUS | {"imex_channels_off", "imex_channel_missing", "imex_in_use"}

_IN_NO_PARTITION = frozenset(
    {
        "fabric_in_progress",
        "fabric_no_partition",
        "fabric_refused",
        "gpus_disagree",
        "gpus_partly_attached",
        "tray_not_attached",
    }
)

EXPLAINS: Mapping[str, frozenset[str]] = {
    # A fault of the switch's side; links that fail are a failure of their own.
    "switch_controller_down": frozenset(
        {"fabric_in_progress", "fabric_uuid_zero", "fabric_manager_disconnected", "fabric_recovering"}
    ),
    "switch_partition_degraded": frozenset({"fabric_degraded", "fabric_unhealthy", "fabric_recovering"}),
    "switch_gpu_unassigned": _IN_NO_PARTITION,
    "switch_partition_differs": _IN_NO_PARTITION,
    "tray_unreachable": _IMEX_DOWN | _IN_KUBERNETES | {"imex_list_differs"},
    "driver_missing": _NO_DRIVER | {"tray_subset_failed"},
    "version_mismatch": _NO_DRIVER,
    "no_gpu": _NO_DRIVER | {"nvlink_xid"},
    "driver_timeout": _NO_DRIVER | {"backend_fallback", "nvlink_xid"},
    "driver_unreadable": _NO_DRIVER,
    "gpu_lost": _NO_GPUS | {"recovery_action", "gpus_partly_attached", "nvlink_xid"},
    "gpu_missing": frozenset({"dra_node_outdated", "nvlink_xid"}),
    # What the driver says now is what the GPU needs, and resetting one resets all of the tray.
    "recovery_action": frozenset({"nvlink_xid"}),
    "gpus_disagree": _NO_GPUS,
    "gpus_partly_attached": _NO_GPUS,
    "fabric_not_started": _NO_GPUS | {"fabric_no_partition", "fabric_unknown"},
    "fabric_in_progress": _NO_GPUS | {"fabric_no_partition", "fabric_unknown"},
    "fabric_refused": _NO_GPUS | {"fabric_no_partition"},
    "fabric_missing": _NO_GPUS,
    "fabric_uuid_zero": _NO_GPUS,
    "fabric_unknown": frozenset({"tray_not_attached"}),
    "fabric_not_supported": frozenset({"tray_not_attached"}),
    "fabric_unhealthy": frozenset({"fabric_degraded"}),
    "nvlink_links_degraded": frozenset({"fabric_degraded"}),
    "nvlink_links_down": frozenset({"fabric_degraded", "fabric_unhealthy", "nvlink_xid"}),
    "tray_not_attached": _IN_KUBERNETES,
    "domain_uuid_changed": _PLACE,
    # The GPUs follow the switch, so the fabric file is what is outdated.
    "clique_id_changed": _PLACE | {"switch_partition_differs"},
    "tray_partitions": _PLACE | {"switch_partition_differs"},
    # Slurm may already follow the GPUs: the fabric file is what is outdated.
    "tray_moved": _PLACE
    | {
        "slurm_blocks_differ",
        "switch_partition_differs",
        "tray_replaced",
        "imex_no_own_address",
        "imex_list_differs",
    },
    "tray_replaced": frozenset({"tray_misplaced"}),
    "drivers_differ": _IMEX_DOWN
    | {"imex_version_mismatch", "imex_peer_version", "imex_restart_pending", "imex_list_differs"},
    "imex_version_mismatch": _IMEX_DOWN | {"imex_peer_version", "imex_restart_pending"},
    "imex_peer_version": _IMEX_DOWN | {"imex_restart_pending"},
    "imex_channels_off": frozenset({"imex_channel_missing", "imex_channel_stale"}),
    "imex_channel_stale": frozenset({"imex_channel_missing"}),
    "imex_list_unusable": _IMEX_DOWN | {"imex_list_differs", "imex_list_outdated", "imex_restart_pending"},
    "imex_list_differs": _IMEX_DOWN | {"imex_list_outdated", "imex_restart_pending", "imex_no_own_address"},
    "imex_two_owners": _IMEX_DOWN | {"imex_in_use", "imex_foreign_daemon"},
    "imex_in_use": _IMEX_DOWN,
    "imex_foreign_daemon": _IMEX_DOWN | {"imex_in_use"},
    "imex_timeout": _IMEX_DOWN - {"imex_timeout"},
    "imex_unit_down": frozenset({"imex_not_ready"}),
    "imex_no_own_address": _IMEX_DOWN,
    "imex_waiting_for_recovery": frozenset({"imex_not_ready", "imex_pair_disconnected"}),
    "k8s_node_missing": frozenset({"dra_node_outdated"}),
    "node_not_ready": frozenset({"dra_node_outdated", "dra_plugin_unready", "k8s_clique_label_missing"}),
}


def correlate(failures: Iterable[Finding], evidence: Evidence) -> list[Finding]:
    """The root causes, from the lowest layer up, errors first within a layer.

    A failure is dropped where each of its trays has a root cause that explains it; one that names no tray is about all
    of its clique. A root cause takes the worst severity of its consequences: a tray without a cluster UUID may need
    none, but not where the fabric file places it. An Xid is the cause of what explains it.
    """
    rows = [row.copy() for row in failures]
    on_tray: dict[str, list[Finding]] = defaultdict(list)
    for row in rows:
        for tray in row["trays"]:
            on_tray[tray].append(row)
    roots = []
    for row in rows:
        trays = row["trays"] or evidence.fabric.members.get(row["clique"] or "", [])
        found = [[root for root in on_tray[tray] if row["code"] in EXPLAINS.get(root["code"], ())] for tray in trays]
        if not found or not all(found):
            roots.append(row)
            continue
        for root in (root for of_tray in found for root in of_tray):
            root["severity"] = min(root["severity"], row["severity"], key=rank)
            root["cause"] = row["cause"] if row["code"] == "nvlink_xid" else root["cause"]
    # Two controllers of one cluster report the same.
    unique = {(row["code"], row["tray"], row["clique"], row["message"]): row for row in roots}
    return sorted(
        _of_domains([*unique.values()], evidence),
        key=lambda row: (LAYERS.index(row["layer"]), rank(row["severity"])),
    )


def _of_domains(failures: Sequence[Finding], evidence: Evidence) -> Iterator[Finding]:
    """One failure for a code that all trays of a domain report, or of a clique, instead of one for each tray.

    All that answered, and more than half of them, so that a run on a few trays says nothing of the others. Where some
    of them need an action on the tray and the others one on the switch, the first ones may be the cause.
    """
    fabric = evidence.fabric
    cliques: dict[str, list[str]] = defaultdict(list)
    for clique, row in fabric.cliques.items():
        cliques[f"NVLink domain {row['domain']}"].append(clique)
    cliques.update({f"clique {clique}": [clique] for clique in fabric.cliques})
    of_tray: dict[str, dict[str, list[Finding]]] = defaultdict(dict)
    for failed in failures:
        of_tray[failed["tray"] or ""].setdefault(failed["code"], []).append(failed)
    for name, parts in cliques.items():
        answered = [tray for clique in parts for tray in evidence.answered(clique)]
        if len(answered) < 2 or 2 * len(answered) <= sum(len(fabric.members[clique]) for clique in parts):
            continue
        for code in [code for code in of_tray[answered[0]] if all(code in of_tray[tray] for tray in answered)]:
            actions = {row["action"] for tray in answered for row in of_tray[tray][code]}
            if "switch_side" in actions and actions & {"reset_gpu", "reboot"}:
                continue
            rows = [row for tray in answered for row in of_tray[tray].pop(code)]
            yield _of_domain(rows, name, only(parts))
    yield from (row for codes in of_tray.values() for rows in codes.values() for row in rows)


def _of_domain(rows: Sequence[Finding], name: str, clique: str | None) -> Finding:
    first = min(rows, key=lambda row: rank(row["severity"]))
    trays = [*dict.fromkeys(tray for row in rows for tray in row["trays"])]
    texts = {row["message"].removeprefix(f"{row['tray']}: ") for row in rows}
    text = texts.pop() if len(texts) == 1 else f"one of them: {first['message']}"
    message = f"All {folded(trays)} of {name} that answer report this: {text}"
    domain = CATALOGUE[first["code"]].symptom.domain
    action = domain if domain and first["action"] in ("", "reset_gpu") else first["action"]
    found: Finding = {**first, "tray": None, "clique": clique, "trays": trays, "message": message, "action": action}
    found.pop("gpu", None)
    found.pop("link", None)
    return found
