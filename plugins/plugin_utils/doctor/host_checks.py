# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of trays and Slurm controllers from their reports (module_utils/inspection.py). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import matrix, unanswered
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.results import OK, SKIPPED, Check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import of_gpus
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, INFO, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

MAX_SKEW, AUTH_SKEW = 10.0, 300.0
"""Seconds between two clocks: more is a warning, and munge refuses credentials from the second on."""


@dataclass(frozen=True)
class Site:
    """What the run knows of the site.

    trays, controllers: host -> its report, or one with `problem` alone. needs_root: whether roles configure these.
    placed: whether the neighbours are those of the fabric file.
    with_imex: whether the site runs IMEX as a service.
    """

    trays: Mapping[str, Object]
    controllers: Mapping[str, Object] = field(default_factory=dict)
    needs_root: bool = False
    placed: bool = False
    with_imex: bool = True

    @property
    def asked(self) -> dict[str, Object]:
        return {**self.trays, **self.controllers}


def answered(reports: Mapping[str, Object]) -> dict[str, Object]:
    """Those of hosts that returned a report."""
    return {name: report for name, report in reports.items() if not report.get("problem")}


Found = Iterator[tuple[str, str]]
"""(status, what is wrong and the remedy); the message is empty where all is well."""
How = Callable[[str, Object, Site], Found]
"""The check of a host by its name, its report and what is known of the site."""


def checks(site: Site) -> Iterator[Check]:
    # A host may be both: each of its reports has other facts.
    for host, report in (*site.trays.items(), *site.controllers.items()):
        if report.get("problem"):
            yield unanswered.of(host, str(report["problem"]))
        else:
            for name, how in TABLE.items():
                yield from (Check(name, status, message, host) for status, message in how(host, report, site))
    if not site.controllers:
        yield Check("slurm", SKIPPED, "no Slurm controller is in this run")
    if not any(report.get("connects") for report in site.asked.values()):
        yield Check("ports", SKIPPED, "no host connected to another one")


def _ssh(_host: str, _report: Object, _site: Site) -> Found:
    yield OK, ""


def _python(_host: str, report: Object, _site: Site) -> Found:
    yield matrix.evaluate("tray_python", str(report.get("python")))


def _become(_host: str, report: Object, site: Site) -> Found:
    user = sentence(report.get("user"), 40)
    if report.get("root"):
        yield OK, ""
    elif site.needs_root:
        yield ERROR, f"Ansible runs as {user}, and the roles need root: set ansible_become: true (docs/security.md)"
    else:
        yield INFO, f"Ansible runs as {user}; discover, verify and report need no root"


# -------------------------------------------------------------------------------------------------------------- clocks


def _clock(_host: str, report: Object, _site: Site) -> Found:
    """By the least that the host's clock can differ, since it is known as an interval."""
    clock = mapped(report.get("clock"))
    skew = max(0.0, float(clock.get("low") or 0.0), -float(clock.get("high") or 0.0))
    if skew <= MAX_SKEW:
        yield OK, ""
        return
    # Rounded, so that trays of one wrong time server are one line.
    shown = f"{round(skew, -1):.0f} s" if skew < 600 else f"{skew / 60:.0f} min"
    differs = f"the clock differs from that of the controller by about {shown}"
    status, refused = (ERROR, "; munge refuses credentials") if skew >= AUTH_SKEW else (WARNING, "")
    yield status, f"{differs}{refused}: start chrony or systemd-timesyncd"


# -------------------------------------------------------------------------------------------------- driver, IMEX, Slurm


_OF_DRIVER = ("driver_missing", "version_mismatch")


def _driver(_host: str, report: Object, _site: Site) -> Found:
    driver = mapped(report.get("gpu")).get("driver")
    if driver:
        yield matrix.evaluate("driver", str(driver))
    yield from ((ERROR, text) for code, text in _findings(report).items() if code in _OF_DRIVER)


def _nvml(_host: str, report: Object, _site: Site) -> Found:
    findings, gpu = _findings(report), mapped(report.get("gpu"))
    yield from ((ERROR, text) for code, text in findings.items() if code not in _OF_DRIVER)
    if gpu and not findings:
        yield (OK, "") if gpu.get("gpus") else (ERROR, "no GPU was found: run nvidia-smi there")


def _findings(report: Object) -> dict[str, str]:
    """Code -> its errors as one text."""
    rows = map(mapped, as_list(mapped(report.get("gpu")).get("findings")))
    return {code: f"{code}: {text}" for code, text in of_gpus(row for row in rows if row.get("severity") == "error")}


def _imex(_host: str, report: Object, site: Site) -> Found:
    imex, driver = mapped(report.get("imex")), str(mapped(report.get("gpu")).get("driver") or "")
    installed = str(imex.get("installed") or "")
    if not site.with_imex:
        return
    if installed and driver and not (installed.partition(":")[2] or installed).startswith(driver):
        message = f"nvidia-imex {installed} is installed and the driver is {driver}: the role imex installs that"
        yield WARNING, f"{message} version where the repositories have it"
    elif installed or imex.get("candidate") or imex.get("program"):
        yield OK, ""
    elif driver:
        offered = [str(text) for text in as_list(imex.get("offered"))]
        others = f", only {summarize(offered)}" if offered else ""
        message = f"no nvidia-imex of the driver's version {driver} is installed or in the package cache{others}: add"
        yield WARNING, f"{message} NVIDIA's repository, or install the package"


def _versions(_host: str, report: Object, _site: Site) -> Found:
    versions = (report.get("slurmd"), mapped(report.get("slurm")).get("version"))
    yield from (matrix.evaluate("slurm", str(version)) for version in versions if version)


def _slurm(_host: str, report: Object, _site: Site) -> Found:
    slurm = mapped(report.get("slurm"))
    if slurm:
        yield (WARNING, sentence(slurm["problem"], 300)) if slurm.get("problem") else (OK, "")


# --------------------------------------------------------------------------------------------------------------- ports


def _ports(host: str, report: Object, site: Site) -> Found:
    """Blocked ports."""
    blocked: dict[tuple[int, str], list[str]] = {}
    rows = [mapped(row) for row in as_list(report.get("connects"))]
    for row in rows:
        peer, port, reason = str(row.get("name")), int(row.get("port") or 0), sentence(row.get("reason"), 80)
        # A peer that did not answer is reported itself.
        if reason and not mapped(site.asked.get(peer)).get("problem"):
            blocked.setdefault((port, reason), []).append(peer)
    for (port, reason), peers in blocked.items():
        needed = site.placed or host in site.controllers or any(peer in site.controllers for peer in peers)
        # The peers of each tray are others: their number is the same for all where a whole network is blocked.
        whom = f"{len(peers)} neighbours" if len(peers) > 2 else summarize(peers)
        message = (
            f"port {port} of {whom} cannot be reached ({reason}): open it in the firewalls, or correct the addresses"
        )
        yield (ERROR if needed else WARNING), message
    if rows and not blocked:
        yield OK, ""


TABLE: dict[str, How] = {
    "ssh": _ssh,
    "python": _python,
    "become": _become,
    "clock": _clock,
    "driver": _driver,
    "nvml": _nvml,
    "imex_package": _imex,
    "ports": _ports,
    "versions": _versions,
    "slurm": _slurm,
}
"""Check -> how it is made, of a tray and of a Slurm controller; of what a host has not reported there is none."""
