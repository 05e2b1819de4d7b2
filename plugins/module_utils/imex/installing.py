# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find and install the nvidia-imex package on this tray."""

from __future__ import annotations

import os
import shutil
import tempfile

from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, packages, status, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts


def offer_for(
    host: Host, desired: domain.DesiredState, observed: Facts
) -> tuple[packages.Offer | None, list[HostFinding]]:
    """(the package to install or keep, findings). None where no package is managed, or none was found."""
    driver = observed["driver_version"]
    if desired.owner not in domain.LIST_OWNERS or not driver:
        return None, []
    installed = observed["package"]
    name = installed["name"] if installed else None
    if installed and packages.matches(installed["version"], driver) and desired.package in ("", name):
        return packages.Offer(installed["name"], installed["version"]), []
    if not desired.manage_package:
        if observed["installed"] and status.is_same_version(observed["version"] or "", driver):
            return None, []
        state = f"{observed['version']} is installed" if observed["installed"] else "nvidia-imex is not installed"
        return None, [host_finding("imex_version_mismatch", "installed", state=state, driver=driver)]
    offers = _offers(host, desired, driver)
    chosen = packages.choose(offers, driver, name, desired.package)
    if chosen is None and shutil.which("apt-get"):
        # The package lists may be older than the repository.
        offers = _fresh_offers(host, desired, driver)
        chosen = packages.choose(offers, driver, name, desired.package)
    if chosen is None:
        return None, [domain.missing_package(driver, offers, desired.package)]
    return chosen, []


def _offers(host: Host, desired: domain.DesiredState, driver: str, *options: str) -> list[packages.Offer]:
    names = packages.names(driver, desired.package)
    if shutil.which("apt-cache"):
        return packages.parse_madison(host.call("apt-cache", *options, "madison", *names, large_files=True).stdout)
    if shutil.which("dnf"):
        command = ["dnf", "--quiet", "repoquery", "--qf", "%{name} %{version}-%{release}\\n", *names]
        return packages.parse_repoquery(host.call(*command, timeout=packages.INSTALL_SECONDS, large_files=True).stdout)
    return []


def _fresh_offers(host: Host, desired: domain.DesiredState, driver: str) -> list[packages.Offer]:
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
        host.call("apt-get", "--quiet=2", *options, "update", timeout=packages.INSTALL_SECONDS, large_files=True)
        return _offers(host, desired, driver, *options)


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
