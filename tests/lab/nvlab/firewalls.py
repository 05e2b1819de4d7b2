# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ufw and firewalld as Debian packages, for the repository of a lab whose trays get a firewall.

Nothing of them is in the base trees: every host would carry them, and only one test wants them.
"""

from __future__ import annotations

from pathlib import Path

from . import cached, image, tools

WANTED = ("ufw", "firewalld", "nftables", "iptables")


def ensure(suite: str) -> Path:
    """The folder of their .deb files and of the dependencies that a tray lacks; fetched once."""

    def fetch(into: Path, lock: int) -> None:
        """Build a tree like the trays', query it for missing packages and remove it."""
        tools.ensure_tools()
        get = "apt-get --quiet=2 --yes --no-install-recommends --download-only install"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", "--format=null"]
        command += [f"--aptopt={option}" for option in image.APT_OPTIONS[suite]]
        command += [f'--customize-hook=chroot "$1" {get} {" ".join(WANTED)}']
        command += [f'--customize-hook=mv "$1"/var/cache/apt/archives/*.deb "{into}"/']
        tools.call([*command, f"--include={','.join(image.PACKAGES)}", suite], "fetching the firewalls", keep=[lock])

    return cached.folder(f"firewalls-{suite}", [part.encode() for part in (*WANTED, *image.PACKAGES)], fetch)
