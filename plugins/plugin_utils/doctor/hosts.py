# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of trays and Slurm controllers from their reports (module_utils/doctor.py). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import causes, matrix
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.checks import (
    ERROR,
    INFO,
    OK,
    SKIPPED,
    WARNING,
    Check,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import Object, as_list, mapped, sentence

SSH_PORT = 22
MAX_SKEW, AUTH_SKEW = 10.0, 300.0
"""Seconds between two clocks: more is a warning, and munge refuses credentials from the second on."""
OPEN, REFUSED, UNRESOLVED = "open", "refused", "unresolved"


@dataclass(frozen=True)
class Site:
    """What the run knows of the site.

    trays, controllers: host -> its report, or one with `problem` alone. needs_root: what root is needed for on these,
    empty where nothing configures them. placed: whether the neighbours are those of the fabric file.
    with_imex: whether the site runs IMEX as a service. dra_driver: whether NVIDIA's DRA driver is to be installed.
    """

    trays: Mapping[str, Object]
    controllers: Mapping[str, Object] = field(default_factory=dict)
    needs_root: str = ""
    placed: bool = False
    with_imex: bool = True
    dra_driver: bool = False

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
    for host, report in site.asked.items():
        if report.get("problem"):
            yield causes.of(host, str(report["problem"]))
    trays, controllers = answered(site.trays), answered(site.controllers)
    for name, of_trays, of_controllers, how in TABLE:
        for host, report in {**(trays if of_trays else {}), **(controllers if of_controllers else {})}.items():
            yield from (Check(name, status, message, host) for status, message in how(host, report, site))
    if trays and not any(report.get("connects") for report in {**trays, **controllers}.values()):
        yield Check("ports", SKIPPED, "no tray connected to another one")


def _ssh(_host: str, _report: Object, _site: Site) -> Found:
    yield OK, ""


def _python(_host: str, report: Object, _site: Site) -> Found:
    yield matrix.evaluate("tray_python", str(report.get("python")))


def _become(_host: str, report: Object, site: Site) -> Found:
    user = sentence(report.get("user"), 40)
    if report.get("root"):
        yield OK, ""
    elif site.needs_root:
        need = f"Ansible runs as {user}, and {site.needs_root} need root"
        yield ERROR, f"{need}: set ansible_become: true (docs/security.md)"
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


def _driver(_host: str, report: Object, site: Site) -> Found:
    driver = mapped(report.get("gpu")).get("driver")
    if driver and site.dra_driver and matrix.is_older(str(driver), matrix.DRA_DRIVER):
        yield ERROR, f"the NVIDIA driver is {driver}; the DRA driver needs {matrix.DRA_DRIVER}: upgrade it"
    elif driver:
        yield matrix.evaluate("driver", str(driver))
    yield from ((ERROR, text) for code, text in _findings(report).items() if code in _OF_DRIVER)


def _nvml(_host: str, report: Object, _site: Site) -> Found:
    findings = _findings(report)
    yield from ((ERROR, text) for code, text in findings.items() if code not in _OF_DRIVER)
    if not findings:
        has_gpu = mapped(report.get("gpu")).get("gpus")
        yield (OK, "") if has_gpu else (ERROR, "no GPU was found: run nvidia-smi there")


def _findings(report: Object) -> dict[str, str]:
    """Code -> the first error of that code, since a message may name a GPU."""
    found: dict[str, str] = {}
    for row in map(mapped, as_list(mapped(report.get("gpu")).get("findings"))):
        if row.get("severity") == "error":
            found.setdefault(str(row.get("code")), f"{row.get('code')}: {sentence(row.get('message'), 300)}")
    return found


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
    """Blocked ports. A refused connection shows that the packets pass, except where the peer listens on the port."""
    blocked: dict[tuple[int, str], list[str]] = {}
    rows = [mapped(row) for row in as_list(report.get("connects"))]
    for row in rows:
        peer, port, state = str(row.get("name")), int(row.get("port") or 0), str(row.get("state"))
        if mapped(site.asked.get(peer)).get("problem"):
            continue  # it is reported itself
        listens = port in as_list(mapped(site.trays.get(peer)).get("listens"))
        if state != OPEN and (state != REFUSED or listens):
            blocked.setdefault((port, sentence(row.get("reason"), 80) or state), []).append(peer)
    for (port, reason), peers in blocked.items():
        needed = site.placed or host in site.controllers or any(peer in site.controllers for peer in peers)
        # The peers of each tray are others: their number is the same for all where a whole network is blocked.
        whom = f"{len(peers)} neighbours" if len(peers) > 2 else summarize(peers)
        message = (
            f"port {port} of {whom} cannot be reached ({reason}): open it in the firewalls, or correct the addresses"
        )
        yield (ERROR if needed and port != SSH_PORT else WARNING), message
    if rows and not blocked:
        yield OK, ""


TABLE: tuple[tuple[str, bool, bool, How], ...] = (
    ("ssh", True, True, _ssh),
    ("python", True, True, _python),
    ("become", True, True, _become),
    ("clock", True, True, _clock),
    ("driver", True, False, _driver),
    ("nvml", True, False, _nvml),
    ("imex_package", True, False, _imex),
    ("ports", True, True, _ports),
    ("versions", True, True, _versions),
    ("slurm", False, True, _slurm),
)
"""Check, whether it is one of trays and of Slurm controllers, and how it is made."""
