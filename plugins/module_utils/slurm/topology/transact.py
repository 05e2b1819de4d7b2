# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply in one transaction what the Ansible controller has planned from the survey.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import INCLUDE_NAME, MAIN, TIERS_NAME
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import (
    CHANGED,
    PREVIOUS,
    REMOVED,
    Checksums,
    Outdated,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    CONF,
    FILE_NAMES,
    YAML,
    SlurmError,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.comparing import (
    Expected,
    Running,
    are_apart,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import Transaction
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize

INCLUDES = (INCLUDE_NAME, TIERS_NAME)


def writes(conf_dir: str, change: Arguments) -> dict[str, bytes | None]:
    """Path -> new bytes, None for a file that goes, in the order of the changes.

    change: files: [path or name, text or null] of each file, in that order. includes: the file for which slurm.conf
    gets an Include line, empty for none. unset: the setting whose line there becomes a comment, if any. excludes: the
    files whose Include line goes, and of which no former version stays; the first one is of the part that goes.
    """
    main = os.path.join(conf_dir, MAIN)
    data = host.read(main) or b""
    found: dict[str, bytes | None] = {}
    if change["excludes"]:
        # First, since writing a file replaces its former version.
        found.update(_removed(conf_dir, data, change["excludes"]))
    for path, text in change["files"]:
        found[os.path.join(conf_dir, path)] = None if text is None else text.encode()
    if change.get("unset"):
        # On a line with other settings it stays: Slurm uses the last value, that of the file that is included.
        line = rb"(?im)^[ \t]*%b[ \t]*=[ \t]*[^\s#]+[ \t]*(#.*)?$" % change["unset"].encode()
        found[main] = data = re.sub(line, rb"#\g<0>", data)
    if change["includes"]:
        end = b"" if data.endswith(b"\n") or not data else b"\n"
        # A relative name, since only such an include reaches configless nodes.
        found[main] = data + end + f"Include {change['includes']}\n".encode()
    return found


def _removed(conf_dir: str, data: bytes, names: Sequence[str]) -> dict[str, bytes | None]:
    """What goes besides the files themselves. data: of slurm.conf."""
    main = os.path.join(conf_dir, MAIN)
    lines = data.splitlines(keepends=True)
    kept = [line for line in lines if _included(line) != names[0]]
    former = [os.path.join(conf_dir, name + PREVIOUS) for name in names]
    # That of slurm.conf may be of another part, whose line is still there.
    if kept != lines or not any(_included(line) in INCLUDES for line in kept):
        former.append(main + PREVIOUS)
    found: dict[str, bytes | None] = {path: None for path in former if os.path.exists(path)}
    return {**found, main: b"".join(kept)} if kept != lines else found


def _included(line: bytes) -> str:
    return os.path.basename(syntax.include_of(line.decode("utf-8", "replace").strip()))


def require_unchanged(conf_dir: str, surveyed: Arguments, known: Checksums) -> None:
    """Outdated where a file is not the one of the survey; surveyed: name -> SHA-256. known: those of the folder now."""
    for name, checksum in surveyed.items():
        path = os.path.join(conf_dir, name)
        if known.get(path, "") != checksum:
            raise Outdated(CHANGED.format(path))


def apply(slurm: Slurm, conf_dir: str, change: Arguments, files: Mapping[str, bytes | None], known: Checksums) -> bool:
    """Write, load, read back; returns as Transaction.apply(). The caller holds the lock.

    On any failure the old files are restored and loaded; SlurmError has the reason. Outdated where another run, which
    has written before the survey, has loaded the files after it. files: as of writes(). known: of the folder before the
    files were compared with those of the survey. change, as planning makes it:

    expected, before: what slurmctld is to run, as of Expected.document(), and what the present files give, null where
    it is not known. gone: where nothing is expected, the name of the topology that goes. moving: nodes on which no job
    may run that is then in several blocks. load: whether slurmctld is to load the files. cut_off, override: as of
    Transaction.
    """
    version = slurm.version()

    def running() -> Running:
        return Running(slurm.topologies(version), slurm.shown(), slurm.config())

    before = running()
    expected = Expected.of(change["expected"]) if change["expected"] is not None else None
    former = Expected.of(change["before"]) if change["before"] is not None else None
    if change["load"] and not files and expected is not None and not expected.differs(before):
        raise Outdated("Another run has changed slurmctld's topology meanwhile: run again.")

    shown = slurm.records("partitions") if expected is None else []
    users = [row["PartitionName"] for row in shown if row.get("Topology") == change["gone"]]
    if users:
        raise SlurmError(
            f"The topology {change['gone']} stays while Topology= of {summarize(users)} names it: remove that from the"
            " partition's line, run scontrol reconfigure, and run again; nothing was changed."
        )

    def problem() -> str:
        now = running()
        if expected is None:
            yaml, conf = (os.path.join(conf_dir, FILE_NAMES[style]) in files for style in (YAML, CONF))
            left = yaml and change["gone"] in {known.name for known in now.topologies}
            left = left or (conf and bool(now.shown) and not now.topologies)
            return "slurmctld still runs the removed topology" if left else ""
        differs = expected.differs(now)
        return f"slurmctld runs another topology than the written one ({differs})" if differs else ""

    def restored() -> bool:
        after = running()
        same = (after.topologies, after.shown) == (before.topologies, before.shown)
        return same or (former is not None and not former.differs(after))

    return Transaction(
        slurm,
        conf_dir,
        files,
        what="to run without these files" if change["excludes"] else "the new topology",
        problem=problem,
        restored=restored,
        load=Transaction.reconfigure if change["load"] else None,
        known=known,
        override=change["override"],
        unhindered=lambda: _require_no_jobs(
            slurm, frozenset(change["moving"]), expected.block_of() if expected else {}
        ),
        log=before.config.get("slurmctldlogfile", ""),
        keep=REMOVED if change["excludes"] else PREVIOUS,
        cut_off=tuple(change["cut_off"]),
    ).apply()


def _require_no_jobs(slurm: Slurm, moving: frozenset[str], block_of: Mapping[str, str]) -> None:
    """SlurmError where a job that would be split has been started since the plan, as during a rehearsal of minutes.

    block_of: node -> its new block.
    """
    jobs = [job for job in slurm.jobs() if moving.intersection(job.nodes)] if moving else []
    busy = [job.id for job in jobs if are_apart(job.nodes, block_of)]
    if busy:
        run = f"{count(len(busy), 'job')} {'has' if len(busy) == 1 else 'have'} started"
        raise SlurmError(f"{run} on trays that change their block since the plan ({summarize(busy)}): run again.")
