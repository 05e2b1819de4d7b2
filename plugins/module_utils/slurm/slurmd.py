# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the slurm.conf of this host's slurmd: a site, or a cloud's image, may keep Slurm in any folder.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import glob
import os
import re
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic

# The link to what slurmctld sends to a configless slurmd.
FETCHED = "/run/slurm/conf/slurm.conf"
PLACES = ("/etc/slurm/slurm.conf", FETCHED, "/etc/slurm-llnl/slurm.conf")
# Besides those that slurm.conf names: a prolog may call all of a folder.
PROLOG_FILES = (
    "/etc/slurm/*prolog*",
    "/etc/slurm/prolog.d/*",
    "/etc/slurm/prolog_slurmd.d/*",
    "/opt/slurm/etc/prolog.d/*",
)
# A reconfigure starts slurmd again with the first, and the second is for Slurm's own tests.
_CONFIGLESS = ("SLURMD_RECONF_CONF_CACHE", "SLURM_CONF_SERVER")
_FILE = re.compile("-[bcCDGMsv]*f(.*)")


class Slurmd(NamedTuple):
    """conf: its slurm.conf, None where there is none. prefix: the folder above that of its program, else empty."""

    conf: str | None
    prefix: str


def find(proc: str = "/proc") -> Slurmd:
    """The slurmd that runs, by its process; without one, the slurm.conf of the first of PLACES that has one."""
    for folder in glob.glob(f"{proc}/[0-9]*"):
        try:
            if (atomic.read_text(f"{folder}/comm") or "").strip() == "slurmd" and _is_of_host(folder, proc):
                prefix = os.path.dirname(os.path.dirname(os.readlink(f"{folder}/exe")))
                return Slurmd(_first(_candidates(folder, prefix)), prefix)
        except OSError:
            continue  # it has ended
    return Slurmd(_first(PLACES), "")


def _is_of_host(folder: str, proc: str) -> bool:
    """Whether a process is root's and has this one's files: a user, or a container, may call any process slurmd.

    Not by the owner of its folder, which is root where a process forbids a core dump.
    """
    owned = re.search(r"(?m)^Uid:\t0\t0\t", atomic.read_text(f"{folder}/status") or "")
    return bool(owned) and os.readlink(f"{folder}/ns/mnt") == os.readlink(f"{proc}/self/ns/mnt")


def _candidates(folder: str, prefix: str) -> tuple[str, ...]:
    """What slurmd reads, in its own order: _establish_configuration() of Slurm's slurmd.c."""
    words, pairs = ((atomic.read_text(f"{folder}/{name}") or "").split("\0") for name in ("cmdline", "environ"))
    environment = dict(pair.partition("=")[::2] for pair in pairs)
    if any(map(environment.get, _CONFIGLESS)) or any(word.startswith("--conf-server") for word in words):
        return (FETCHED,)
    given = [match.group(1) or after for word, after in zip(words, words[1:]) if (match := _FILE.fullmatch(word))]
    path = given[-1] if given else environment.get("SLURM_CONF")
    # Else the folder with which it was built: by default that below its prefix.
    return (os.path.join(folder, "cwd", path),) if path else (f"{prefix}/etc/slurm.conf", *PLACES)


def _first(paths: tuple[str, ...]) -> str | None:
    return next((path for path in paths if os.path.isfile(path)), None)
