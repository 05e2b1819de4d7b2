# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write slurm.conf and the files next to it and have slurmctld load them; a failure rolls back.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, LogCursor, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import hardware, live, syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import Outdated, checksums, locked
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, polls
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import RESTARTED, UNIT, Transaction
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize

CONF, NODES, GRES, CGROUP = "slurm.conf", "nvlink_nodes.conf", "gres.conf", "cgroup.conf"
NAMES = (CONF, NODES, GRES, CGROUP)
# Stops a run that would remove more than one node; its name is that of the option's value.
REMOVED = "nodes_removed"
GATES = (REMOVED, live.GATE)
# Settings that slurmctld reads only at its start: sockets, user and keys.
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
# Seconds for a backup to return control, and the number of starts.
CONTROL_SECONDS, MAX_STARTS = 90.0, 3
# Seconds of retries: slurmdbd refuses connections for a moment while it starts or is busy.
DATABASE_SECONDS = 20.0
# New files get the owner and mode of this file: root, readable by all.
OWNER_OF_NEW_FILES = "/etc/passwd"


def configure(host: Host, options: Arguments) -> Result:
    """The step configure of slurm_step; without texts only what is on the host."""
    before = present(options["conf_dir"])
    texts = options["texts"]
    if texts is None:
        return {"present": before}
    changed = apply(host, options)
    after = {**texts, CONF: keep_includes(texts[CONF], before.get(CONF, ""))}
    return {"diff": difference(changed, before, after)}


def difference(changed: list[str], before: Mapping[str, str], after: Mapping[str, str]) -> list[dict[str, str]]:
    """The result's diff of these files, each by name."""
    return [
        {"before_header": name, "after_header": name, "before": before.get(name, ""), "after": after.get(name, "")}
        for name in changed
    ]


def present(conf_dir: str) -> dict[str, str]:
    """name -> text of those of NAMES that exist."""
    return as_texts({name: read(os.path.join(conf_dir, name)) for name in NAMES})


def as_texts(files: Mapping[str, bytes | None]) -> dict[str, str]:
    """name -> text of those of these files that exist."""
    return {name: data.decode("utf-8", "replace") for name, data in files.items() if data is not None}


def digest(text: str | None) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() if text is not None else ""


def apply(host: Host, options: Arguments) -> list[str]:
    """Write the files and have slurmctld load them; returns the changed files' names. A failure rolls back.

    options: those of slurm_step. made_from: digest of the node lines from which the texts were rendered, or empty.
    """
    conf_dir = options["conf_dir"]
    override = "" if live.GATE in options["override"] else "override (variable slurm_override)"
    slurm = Slurm("", host.timeout, conf_dir)
    if host.check:
        texts, changed = _plan(host, options, present(conf_dir))
        if changed and override and host.is_active(UNIT):
            live.require_none(slurm, conf_dir, _writes(conf_dir, texts, changed), override)
        host.run(UNIT)
        return changed
    atomic.make_folders(conf_dir)
    with locked(conf_dir, host.timeout):
        known = checksums(conf_dir)
        before = present(conf_dir)
        if digest(before.get(NODES)) != options["made_from"]:
            raise Outdated(f"{NODES} was changed by another run meanwhile: run again.")
        texts, changed = _plan(host, options, before)
        if changed:
            _check_state(before.get(CONF, ""), texts[CONF])
        # A slurmctld that is down has jobs too, and would drop those of a removed tray at its start; a standby may
        # answer in its place.
        has_jobs = host.is_active(UNIT) or _has_jobs(_state_dir(before.get(CONF, "")))
        if changed and not options["allow_removal"] and has_jobs:
            _check_jobs(slurm, before, texts)
        old, new = settings(before.get(CONF, "")), settings(texts[CONF])
        restart = CONF in changed and any(old.get(key) != new.get(key) for key in ONLY_AT_START)

        def load(transaction: Transaction) -> str:
            if options["accounting"]:
                _register(host, slurm, options["cluster_name"])
            cursor = LogCursor(options["log"])
            if host.run(UNIT, restart=restart, log=options["log"]):
                _take_control(host, slurm, cursor)
                return ""
            return transaction.reconfigure() if changed else ""

        def problem() -> str:
            missing = _missing(slurm, texts)
            return (
                f"slurmctld does not have {count(len(missing), 'node')} of its new files ({summarize(missing)}): read"
                " its log"
                if missing
                else ""
            )

        restarted = transaction_of(
            host,
            slurm,
            options,
            _writes(conf_dir, texts, changed),
            problem=problem,
            restored=lambda: not _missing(slurm, before),
            load=load,
            known=known,
            restart=restart,
            override=override,
            reloads=bool(changed),
        ).apply()
        host.changes += [RESTARTED] if restarted else []
    return changed


