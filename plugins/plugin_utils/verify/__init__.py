# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare switches, hardware, fabric file, Slurm, IMEX and Kubernetes: evidence in, a verdict out. Pure functions.

Each layer has one module with a `check`. correlation.py decides which failure is the root cause of which;
findings/model.py has the cause and the next step of each code. docs/verify.md describes the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings import table as findings
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import CHECKED, Finding, Verdict, remedy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, INFO
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import (
    channels_check,
    correlation,
    hardware_check,
    imex_check,
    kubernetes_check,
    links_check,
    slurm_check,
    switch_check,
    versions_check,
    xids_check,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence

Check = Callable[[Evidence], Iterator[Finding]]

CHECKS: tuple[tuple[str, Check], ...] = (
    (findings.SWITCH, switch_check.check),
    (findings.FABRIC_FILE, hardware_check.check),
    (findings.HARDWARE, links_check.check),
    (findings.HARDWARE, xids_check.check),
    (findings.DRIVER, versions_check.check),
    (findings.CHANNELS, channels_check.check),
    (findings.IMEX, imex_check.check),
    (findings.SLURM, slurm_check.check),
    (findings.TIERS, slurm_check.check_tiers),
    (findings.KUBERNETES, kubernetes_check.check),
)
"""Layer and check. hardware.check covers the layers hardware and fabric_file."""

_ON_TRAYS = (findings.HARDWARE, findings.DRIVER, findings.CHANNELS, findings.IMEX)


def layers(evidence: Evidence) -> dict[str, str]:
    """Layer -> `checked`, or `skipped: ` followed by the reason."""
    found = dict.fromkeys(findings.LAYERS, CHECKED)
    if evidence.switches is None:
        found[findings.SWITCH] = "skipped: the inventory has no NVLink switch"
    if evidence.quick:
        found.update(dict.fromkeys(_ON_TRAYS, "skipped: --tags quick queries no tray"))
    elif not evidence.trays and not evidence.unreachable:
        found.update(dict.fromkeys(_ON_TRAYS, "skipped: this run queried no tray"))
    elif not imex_check.is_there(evidence):
        found[findings.IMEX] = "skipped: no queried tray has nvidia-imex"
    if evidence.slurm is None or not evidence.slurm:
        found[findings.SLURM] = found[findings.TIERS] = "skipped: no Slurm controller is configured"
    elif all(controller.tiers is None for controller in evidence.slurm):
        found[findings.TIERS] = "skipped: no tiers are defined"
    if evidence.kubernetes is None and not evidence.kubernetes_problem:
        found[findings.KUBERNETES] = "skipped: no kubeconfig is set"
    return found


def verify(evidence: Evidence, checked_at: str) -> Verdict:
    """The verdict. checked_at: RFC 3339, in UTC."""
    checked = layers(evidence)
    rows = [row for layer, check in CHECKS if checked[layer] == CHECKED for row in check(evidence)]
    failures = correlation.correlate(rows, evidence)
    for row in failures:
        row["remediation"] = remediation(evidence, row, row["trays"])
        acknowledge(evidence, row)
    return {
        "ok": not any(row["severity"] == ERROR for row in failures),
        "checked_at": checked_at,
        "fabric_file": evidence.fabric_file,
        "layers": checked,
        "trays": len(evidence.fabric.trays),
        "queried": sum(1 for tray in evidence.fabric.trays if tray in evidence.trays or tray in evidence.unreachable),
        "answered": sum(1 for tray in evidence.fabric.trays if tray in evidence.trays),
        "cliques": sum(1 for members in evidence.fabric.members.values() if members),
        "compute_domains": kubernetes_check.compute_domains(evidence),
        "slurm_nodes": slurm_check.node_states(evidence),
        "failures": failures,
    }


def acknowledge(evidence: Evidence, row: Finding) -> None:
    """Make a failure a note that is about trays in repair alone, until the first of their dates."""
    entries = [evidence.acknowledged.get(tray) for tray in row["trays"]]
    if row["severity"] != INFO and (known := [entry for entry in entries if entry]) and len(known) == len(entries):
        entry = min(known, key=lambda known: known["until"])
        row["severity"] = INFO
        row["message"] += f" {entry.get('who')} has acknowledged it until {entry['until']} ({entry.get('reason')})."


def remediation(evidence: Evidence, failed: Finding, trays: Sequence[str]) -> str:
    """The command of a failure's action or code, with the names of these trays, its clique and the fabric file."""
    text = remedy(failed["code"], failed["action"])
    placed = [evidence.fabric.trays.get(tray) or {"slurm_node": tray, "kubernetes_node": tray} for tray in trays]
    # A failure of a whole domain is about all its cliques.
    of_trays = natural_sorted({name for row in placed if (name := row.get("clique"))})
    cliques = [failed["clique"]] if failed["clique"] else of_trays
    names = {
        "{tray}": ",".join(trays),
        "{node}": fold(natural_sorted(row["slurm_node"] for row in placed)),
        # A field selector has one name.
        "{kubernetes_node}": placed[0]["kubernetes_node"] if placed else "",
        "nvlink_clique_{clique}": ",".join(f"nvlink_clique_{name}" for name in cliques),
        "{clique}": ", ".join(cliques),
        " -e fabric_file={file}": "" if evidence.is_found else f" -e fabric_file={evidence.fabric_file}",
    }
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text
