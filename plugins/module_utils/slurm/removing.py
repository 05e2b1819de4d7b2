# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remove what this collection has written next to an existing slurm.conf: the topology, or the tiers' partitions.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Only files that begin with a header of this collection are removed, and of topology.yaml only the collection's
topologies, which the Ansible controller knows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf, files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import MAIN
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import (
    PREVIOUS,
    REMOVED,
    Stamps,
    stamps,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.daemon import Transaction
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

_HEADERS = (files.HEADER, conf.TIERS_HEADER, conf.SCRIPT_HEADER)
_INCLUDES = (conf.INCLUDE_NAME, conf.TIERS_NAME)


@dataclass(frozen=True)
class Part:
    """What one module writes: the file that slurm.conf includes, and further files in the same folder."""

    include: str
    others: tuple[str, ...]


TOPOLOGY = Part(conf.INCLUDE_NAME, tuple(files.FILE_NAMES.values()))
TIERS = Part(conf.TIERS_NAME, conf.SCRIPTS)


@dataclass(frozen=True)
class Removal:
    """Path -> the new content; None where the file is removed. stamps: of the folder when its files were read."""

    files: Mapping[str, bytes | None]
    stamps: Stamps

    def lines(self) -> list[str]:
        """One line for each file, as the diff shows it."""
        return [
            f"{path}: {'removed' if data is None else 'lines of rackscale.nvlink removed'}"
            for path, data in self.files.items()
        ]


def plan(conf_dir: str, part: Part, kept_yaml: str | None = None) -> Removal:
    """What to remove of a part. SlurmError where slurm.conf is not there.

    kept_yaml: the text of topology.yaml with the site's topologies alone, None where there are none.
    """
    main = os.path.join(conf_dir, MAIN)
    known = stamps(conf_dir)
    before = _read(main)
    if before is None:
        raise SlurmError(f"{main} is not there: set conf_dir to the folder of slurm.conf.")
    lines = before.splitlines(keepends=True)
    kept = [line for line in lines if _included(line) != part.include]
    texts: dict[str, str | None] = {}
    if kept != lines:
        texts[main] = "".join(kept)
    for name in (part.include, *part.others):
        path = os.path.join(conf_dir, name)
        text = _read(path)
        if text is not None and text.startswith(_HEADERS) and not _is_called(name, conf_dir):
            texts[path] = kept_yaml if name == files.FILE_NAMES[files.YAML] else None
    previous = [name + PREVIOUS for name in (part.include, *part.others)]
    # That of slurm.conf may be of another part, whose line is still there.
    if main in texts or not any(_included(line) in _INCLUDES for line in kept):
        previous.append(MAIN + PREVIOUS)
    paths = [os.path.join(conf_dir, name) for name in previous]
    # First, since writing a file replaces its .previous.
    changed = {path: text if text is None else text.encode("utf-8", "surrogateescape") for path, text in texts.items()}
    return Removal({**{path: None for path in paths if os.path.exists(path)}, **changed}, known)


def _included(line: str) -> str:
    """The file name of an Include line of slurm.conf, empty for another line."""
    words = line.split()
    return os.path.basename(words[1]) if len(words) == 2 and words[0].lower() == "include" else ""


def _is_called(name: str, conf_dir: str) -> bool:
    """Whether a job_submit.lua of the site calls this file."""
    if name != conf.POLICY_NAME:
        return False
    script = _read(os.path.join(conf_dir, conf.SCRIPT_NAME)) or ""
    return name in script and not script.startswith(conf.SCRIPT_HEADER)


def apply(slurm: Slurm, conf_dir: str, removal: Removal, topology: str, override: str) -> None:
    """Remove a topology in one transaction. The caller holds the lock of the folder. override: as of Transaction."""
    version = slurm.version()
    names = {os.path.basename(path) for path, data in removal.files.items() if data is None}
    before = slurm.topologies(version), slurm.shown()

    def problem() -> str:
        running = slurm.topologies(version)
        left = any(known.name == topology for known in running) and files.FILE_NAMES[files.YAML] in names
        left = left or (not running and files.FILE_NAMES[files.CONF] in names and bool(slurm.shown()))
        return "slurmctld still runs the removed topology" if left else ""

    Transaction(
        slurm,
        conf_dir,
        removal.files,
        what="to run without these files",
        problem=problem,
        restored=lambda: (slurm.topologies(version), slurm.shown()) == before,
        load=Transaction.reconfigure,
        stamps=removal.stamps,
        override=override,
        log=slurm.config().get("slurmctldlogfile", ""),
        keep=REMOVED,
    ).apply()


def _read(path: str) -> str | None:
    data = host.read(path)
    return None if data is None else data.decode("utf-8", "surrogateescape")
