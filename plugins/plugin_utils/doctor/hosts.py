# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of trays and Slurm controllers from their reports (module_utils/doctor.py). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import causes, matrix
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.checks import (
    ERROR,
    INFO,
    LOCALHOST,
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
    def answered(self) -> dict[str, Object]:
        return {name: report for name, report in self.trays.items() if not report.get("problem")}


def checks(site: Site) -> Iterator[Check]:
    for host, report in {**site.trays, **site.controllers}.items():
        if report.get("problem"):
            yield causes.of(host, str(report["problem"]))
            continue
        yield Check("ssh", OK, host, "")
        yield Check("python", *_at(host, matrix.evaluate("tray_python", str(report.get("python")))))
        yield _become(host, report, site)
        yield from _clock(host, report)
    for host, report in site.answered.items():
        yield from _driver(host, report, site.dra_driver)
        yield from _imex(host, report, site.with_imex)
        slurmd = report.get("slurmd")
        if slurmd:
            yield Check("versions", *_at(host, matrix.evaluate("slurm", str(slurmd))))
    yield from _between_clocks(site)
    yield from _ports(site)
    for host, report in site.controllers.items():
        yield from _slurm(host, mapped(report.get("slurm")))


def _at(host: str, evaluated: tuple[str, str]) -> tuple[str, str, str]:
    status, message = evaluated
    return status, host, message


def _become(host: str, report: Object, site: Site) -> Check:
    if report.get("root"):
        return Check("become", OK, host, "")
    user = sentence(report.get("user"), 40)
    if not site.needs_root:
        return Check("become", INFO, host, f"Ansible runs as {user}; discover, verify and report need no root")
    message = f"Ansible runs as {user}, and {site.needs_root} need root: set ansible_become: true (docs/security.md)"
    return Check("become", ERROR, host, message)


# -------------------------------------------------------------------------------------------------------------- clocks


def _clock(host: str, report: Object) -> Iterator[Check]:
    skew = _distance(_clock_of(report), (0.0, 0.0))
    if skew > MAX_SKEW:
        yield Check("clock", _severity(skew), host, _skewed("the controller", skew))
    else:
        yield Check("clock", OK, host, "")


def _between_clocks(site: Site) -> Iterator[Check]:
    """The largest skew of two trays, where each of them is near enough to the controller."""
    clocks = {name: _clock_of(report) for name, report in {**site.answered, **_up(site.controllers)}.items()}
    near = {name: clock for name, clock in clocks.items() if _distance(clock, (0.0, 0.0)) <= MAX_SKEW}
    if len(near) > 1:
        first = min(near, key=lambda name: near[name][1])
        last = max(near, key=lambda name: near[name][0])
        skew = _distance(near[first], near[last])
        if skew > MAX_SKEW:
            yield Check("clock", _severity(skew), first, _skewed(last, skew))


def _up(reports: Mapping[str, Object]) -> dict[str, Object]:
    return {name: report for name, report in reports.items() if not report.get("problem")}


def _clock_of(report: Object) -> tuple[float, float]:
    clock = mapped(report.get("clock"))
    return float(clock.get("low") or 0.0), float(clock.get("high") or 0.0)


def _distance(first: tuple[float, float], second: tuple[float, float]) -> float:
    """The least that two clocks can differ, each known as an interval."""
    return max(0.0, first[0] - second[1], second[0] - first[1])


def _severity(skew: float) -> str:
    return ERROR if skew >= AUTH_SKEW else WARNING


def _skewed(other: str, skew: float) -> str:
    # Rounded, so that trays of one wrong time server are one line.
    shown = f"{round(skew, -1):.0f} s" if skew < 600 else f"{skew / 60:.0f} min"
    refused = "; munge refuses credentials" if skew >= AUTH_SKEW else ""
    return f"the clock differs from that of {other} by about {shown}{refused}: start chrony or systemd-timesyncd"


# -------------------------------------------------------------------------------------------------- driver, IMEX, Slurm


def _driver(host: str, report: Object, dra_driver: bool) -> Iterator[Check]:
    gpu = mapped(report.get("gpu"))
    findings = [row for row in map(mapped, as_list(gpu.get("findings"))) if row.get("severity") == "error"]
    driver = gpu.get("driver")
    if driver:
        evaluated = matrix.evaluate("driver", str(driver))
        if dra_driver and matrix.is_older(str(driver), matrix.DRA_DRIVER):
            evaluated = (ERROR, f"the NVIDIA driver is {driver}; the DRA driver needs {matrix.DRA_DRIVER}: upgrade it")
        yield Check("driver", *_at(host, evaluated))
    # One row for each code, since a message may name a GPU.
    firsts: dict[str, Object] = {}
    for row in findings:
        firsts.setdefault(str(row.get("code")), row)
    for code, first in firsts.items():
        name = "driver" if code in ("driver_missing", "version_mismatch") else "nvml"
        yield Check(name, ERROR, host, f"{code}: {sentence(first.get('message'), 300)}")
    if not findings:
        status, message = (OK, "") if gpu.get("gpus") else (ERROR, "no GPU was found: run nvidia-smi there")
        yield Check("nvml", status, host, message)


def _imex(host: str, report: Object, wanted: bool) -> Iterator[Check]:
    if not wanted:
        return
    imex, driver = mapped(report.get("imex")), str(mapped(report.get("gpu")).get("driver") or "")
    installed, candidate = imex.get("installed"), imex.get("candidate")
    if installed:
        if driver and not _is_version(str(installed), driver):
            message = f"nvidia-imex {installed} is installed and the driver is {driver}: the role imex installs that"
            yield Check("imex_package", WARNING, host, f"{message} version where the repositories have it")
        else:
            yield Check("imex_package", OK, host, "")
    elif candidate or imex.get("program"):
        yield Check("imex_package", OK, host, "")
    elif driver:
        offered = [str(text) for text in as_list(imex.get("offered"))]
        others = f", only {summarize(offered)}" if offered else ""
        message = f"no nvidia-imex of the driver's version {driver} is installed or in the package cache{others}: add"
        yield Check("imex_package", WARNING, host, f"{message} NVIDIA's repository, or install the package")


def _is_version(package: str, driver: str) -> bool:
    return package.partition(":")[2].startswith(driver) if ":" in package else package.startswith(driver)


def _slurm(host: str, slurm: Object) -> Iterator[Check]:
    if slurm.get("version"):
        yield Check("versions", *_at(host, matrix.evaluate("slurm", str(slurm["version"]))))
    if slurm.get("problem"):
        yield Check("slurm", WARNING, host, sentence(slurm["problem"], 300))
    elif slurm:
        yield Check("slurm", OK, host, "")


# --------------------------------------------------------------------------------------------------------------- ports


def _ports(site: Site) -> Iterator[Check]:
    """Blocked ports. A refused connection shows that the packets pass, except where the peer listens on the port."""
    tried = False
    asked = {**site.trays, **site.controllers}
    for host, report in {**site.answered, **_up(site.controllers)}.items():
        blocked: dict[tuple[int, str], list[str]] = {}
        rows = [mapped(row) for row in as_list(report.get("connects"))]
        for row in rows:
            peer, port, state = str(row.get("name")), int(row.get("port") or 0), str(row.get("state"))
            if mapped(asked.get(peer)).get("problem"):
                continue  # it is reported itself
            listens = port in as_list(mapped(site.trays.get(peer)).get("listens"))
            if state == OPEN or (state == REFUSED and not listens):
                continue
            blocked.setdefault((port, sentence(row.get("reason"), 80) or state), []).append(peer)
        tried = tried or bool(rows)
        # The peers of each tray are others: their number is the same for all where a whole network is blocked.
        for (port, reason), peers in blocked.items():
            needed = site.placed or host in site.controllers or any(peer in site.controllers for peer in peers)
            status = ERROR if needed and port != SSH_PORT else WARNING
            yield Check("ports", status, host, _blocked(port, reason, peers))
        if rows and not blocked:
            yield Check("ports", OK, host, "")
    if not tried and site.answered:
        yield Check("ports", SKIPPED, LOCALHOST, "no tray connected to another one")


def _blocked(port: int, reason: str, peers: list[str]) -> str:
    whom = f"{len(peers)} neighbours" if len(peers) > 2 else summarize(peers)
    return f"port {port} of {whom} cannot be reached ({reason}): open it in the firewalls, or correct the addresses"
