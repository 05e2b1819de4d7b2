# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package of nvidia-imex on this tray: what its repositories offer, and how it comes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, packages, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.host_changes import (
    INSTALL_SECONDS,
    SECONDS,
    STOP_SECONDS,
    HostChanges,
    unpack,
)


def offer_for(
    want: domain.Wanted, seen: Mapping[str, Any], driver: str | None, check: bool
) -> tuple[packages.Offer | None, list[dict[str, Any]]]:
    """The package to have, None where none is managed; and the finding where there is none to be had."""
    owners = (*domain.SERVICE_OWNERS, domain.JOB)
    if want.owner not in owners or not driver:
        return None, []
    has = seen["package"]
    if has and packages.matches(has["version"], driver) and want.package in ("", has["name"]):
        return packages.Offer(has["name"], has["version"]), []
    if not want.manage_package:
        if seen["installed"] and seen["version"] == driver:
            return None, []
        said = f"{seen['version']} is installed" if seen["installed"] else "nvidia-imex is not installed"
        return None, [
            finding(
                "imex_version_mismatch",
                f"{said} and the driver is {driver}; install that version, or let the role do it with"
                " imex_manage_package.",
            )
        ]
    offers = _offers(want, driver)
    chosen = packages.choose(offers, driver, has["name"] if has else None, want.package)
    if chosen is None and shutil.which("apt-get"):
        # The lists of packages may be older than the repository.
        offers = _fresh_offers(want, driver, check)
        chosen = packages.choose(offers, driver, has["name"] if has else None, want.package)
    if chosen is None:
        return None, [domain.missing_package(driver, offers, want.package)]
    return chosen, []


def _offers(want: domain.Wanted, driver: str, *options: str) -> list[packages.Offer]:
    names = packages.names(driver, want.package)
    if shutil.which("apt-cache"):
        command = ["apt-cache", *options, "madison", *names]
        return packages.parse_madison(unpack(command, SECONDS).stdout)
    if shutil.which("dnf"):
        question = ["dnf", "--quiet", "repoquery", "--qf", "%{name} %{version}-%{release}\\n", *names]
        return packages.parse_repoquery(unpack(question).stdout)
    return []


def _fresh_offers(want: domain.Wanted, driver: str, check: bool) -> list[packages.Offer]:
    """After apt-get update; in check mode into lists of its own, which are thrown away."""
    with tempfile.TemporaryDirectory(prefix="nvlink-imex-") as folder:
        options = []
        if check:
            os.mkdir(f"{folder}/partial")
            options = [
                f"--option=Dir::State::Lists={folder}",
                "--option=Dir::Cache::pkgcache=",
                "--option=Dir::Cache::srcpkgcache=",
            ]
        unpack(["apt-get", "--quiet=2", *options, "update"])
        return _offers(want, driver, *options)


def fetch(hands: HostChanges, offer: packages.Offer) -> None:
    """Before anything is stopped: a package that cannot be had must not cost a running domain."""
    if hands.check or not shutil.which("apt-get"):
        return
    command = [*packages.APT_INSTALL[:-1], "--download-only", "install", f"{offer.name}={offer.version}"]
    hands.must(command, INSTALL_SECONDS, f"{offer.name} {offer.version} cannot be fetched")


def install(hands: HostChanges, offer: packages.Offer) -> None:
    hands.tell(f"install {offer.name} {offer.version}")
    if hands.check:
        return
    if shutil.which("apt-get"):
        command = [*packages.APT_INSTALL, f"{offer.name}={offer.version}"]
    else:
        command = ["dnf", "--assumeyes", "--quiet", "install", f"{offer.name}-{offer.version}"]
    hands.must(command, INSTALL_SECONDS, f"{offer.name} {offer.version} cannot be installed")
    state = child.run(["systemctl", "is-active", survey.UNIT], SECONDS).stdout.strip()
    if state in ("active", "activating", "reloading"):
        # Packages may start what they bring; nothing starts before all members have one list.
        hands.systemctl("stop", survey.UNIT, seconds=STOP_SECONDS)
