# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurm.conf and the files beside it are written, and slurmctld runs them; else all is as before.

Private to this collection; it may change in any release. Python 3.9, standard library only.

slurmctld has no way to check a configuration alone (24.11.5 and 26.05.5 have no such option), but since 23.11
``scontrol reconfigure`` starts a second slurmctld with the new files, which takes over only if it comes up. So a
reconfigure is the check; jobs never notice. A first start has nothing to lose.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, hardware
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host, LogCursor, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, reason
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import Files, locked

UNIT = "slurmctld.service"
CONF, NODES, GRES, CGROUP = "slurm.conf", "nvlink_nodes.conf", "gres.conf", "cgroup.conf"
NAMES = (CONF, NODES, GRES, CGROUP)
# What a slurmctld only reads when it starts: its sockets, its user and its keys.
ONLY_AT_START = frozenset(
    (
        "authtype",
        "authinfo",
        "credtype",
        "clustername",
        "slurmctldhost",
        "slurmctldport",
        "slurmuser",
        "statesavelocation",
    )
)
# What giving back control may take, and how often it is tried.
CONTROL_SECONDS, MAX_STARTS = 90.0, 3
# How long a slurmdbd that refuses is asked again: while it starts, or is busy, it does so for a moment.
DATABASE_SECONDS = 20.0
# New files get the owner and mode of this one: root's, readable by all.
ROOTS = "/etc/passwd"


@dataclass(frozen=True)
class DesiredState:
    """texts: name of NAMES -> text. made_from: digest of the node lines that they were made from, empty for none."""

    texts: Mapping[str, str]
    made_from: str
    conf_dir: str
    cluster: str
    accounting: bool
    log: str
    allow_removal: bool = False


def present(conf_dir: str) -> dict[str, str]:
    """name -> text of those of NAMES that are there."""
    found = {name: read(os.path.join(conf_dir, name)) for name in NAMES}
    return {name: data.decode("utf-8", "replace") for name, data in found.items() if data is not None}


def digest(text: str | None) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() if text is not None else ""


def apply(host: Host, wish: DesiredState) -> list[str]:
    """Write and load; the names of the files that change. SlurmError says what failed and that all is as before."""
    if host.check:
        changed = _plan(host, wish, present(wish.conf_dir))[1]
        host.run(UNIT)
        return changed
    os.makedirs(wish.conf_dir, exist_ok=True)
    with locked(wish.conf_dir, host.timeout):
        before = present(wish.conf_dir)
        if digest(before.get(NODES)) != wish.made_from:
            raise Outdated(f"{NODES} was changed by another run meanwhile: run again.")
        slurm = Slurm("", host.timeout, wish.conf_dir)
        running = host.is_active(UNIT)
        texts, changed = _plan(host, wish, before)
        if changed:
            _keep_state(before.get(CONF, ""), texts[CONF])
        # One that is down has jobs too, and starts without those whose tray is gone; a standby may answer for it.
        if changed and not wish.allow_removal and (running or _has_jobs(_state_dir(before.get(CONF, "")))):
            _keep_jobs(slurm, before, texts)
        written = Files(ROOTS)
        try:
            # slurm.conf last: it includes the others.
            for name in sorted(changed, key=lambda name: name == CONF):
                written.write(os.path.join(wish.conf_dir, name), texts[name].encode())
        except OSError as error:
            written.undo()
            raise SlurmError(
                f"{error.filename or wish.conf_dir} could not be written ({error.strerror}): make room or correct the"
                f" mode of {wish.conf_dir}; nothing was changed."
            ) from None
        try:
            _load(host, wish, slurm, changed, before, texts)
        except BaseException as error:
            written.undo()
            if running and changed:
                with contextlib.suppress(SlurmError):
                    slurm.reconfigure()
                    host.call("systemctl", "start", UNIT)
                    # Whoever comes next finds a slurmctld that answers, as before this run.
                    _settle(host, slurm, set(hardware.parse_nodes(before.get(NODES, ""))))
            if isinstance(error, SlurmError) and changed:
                raise SlurmError(f"{str(error).rstrip('.')}; the files of before are back.") from None
            raise
    return changed


