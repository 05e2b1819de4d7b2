# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All that this collection has put beside an existing slurm.conf is taken away again, or all of it stays.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Only files that begin with a header of ours go, and in topology.yaml only what is ours: a site's own topologies stay.
slurmctld reads the change by a reconfigure, which is refused as a whole where it cannot run without what is taken away.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf, files, segments, tiers, transaction
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, reason

MAIN = "slurm.conf"
_INCLUDES = (conf.INCLUDE_NAME, tiers.INCLUDE_NAME)
_HEADERS = (files.HEADER, tiers.HEADER, segments.HEADER)
_MADE = (*files.FILE_NAMES.values(), *_INCLUDES, "job_submit.lua")


@dataclass(frozen=True)
class Removal:
    """Path -> its text afterwards; None for a file that goes."""

    texts: Mapping[str, str | None]

    def told(self) -> list[str]:
        return [f"{path}: {'removed' if text is None else 'without our lines'}" for path, text in self.texts.items()]


def plan(conf_dir: str, topology: str) -> Removal:
    """What of a folder is ours. SlurmError where slurm.conf cannot be read."""
    texts: dict[str, str | None] = {}
    main = os.path.join(conf_dir, MAIN)
    before = _read(main)
    if before is None:
        raise SlurmError(f"{main} cannot be read: set slurm_topology_conf_dir to its folder.")
    kept = "".join(line for line in before.splitlines(keepends=True) if not _is_our_include(line))
    if kept != before:
        texts[main] = kept
    for name in _MADE:
        path = os.path.join(conf_dir, name)
        text = _read(path)
        if text is not None and text.startswith(_HEADERS):
            texts[path] = _without_ours(name, text, topology)
    for name in (MAIN, *_MADE):
        path = os.path.join(conf_dir, name + transaction.PREVIOUS)
        if os.path.exists(path):
            texts[path] = None
    return Removal(texts)


def _is_our_include(line: str) -> bool:
    words = line.split()
    return len(words) == 2 and words[0].lower() == "include" and os.path.basename(words[1]) in _INCLUDES


def _without_ours(name: str, text: str, topology: str) -> str | None:
    if name != files.FILE_NAMES[files.YAML]:
        return None
    ours = {topology, *files.own_topologies(text)}
    others = [known for known in files.parse_yaml(text) if known.name not in ours]
    return files.render(others, files.YAML) if others else None


def apply(slurm: Slurm, conf_dir: str, removal: Removal) -> None:
    """Take it away and have slurmctld read what is left; on failure everything is back and loaded."""
    with transaction.locked(conf_dir, slurm.timeout):
        before = {path: _read(path) for path in removal.texts}
        try:
            for path, text in removal.texts.items():
                _put(path, text)
            done = slurm.reconfigure()
            if done.rc != 0 or done.timed_out:
                raise SlurmError(
                    f"slurmctld does not run without them ({reason(done).rstrip('.')}): look at its log; all files are"
                    " back."
                )
            slurm.config()
        except (SlurmError, OSError) as error:
            for path, text in before.items():
                _put(path, text)
            slurm.reconfigure()
            raise SlurmError(str(error)) from None


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _put(path: str, text: str | None) -> None:
    """Write a file with its owner and mode, or remove it; what a write keeps beside it goes, too."""
    if text is None:
        if os.path.exists(path):
            os.unlink(path)
        return
    model = path if os.path.exists(path) else os.path.join(os.path.dirname(path), MAIN)
    transaction.Files(model).write(path, text.encode("utf-8", "surrogateescape"))
    beside = path + transaction.PREVIOUS
    if os.path.exists(beside):
        os.unlink(beside)