def transaction_of(
    host: Host, slurm: Slurm, options: Arguments, files: Mapping[str, bytes | None], **more: Any
) -> Transaction:
    """The transaction of the files of a controller. more: further arguments."""
    return Transaction(
        slurm,
        options["conf_dir"],
        files,
        what="the new configuration",
        log=options["log"],
        like=OWNER_OF_NEW_FILES,
        # A backup gives the primary some seconds, and waits for the state's heartbeat.
        seconds=min(host.timeout, 60.0),
        ran=host.is_active(UNIT),
        **more,
    )


def _writes(conf_dir: str, texts: Mapping[str, str], changed: list[str]) -> dict[str, bytes]:
    # slurm.conf last: it includes the others.
    names = sorted(changed, key=lambda name: name == CONF)
    return {os.path.join(conf_dir, name): texts[name].encode() for name in names}


def _plan(host: Host, options: Arguments, before: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The texts to write, and the names of those that change; the changes are recorded."""
    texts = dict(options["texts"])
    texts[CONF] = keep_includes(texts[CONF], before.get(CONF, ""))
    if REMOVED not in options["override"]:
        _check_removal(before.get(NODES, ""), texts.get(NODES, ""))
    changed = [name for name in NAMES if name in texts and texts[name] != before.get(name)]
    host.changes += [f"{'change' if name in before else 'write'} {name}" for name in changed]
    return texts, changed


def keep_includes(new: str, old: str) -> str:
    """The new slurm.conf with the Include lines of the old one: those of topology, tiers and site."""
    here = included(new)
    return new + "".join(f"Include {name}\n" for name in dict.fromkeys(included(old)) if name not in here)


def included(text: str) -> list[str]:
    """The paths in the Include lines of a slurm.conf, in their order."""
    return list(filter(None, map(syntax.include_of, syntax.logical_lines(text))))


def settings(text: str) -> dict[str, str]:
    """Key in lower case -> value of all lines but nodes and partitions."""
    return syntax.split(syntax.logical_lines(text))[0]


def partitions(text: str) -> set[str]:
    """The names of the partitions in a slurm.conf, without those in its includes."""
    firsts = [syntax.key_values(line)[:1] for line in syntax.logical_lines(text)]
    return {value for pairs in firsts for key, value in pairs if key.lower() == "partitionname"}


def _check_state(before: str, after: str) -> None:
    """Refuse a StateSaveLocation without state: a slurmctld that starts without its state cancels all jobs."""
    old, new = _state_dir(before), _state_dir(after)
    if old and new and old != new and _has_jobs(old) and not _has_jobs(new):
        raise SlurmError(
            f"StateSaveLocation would become {new}, which has no state, and slurmctld would cancel the jobs in {old}:"
            " stop slurmctld, copy the folder with its owner, and run again."
        )


def _state_dir(text: str) -> str:
    """StateSaveLocation of a slurm.conf; empty where it is unset."""
    return settings(text).get("statesavelocation", "")


def _has_jobs(state_dir: str) -> bool:
    return bool(state_dir) and os.path.exists(os.path.join(state_dir, "job_state"))


def _check_removal(before: str, after: str) -> None:
    """Stop where the fabric file lacks several of the present nodes; one that was removed from it passes."""
    old = hardware.parse_nodes(before)
    gone = old.keys() - hardware.parse_nodes(after).keys()
    if len(gone) > 1:
        raise SlurmError(
            f"{len(gone)} of {count(len(old), 'node')} would be removed from {NODES} ({summarize(sorted(gone))}): check"
            f" the fabric file, or set override (variable slurm_override) to {REMOVED} if this is intended; nothing"
            " was changed."
        )


def _check_jobs(slurm: Slurm, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuse to remove a node or a partition that has jobs: slurmctld would end them."""
    nodes = set(hardware.parse_nodes(before.get(NODES, ""))) - set(hardware.parse_nodes(after[NODES]))
    names = partitions(before.get(CONF, "")) - partitions(after[CONF])
    try:
        running = [job.id for job in slurm.jobs() if nodes.intersection(job.nodes)] if nodes else []
        held = slurm.jobs_in(sorted(names))
    except SlurmError as error:
        raise SlurmError(
            f"{summarize(sorted(nodes | names))} would be removed from slurm.conf, and slurmctld does not list their"
            f" jobs ({str(error).rstrip('.')}): run again when it answers, or set allow_removal (variable"
            " slurm_allow_removal) to end the jobs; nothing was changed."
        ) from None
    if running:
        raise SlurmError(
            f"{summarize(sorted(nodes))} is no longer in the fabric file and still runs job {summarize(running)}: drain"
            " it first, or set allow_removal (variable slurm_allow_removal) to end its jobs."
        )
    if held:
        raise SlurmError(
            f"Partition {summarize(sorted(names))} is no longer in slurm.conf (variable slurm_partitions) and still has"
            f" {held}: let its jobs end first, or set allow_removal (variable slurm_allow_removal) to end them."
        )


def _take_control(host: Host, slurm: Slurm, cursor: LogCursor) -> None:
    """Wait until the slurmctld that was started here answers, also where a backup has to return control first.

    Observed on 26.05.5: the backup takes 29 s for it, writes its state only then, and this one may exit because a file
    of the state is missing. The backup continues meanwhile, and the next start succeeds.
    """
    allowed = max(host.timeout, CONTROL_SECONDS)
    starts = 1
    for _poll in polls(allowed):
        controllers = slurm.controllers()
        if controllers and controllers[0][1]:
            return
        if not host.is_active(UNIT):
            if len(controllers) < 2 or starts == MAX_STARTS:
                error = host.last_error(UNIT, cursor, "it has exited")
                raise SlurmError(f"{UNIT} does not start ({error}): correct that first.")
            starts += 1
            host.call("systemctl", "reset-failed", UNIT, acts=True)
            host.call("systemctl", "start", UNIT, acts=True)
    raise SlurmError(f"slurmctld does not answer after {allowed:.0f} s: read its log.")


def _register(host: Host, slurm: Slurm, cluster: str) -> None:
    """Add the cluster to slurmdbd, which slurmctld needs before it starts."""
    for _poll in polls(min(host.timeout, DATABASE_SECONDS)):
        shown = slurm.call("sacctmgr", "--noheader", "--parsable2", "list", "cluster", "format=cluster")
        if shown.rc == 0 or shown.timed_out:
            break
    if shown.rc != 0 or shown.timed_out:
        raise SlurmError(
            f"slurmdbd does not answer ({shown.reason.rstrip('.')}): start it, or correct accounting_host"
            " (variable slurm_accounting_host)."
        )
    if cluster.lower() in shown.stdout.lower().split():
        return
    host.changes.append(f"cluster {cluster} added to slurmdbd")
    added = slurm.call("sacctmgr", "--immediate", "add", "cluster", cluster, acts=True)
    if added.rc != 0:
        raise SlurmError(f"slurmdbd refuses the cluster {cluster} ({added.reason.rstrip('.')}): read its log.")


def _missing(slurm: Slurm, texts: Mapping[str, str]) -> list[str]:
    """The nodes of these files that slurmctld does not have; SlurmError where it does not answer."""
    return sorted(set(hardware.parse_nodes(texts.get(NODES, ""))) - {node.name for node in slurm.node_names()})