class Outdated(SlurmError):
    """What the new texts were made from is no longer what is there."""


def _plan(host: Host, wish: DesiredState, before: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The texts to have, and which of them change; the changes are noted."""
    texts = dict(wish.texts)
    texts[CONF] = keep_includes(texts[CONF], before.get(CONF, ""))
    changed = [name for name in NAMES if name in texts and texts[name] != before.get(name)]
    host.changes += [f"{name} {'changed' if name in before else 'written'}" for name in changed]
    return texts, changed


def keep_includes(new: str, old: str) -> str:
    """The new slurm.conf with the Include lines of the old one: those of the topology, the tiers, a site."""
    here = included(new)
    return new + "".join(f"Include {name}\n" for name in dict.fromkeys(included(old)) if name not in here)


def included(text: str) -> list[str]:
    """What the Include lines of a slurm.conf name, in their order."""
    words = [line.split(None, 1) for line in files.logical_lines(text)]
    return [pair[1].strip() for pair in words if len(pair) == 2 and pair[0].lower() == "include"]


def settings(text: str) -> dict[str, str]:
    """Key in lower case -> value of the lines that are neither nodes nor partitions."""
    found: dict[str, str] = {}
    for line in files.logical_lines(text):
        pairs = files.key_values(line)
        if pairs and pairs[0][0].lower() not in ("nodename", "partitionname", "nodeset"):
            found.update((key.lower(), value) for key, value in pairs)
    return found


def partitions(text: str) -> set[str]:
    """The partitions of a slurm.conf, without what it includes."""
    firsts = [files.key_values(line)[:1] for line in files.logical_lines(text)]
    return {value for pairs in firsts for key, value in pairs if key.lower() == "partitionname"}


def _keep_state(before: str, after: str) -> None:
    """A slurmctld that starts without its state cancels all jobs."""
    old, new = _state_dir(before), _state_dir(after)
    if old and new and old != new and _has_jobs(old) and not _has_jobs(new):
        raise SlurmError(
            f"StateSaveLocation would become {new}, which has no state, and slurmctld would cancel the jobs that it"
            f" knows from {old}: stop slurmctld, copy the folder with its owner, and run again."
        )


def _state_dir(text: str) -> str:
    """Of a slurm.conf; empty where it names none."""
    return settings(text).get("statesavelocation", "")


def _has_jobs(state_dir: str) -> bool:
    return bool(state_dir) and os.path.exists(os.path.join(state_dir, "job_state"))


def _keep_jobs(slurm: Slurm, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """A node or a partition that leaves slurm.conf takes its jobs with it."""

    def unasked(names: set[str], why: str) -> SlurmError:
        return SlurmError(
            f"{', '.join(sorted(names)[:5])} would leave slurm.conf, and slurmctld does not tell their jobs"
            f" ({why.rstrip('.')}): run again when it answers, or set slurm_allow_removal to end them; nothing was"
            " changed."
        )

    def jobs(option: str, names: set[str]) -> list[str]:
        shown = slurm.call("squeue", "--all", "--noheader", "--format=%A", f"--{option}={','.join(sorted(names))}")
        if shown.rc != 0 or shown.timed_out:
            raise unasked(names, reason(shown))
        return sorted(set(shown.stdout.split()))

    nodes = set(hardware.parse_nodes(before.get(NODES, ""))) - set(hardware.parse_nodes(after[NODES]))
    if nodes:
        try:
            # A name that slurmctld does not know has no jobs, and squeue would tell none of the others' either.
            nodes &= slurm.nodes()
        except SlurmError as error:
            raise unasked(nodes, str(error)) from None
    held = jobs("nodelist", nodes) if nodes else []
    if held:
        raise SlurmError(
            f"{', '.join(sorted(nodes)[:5])} left the fabric file and still runs job {', '.join(held[:5])}: drain it"
            " first, or set slurm_allow_removal to end its jobs."
        )
    gone = partitions(before.get(CONF, "")) - partitions(after[CONF])
    held = jobs("partition", gone) if gone else []
    if held:
        raise SlurmError(
            f"Partition {', '.join(sorted(gone)[:5])} left slurm_partitions and still has job {', '.join(held[:5])}:"
            " let its jobs end first, or set slurm_allow_removal to end them."
        )


def _load(
    host: Host,
    wish: DesiredState,
    slurm: Slurm,
    changed: list[str],
    before: Mapping[str, str],
    texts: Mapping[str, str],
) -> None:
    if wish.accounting:
        _register(host, slurm, wish.cluster)
    old, new = settings(before.get(CONF, "")), settings(texts[CONF])
    restart = CONF in changed and any(old.get(key) != new.get(key) for key in ONLY_AT_START)
    since = LogCursor(wish.log)
    started = host.run(UNIT, restart=restart, log=wish.log)
    if not started and changed:
        result = slurm.reconfigure()
        if result.rc != 0 or result.timed_out:
            why = host.why(UNIT, since, reason(result))
            raise SlurmError(f"slurmctld refused the new configuration ({why}).")
    if started:
        _take_control(host, slurm, since)
    _settle(host, slurm, set(hardware.parse_nodes(texts[NODES])))


def _take_control(host: Host, slurm: Slurm, since: LogCursor) -> None:
    """Until the slurmctld that was started here answers, also where another one has to give back control first.

    Seen on 26.05.5: the other one takes 29 s for it, writes its state only then, and this one may end because it finds
    a file of the state missing. The other one goes on meanwhile, and the next start succeeds.
    """
    allowed = max(host.timeout, CONTROL_SECONDS)
    deadline = time.monotonic() + allowed
    starts = 1
    while True:
        known = slurm.controllers()
        if known and known[0][1]:
            return
        if not host.is_active(UNIT):
            if len(known) < 2 or starts == MAX_STARTS:
                why = host.why(UNIT, since, "it has ended")
                raise SlurmError(f"{UNIT} does not start ({why}): correct that first.")
            starts += 1
            host.call("systemctl", "reset-failed", UNIT)
            host.call("systemctl", "start", UNIT)
        if time.monotonic() > deadline:
            raise SlurmError(f"slurmctld does not answer after {allowed:.0f} s: look at its log.")
        time.sleep(0.3)


def _register(host: Host, slurm: Slurm, cluster: str) -> None:
    """slurmdbd must know a cluster before its slurmctld starts."""
    deadline = time.monotonic() + min(host.timeout, DATABASE_SECONDS)
    while True:
        shown = slurm.call("sacctmgr", "--noheader", "--parsable2", "list", "cluster", "format=cluster")
        if shown.rc == 0 or shown.timed_out or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    if shown.rc != 0 or shown.timed_out:
        raise SlurmError(
            f"slurmdbd does not answer ({reason(shown).rstrip('.')}): start it, or correct slurm_accounting_host."
        )
    if cluster.lower() in shown.stdout.lower().split():
        return
    host.changes.append(f"cluster {cluster} made known to slurmdbd")
    added = slurm.call("sacctmgr", "--immediate", "add", "cluster", cluster)
    if added.rc != 0:
        raise SlurmError(
            f"slurmdbd does not take the cluster {cluster} ({reason(added).rstrip('.')}): look at its log."
        )


def _settle(host: Host, slurm: Slurm, wanted: set[str]) -> None:
    """Until slurmctld answers and knows every node."""
    deadline = time.monotonic() + min(host.timeout, 60.0)
    while True:
        try:
            missing = sorted(wanted - slurm.nodes())
            if not missing:
                return
            problem = f"slurmctld does not know {', '.join(missing[:5])} after it read its files"
        except SlurmError as error:
            problem = f"slurmctld does not answer ({str(error).rstrip('.')})"
        if time.monotonic() > deadline:
            raise SlurmError(f"{problem}: look at its log.")
        time.sleep(0.3)
