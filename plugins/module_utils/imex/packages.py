# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the nvidia-imex package of exactly the driver's version, and the commands that install it.

Ubuntu's archive has nvidia-imex-BRANCH (550 to 595); NVIDIA's repositories had that and now have plain nvidia-imex. The
two may offer different versions of one branch, so the version decides, not the name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

PLAIN = "nvidia-imex"
APT_PIN = "/etc/apt/preferences.d/nvlink-imex"
# For one call of a package manager, or a build of the initramfs.
INSTALL_SECONDS = 600.0
# systemd kills a daemon that ignores SIGTERM after 90 s.
STOP_SECONDS = 120.0
# Non-interactive; keeps the site's config.cfg; allows a downgrade, because the driver decides the version.
APT_INSTALL = (
    "apt-get",
    "--quiet=2",
    "--yes",
    "--no-install-recommends",
    "--allow-downgrades",
    "--option=Dpkg::Options::=--force-confold",
    "--option=Dpkg::Options::=--force-confdef",
    "--option=DPkg::Lock::Timeout=120",
    "install",
)


class Offer(NamedTuple):
    """A package of a repository: its name and full version."""

    name: str
    version: str


def names(driver: str, given: str = "") -> list[str]:
    """The possible package names: the given one, else the plain one and that with the driver's branch."""
    return [given] if given else [PLAIN, f"{PLAIN}-{driver.partition('.')[0]}"]


def matches(version: str, driver: str) -> bool:
    """Whether a package version is the driver's, apart from epoch and package revision."""
    return upstream_version(version) == driver


def upstream_version(version: str) -> str:
    """A package version without its epoch and package revision."""
    return re.split("[-+~]", version.partition(":")[2] if ":" in version else version, maxsplit=1)[0]


def parse_madison(text: str) -> list[Offer]:
    """Parse apt-cache madison: lines of `name | version | source`, newest first."""
    rows = ([part.strip() for part in line.split("|")] for line in text.splitlines())
    return list(dict.fromkeys(Offer(row[0], row[1]) for row in rows if len(row) >= 3 and row[0] and row[1]))


def parse_repoquery(text: str) -> list[Offer]:
    """Parse dnf repoquery --qf '%{name} %{version}-%{release}': one package per line."""
    rows = (line.split() for line in text.splitlines())
    return list(dict.fromkeys(Offer(row[0], row[1]) for row in rows if len(row) == 2))


def choose(offers: Sequence[Offer], driver: str, installed: str | None = None, given: str = "") -> Offer | None:
    """The offer of the driver's version, preferably under the installed name; None where there is none."""
    candidates = names(driver, given)
    fitting = [offer for offer in offers if offer.name in candidates and matches(offer.version, driver)]
    return min(fitting, key=lambda o: (o.name != installed, candidates.index(o.name)), default=None)


def render_apt_pin(offer: Offer) -> str:
    """The apt pin that keeps the package at the driver's version during upgrades."""
    return (
        "# Written by the role rackscale.nvlink.imex: IMEX runs only in the loaded driver's version.\n"
        f"Package: {offer.name}\nPin: version {offer.version}\nPin-Priority: 1001\n"
    )
