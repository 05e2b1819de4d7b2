# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees of programs that run beside a lab: Chromium, promtool and Alertmanager, and an empty Ansible controller.

Nothing of them is installed on the machine. A program in a tree sees its own files, one folder of the caller and the
caller's network, and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from . import cached, tools

# Nothing reads there.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
# Where a program finds the caller's folder.
SHARED = "/mnt"


class Tree(NamedTuple):
    name: str
    suite: str
    packages: tuple[str, ...]

    def folder(self) -> Path:
        """The tree's files, made when they are not there."""
        return cached.folder(
            self.name, [part.encode() for part in (self.suite, *self.packages, *LEFT_OUT)], self._build
        )

    def _build(self, building: Path, lock: int) -> None:
        tools.ensure_tools()
        make = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(self.packages)}"]
        make += [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
        tools.call([*make, self.suite, str(building)], f"building the tree {self.name}", keep=[lock])

    def command(self, program: Sequence[str], shared: Path, *options: str) -> list[str]:
        """The command line that runs a program, with a folder of the caller at SHARED; it ends by SIGTERM.

        options: further ones of systemd-nspawn.
        """
        # nspawn leaves notes in /run; nobody sees those in a /run of its own.
        private = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', self.name]
        return [
            *(*private, "env", "SYSTEMD_NSPAWN_LOCK=0", "systemd-nspawn", "--quiet", f"--directory={self.folder()}"),
            *("--volatile=overlay", "--register=no", "--keep-unit", "--as-pid2", "--pipe", "--timezone=off"),
            *("--link-journal=no", f"--machine={self.name}-{os.getpid()}", f"--bind={shared}:{SHARED}"),
            *(*options, *program),
        ]


VIEWERS = Tree(
    "viewers",
    "trixie",
    ("chromium", "chromium-driver", "fonts-dejavu-core", "prometheus", "prometheus-alertmanager"),
)
# With the packages that docs/systems.md asks for, where no clone is built.
CONTROLLER = Tree("controller-trixie", "trixie", ("python3-venv", "openssh-client"))
