# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find and install the nvidia-imex package on this tray."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, packages, status, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts


def offer_of(
    desired: domain.DesiredState, observed: Facts, offers: Sequence[Sequence[str]] | None
) -> tuple[packages.Offer | None, list[HostFinding]]:
    """(the package to install or keep, findings). None where no package is managed, or none was found.

    offers: of the tray's repositories; where they were not looked up, any name of the driver's version may be one.
    """
    driver = observed["driver_version"]
    if desired.owner not in domain.LIST_OWNERS or not driver:
        return None, []
    if kept := _kept(observed, desired.package):
        return kept, []
    if not desired.manage_package:
        if observed["installed"] and status.is_same_version(observed["version"] or "", driver):
            return None, []
        state = f"{observed['version']} is installed" if observed["installed"] else "nvidia-imex is not installed"
        return None, [host_finding("imex_version_mismatch", "installed", state=state, driver=driver)]
    if offers is None:
        return packages.Offer(packages.names(driver, desired.package)[0], driver), []
    known = [packages.Offer(name, version) for name, version in offers]
    chosen = packages.choose(known, driver, (observed["package"] or {}).get("name"), desired.package)
    return chosen, [] if chosen else [domain.missing_package(driver, known, desired.package)]


def _kept(observed: Facts, package: str) -> packages.Offer | None:
    """The installed package, where it is that of the driver's version."""
    installed, driver = observed["package"], observed["driver_version"]
    if installed and driver and packages.matches(installed["version"], driver) and package in ("", installed["name"]):
        return packages.Offer(installed["name"], installed["version"])
    return None


def read_offers(host: Host, observed: Facts, package: str) -> list[list[str]] | None:
    """The offers of the tray's repositories; None where no package is needed. package: to use, empty for any."""
    driver = observed["driver_version"]
    if not driver or _kept(observed, package):
        return None
    names = packages.names(driver, package)
    offers = _offers(host, names)
    if packages.choose(offers, driver, None, package) is None and shutil.which("apt-get"):
        # The package lists may be older than the repository.
        offers = _fresh_offers(host, names)
    return [list(offer) for offer in offers]


def _offers(host: Host, names: Sequence[str], *options: str) -> list[packages.Offer]:
    if shutil.which("apt-cache"):
        return packages.parse_madison(host.call("apt-cache", *options, "madison", *names, large_files=True).stdout)
    if shutil.which("dnf"):
        command = ["dnf", "--quiet", "repoquery", "--qf", "%{name} %{version}-%{release}\\n", *names]
        return packages.parse_repoquery(host.call(*command, timeout=packages.INSTALL_SECONDS, large_files=True).stdout)
    return []


def _fresh_offers(host: Host, names: Sequence[str]) -> list[packages.Offer]:
    """The offers after apt-get update, which in check mode writes to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="nvlink-imex-") as folder:
        options = []
        if host.check:
            os.mkdir(f"{folder}/partial")
            options = [
                f"--option=Dir::State::Lists={folder}",
                "--option=Dir::Cache::pkgcache=",
                "--option=Dir::Cache::srcpkgcache=",
            ]
        update = ("apt-get", "--quiet=2", *options, "update")
        host.call(*update, timeout=packages.INSTALL_SECONDS, large_files=True, acts=not host.check)
        return _offers(host, names, *options)


def fetch(host: Host, offer: packages.Offer) -> None:
    """Download a package before anything is stopped, so that a failed download does not stop a running domain."""
    if not host.check and shutil.which("apt-get"):
        command = (*packages.APT_INSTALL, "--download-only", f"{offer.name}={offer.version}")
        host.require(*command, timeout=packages.INSTALL_SECONDS, large_files=True)


def install(host: Host, offer: packages.Offer) -> None:
    if shutil.which("apt-get"):
        command = [*packages.APT_INSTALL, f"{offer.name}={offer.version}"]
    else:
        command = ["dnf", "--assumeyes", "--quiet", "install", f"{offer.name}-{offer.version}"]
    if not host.change(
        f"install {offer.name} {offer.version}", *command, timeout=packages.INSTALL_SECONDS, large_files=True
    ):
        return
    state = host.call("systemctl", "is-active", survey.UNIT).stdout.strip()
    if state in ("active", "activating", "reloading"):
        # A package may start its unit, but no member may start before all have one node list.
        host.require("systemctl", "stop", survey.UNIT, timeout=packages.STOP_SECONDS)
