# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict as JUnit XML for CI systems: a suite a layer, a case a clique and one for failures of no clique."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, Verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import printable

CLUSTER = "the cluster"
"""Name of the case for failures of no clique."""


def render(verdict: Verdict, cliques: Sequence[str]) -> bytes:
    """The XML document. cliques: names in the order of the cases. Only errors count as JUnit failures."""
    root = ElementTree.Element("testsuites", name="rackscale.nvlink.verify")
    totals = {"tests": 0, "failures": 0, "skipped": 0}
    for layer, state in verdict["layers"].items():
        suite = ElementTree.SubElement(root, "testsuite", name=layer, timestamp=verdict["checked_at"])
        counts = _cases(suite, layer, state, cliques, [row for row in verdict["failures"] if row["layer"] == layer])
        for name, count in counts.items():
            suite.set(name, str(count))
            totals[name] += count
    for name, count in totals.items():
        root.set(name, str(count))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _cases(
    suite: ElementTree.Element, layer: str, state: str, cliques: Sequence[str], failures: Iterable[Finding]
) -> dict[str, int]:
    by_clique = equal((row["clique"] or CLUSTER, row) for row in failures)
    skipped = state.partition("skipped: ")[2]
    names = [CLUSTER] if skipped else [*cliques, CLUSTER]
    failed = 0
    for name in names:
        case = ElementTree.SubElement(suite, "testcase", classname=f"verify.{layer}", name=name)
        if skipped:
            ElementTree.SubElement(case, "skipped", message=skipped)
        rows = by_clique.pop(name, [])
        errors = [row for row in rows if row["severity"] == ERROR]
        for row in errors:
            element = ElementTree.SubElement(case, "failure", type=row["code"], message=printable(row["message"]))
            cause = f"Likely cause: {row['cause']}.\n" if row["cause"] else ""
            element.text = printable(f"{cause}Next step: {row['remediation']}\n")
        warnings = [f"{row['code']}: {row['message']}" for row in rows if row["severity"] != ERROR]
        if warnings:
            ElementTree.SubElement(case, "system-out").text = printable("\n".join(warnings))
        failed += bool(errors)
    return {"tests": len(names), "failures": failed, "skipped": int(bool(skipped))}
