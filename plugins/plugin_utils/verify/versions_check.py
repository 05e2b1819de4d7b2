# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer driver: versions of driver and IMEX within a clique, and of slurmd against slurmctld."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.packages import upstream_version
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.status import is_same_version
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import DRIVER, ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence

_RELEASE = re.compile(r"([0-9]{2})\.([0-9]{2})")


def check(evidence: Evidence) -> Iterator[Finding]:
    """The layer driver."""
    for name in evidence.fabric.cliques:
        yield from _drivers(evidence, name)
    slurmctld = [_release(str(controller.info.get("version") or "")) for controller in evidence.slurm or ()]
    newest = max((release for release in slurmctld if release), default=None)
    for tray, report in evidence.trays.items():
        clique, versions = evidence.clique_of(tray), report.versions
        if versions is None:
            continue
        slurmd = versions.slurmd
        if newest and slurmd and (_release(slurmd) or newest) > newest:
            message = f"{tray} runs slurmd {slurmd}, which is a newer release than its slurmctld."
            yield failure("slurmd_newer", DRIVER, message, tray, clique)
        running, package, imex = versions.imex, versions.imex_package, report.imex
        if imex and imex["running"] and running and package and not is_same_version(upstream_version(package), running):
            message = f"{tray} runs IMEX {running}, and package {package} is installed."
            yield failure("imex_restart_pending", DRIVER, message, tray, clique)


def _drivers(evidence: Evidence, clique: str) -> Iterator[Finding]:
    """Trays whose driver differs from that of most trays of the clique; the clique where no version has a majority."""
    reported = {tray: evidence.trays[tray].versions for tray in evidence.answered(clique)}
    versions = {tray: row.driver if row else None for tray, row in reported.items()}
    counted = Counter(version for version in versions.values() if version)
    if len(counted) < 2:
        return
    (usual, most), (_second, next_most) = counted.most_common(2)
    if most == next_most:
        named = {version: [tray for tray in versions if versions[tray] == version] for version in sorted(counted)}
        rows = "; ".join(f"{version} on {summarize(those)}" for version, those in named.items())
        message = f"The trays of clique {clique} run different drivers ({rows})."
        trays = [tray for tray, version in versions.items() if version]
        yield failure("drivers_differ", DRIVER, message, None, clique, trays=trays, severity=ERROR)
        return
    for tray, version in versions.items():
        if version and version != usual:
            message = f"{tray} runs driver {version}; {count(most, 'tray')} of its clique {clique} run {usual}."
            yield failure("drivers_differ", DRIVER, message, tray, clique, severity=ERROR)


def _release(version: str) -> tuple[int, int] | None:
    found = _RELEASE.match(version)
    return (int(found.group(1)), int(found.group(2))) if found else None
