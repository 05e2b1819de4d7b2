# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of trays and Slurm controllers from their reports (module_utils/inspection.py). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import limits
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import matrix, unanswered
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.results import OK, SKIPPED, check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import of_gpus
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, INFO, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import TrayReport
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

MAX_SKEW, AUTH_SKEW = 10.0, 300.0
"""Seconds between two clocks: more is a warning, and munge refuses credentials from the second on."""


@dataclass(frozen=True)
class Report:
    """What one host returned.

    problem: why it did not answer; the rest is empty then. tray: what fabric_facts reads, empty of a Slurm controller.
    host: the rest, as the module doctor documents it; each value may be null.
    """

    problem: str = ""
    tray: TrayReport = field(default_factory=lambda: TrayReport(""))
    host: Object = field(default_factory=dict)


def report(name: str, result: Any, is_tray: bool) -> Report:
    """The report in a registered result, or in one of a reading by ssh."""
    answer = mapped(result)
    if "times" not in answer or answer.get("failed"):
        return Report(str(answer.get("problem") or answer.get("msg") or "it returned nothing"))
    return Report("", tray_report.read(name, answer) if is_tray else TrayReport(name), answer)


@dataclass(frozen=True)
class Site:
    """What the run knows of the site.

    trays, controllers: host -> its report, of those that this run has asked. needs_root: whether roles configure these.
    placed: whether the neighbours are those of the fabric file.
    with_imex: whether the site runs IMEX as a service.
    """

    trays: Mapping[str, Report]
    controllers: Mapping[str, Report] = field(default_factory=dict)
    needs_root: bool = False
    placed: bool = False
    with_imex: bool = True

    @property
    def asked(self) -> dict[str, Report]:
        return {**self.trays, **self.controllers}


def answered(reports: Mapping[str, Report]) -> int:
    """How many hosts returned a report."""
    return sum(not report.problem for report in reports.values())


Found = Iterator[tuple[str, str]]
"""(status, what is wrong and the remedy); the message is empty where all is well."""
How = Callable[[str, Report, Site], Found]
"""The check of a host by its name, its report and what is known of the site."""


def checks(site: Site) -> Iterator[Finding]:
    # A host may be both: each of its reports has other facts.
    for host, report in (*site.trays.items(), *site.controllers.items()):
        if report.problem:
            yield unanswered.of(host, report.problem)
        else:
            for name, how in TABLE.items():
                yield from (check(name, status, message, host) for status, message in how(host, report, site))
    if not site.controllers:
        yield check("slurm", SKIPPED, "no Slurm controller is in this run")
    if not any(report.host.get("connects") for report in site.asked.values()):
        yield check("ports", SKIPPED, "no host connected to another one")


def _ssh(_host: str, _report: Report, _site: Site) -> Found:
    yield OK, ""


def _python(_host: str, report: Report, _site: Site) -> Found:
    yield matrix.evaluate("tray_python", str(report.host.get("python")))


def _become(_host: str, report: Report, site: Site) -> Found:
    user = sentence(report.host.get("user"), 40)
    if report.host.get("root"):
        yield OK, ""
    elif site.needs_root:
        yield ERROR, f"Ansible runs as {user}, and the roles need root: set ansible_become: true (docs/security.md)"
    else:
        yield INFO, f"Ansible runs as {user}; discover, verify and report need no root"


# -------------------------------------------------------------------------------------------------------------- clocks


def _clock(_host: str, report: Report, _site: Site) -> Found:
    """By the least that the host's clock can differ, since it is known as an interval."""
    clock = mapped(report.host.get("clock"))
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


def _driver(_host: str, report: Report, _site: Site) -> Found:
    driver = report.tray.versions and report.tray.versions.driver
    if driver:
        yield matrix.evaluate("driver", driver)
    yield from ((ERROR, text) for code, text in _findings(report).items() if code in _OF_DRIVER)


def _nvml(_host: str, report: Report, _site: Site) -> Found:
    findings, gpu = _findings(report), report.tray.gpu
    yield from ((ERROR, text) for code, text in findings.items() if code not in _OF_DRIVER)
    if gpu and not findings:
        yield (OK, "") if gpu.gpus else (ERROR, "no GPU was found: run nvidia-smi there")
    if "gpu" in report.tray.missing and not findings:
        yield ERROR, f"{report.tray.missing['gpu']}: run fabric_facts there with -vvv"


def _findings(report: Report) -> dict[str, str]:
    """Code -> its errors as one text."""
    rows = (row for row in report.tray.findings if row["severity"] == ERROR)
    return {code: f"{code}: {text}" for code, text in of_gpus(rows)}


def _imex(_host: str, report: Report, site: Site) -> Found:
    imex, versions = mapped(report.host.get("imex")), report.tray.versions
    if not site.with_imex or not versions:
        return
    installed, driver = versions.imex_package or "", versions.driver or ""
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


def _versions(_host: str, report: Report, _site: Site) -> Found:
    slurmd = report.tray.versions and report.tray.versions.slurmd
    versions = (slurmd, mapped(report.host.get("slurm")).get("version"))
    yield from (matrix.evaluate("slurm", str(version)) for version in versions if version)


def _slurm(_host: str, report: Report, _site: Site) -> Found:
    slurm = mapped(report.host.get("slurm"))
    found = limits.findings(map(str, as_list(slurm.get("limits"))), str(slurm.get("version")))
    if slurm.get("problem"):
        yield WARNING, sentence(slurm["problem"], 300)
    elif slurm and not found:
        yield OK, ""
    yield from ((WARNING, worded(row)["message"]) for row in found)


# --------------------------------------------------------------------------------------------------------------- ports


def _ports(host: str, report: Report, site: Site) -> Found:
    """Blocked ports."""
    blocked: dict[tuple[int, str], list[str]] = {}
    rows = [mapped(row) for row in as_list(report.host.get("connects"))]
    for row in rows:
        peer, port, reason = str(row.get("name")), int(row.get("port") or 0), sentence(row.get("reason"), 80)
        # A peer that did not answer is reported itself.
        if reason and not site.asked.get(peer, Report()).problem:
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
