# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of IMEX per job on a tray, and the checks of slurm.conf for them: pure functions.

The controller makes PROGRAM (programs.py of plugin_utils).
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, Value, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, slurm_conf, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import state

PROGRAM = "/usr/local/libexec/nvlink-imex-job"
NAME = survey.JOB_PROLOG
_MARK = "# Written by the role rackscale.nvlink.imex, which gives each job its nvidia-imex.\n"
# A Prolog that does nothing, for a slurm.conf whose Prolog would match no file.
NOOP = "#!/bin/sh\n# Slurm fails every job where Prolog or Epilog matches no file.\nexit 0\n"
# The keys of slurm.conf that the findings and the settings need.
KEYS = (
    *(*slurm_conf.PROLOGS, "taskprolog", "prologflags", "prologepilogtimeout", "prologtimeout", "epilogtimeout"),
    *("grestypes", "switchtype"),
)
# Values of slurm.conf for no limit.
_NO_LIMIT = (0, 65534, 65535)


def settings_of(desired: domain.DesiredState, generation: int, slurm: Mapping[str, Sequence[str]]) -> state.Settings:
    """The settings by the desired state and by slurm.conf: key in lower case -> its values in order."""
    options = desired.job
    gives_channel = _last(slurm, "switchtype").lower() == slurm_conf.CHANNEL_PLUGIN
    return state.Settings(
        clique=desired.clique,
        members=tuple(zip(desired.nodes, desired.entries)),
        generation=generation,
        sha256=desired.sha256,
        channel0={"always": True, "never": False}.get(options["imex_job_channel0"], not gives_channel),
        path=":".join(options["imex_job_path"]),
        proc_devices=desired.proc_devices,
        list_port=desired.list_port,
        gpus_counted=_gpus_are_counted(_last(slurm, "grestypes")),
        policy=options["imex_job_policy"],
        wait=options["imex_job_wait"],
        stop_wait=options["imex_job_stop_wait"],
        min_trays=options["imex_job_min_trays"],
        max_requeues=options["imex_job_max_requeues"],
    )


def wrappers(options: Mapping[str, Any]) -> dict[str, str]:
    """Key of slurm.conf -> the file that it must name."""
    return {
        "Prolog": f"{options['imex_job_prolog_dir']}/{NAME}",
        "Epilog": f"{options['imex_job_epilog_dir']}/{NAME}",
    }


def paths(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The files of IMEX per job, in the order in which they go."""
    return (*wrappers(options).values(), PROGRAM, state.SETTINGS_FILE)


def render_settings(settings: state.Settings) -> str:
    """The settings file, which state.settings_of() reads. It has this tray's clique only: 18 trays of 10,368."""
    return json.dumps(settings._asdict(), indent=1, sort_keys=True) + "\n"


def wrapper(entry: str) -> str:
    return f"#!/bin/sh\n{_MARK}exec {PROGRAM} {entry}\n"


# --- slurm.conf.


def evaluate(settings: state.Settings, slurm: Mapping[str, Sequence[str]], path: str) -> list[HostFinding]:
    """The findings on the tray's slurm.conf, with errors that block the installation.

    ``slurm``: key in lower case -> its values in order.
    """
    findings = []
    flags = {flag.strip().lower() for value in slurm.get("prologflags", ())[-1:] for flag in value.split(",")}
    # Contain, X11 and NoHold imply it.
    if not flags & {"alloc", "contain", "x11", "nohold", "deferbatch"}:
        findings.append(host_finding("slurm_conf_inconsistent", "prolog_flags", path=path))
    for key in ("PrologEpilogTimeout", "PrologTimeout", "EpilogTimeout"):
        limit = _last(slurm, key.lower())
        needs = settings.stop_wait + 30 if key == "EpilogTimeout" else settings.wait + state.MARGIN
        if limit.isdecimal() and int(limit) not in _NO_LIMIT and int(limit) < needs:
            values: dict[str, Value] = {"setting": f"{key}={limit}", "path": path, "seconds": needs}
            findings.append(host_finding("slurm_conf_inconsistent", "timeout", **values))
    shared = list(slurm.get(slurm_conf.SHARED_PARTITIONS, ()))
    if shared and not settings.gpus_counted:
        findings.append(host_finding("slurm_conf_advice", "shared", partitions=shared, path=path))
    if settings.policy == "run" and not _last(slurm, "taskprolog"):
        findings.append(host_finding("slurm_conf_note", "task_prolog", program=PROGRAM, path=path))
    return findings


def names(slurm: Mapping[str, Sequence[str]], key: str, file: str) -> bool:
    """Whether Prolog or Epilog of slurm.conf names this file."""
    return any(fnmatch.fnmatch(file, pattern) for pattern in slurm.get(key.lower(), ()))


def _gpus_are_counted(types: str) -> bool:
    """Whether SLURM_JOB_GPUS names GPUs of this job alone: jobs with shards or MPS share the GPUs that it names."""
    words = {word.strip().lower() for word in types.split(",")}
    return "gpu" in words and words.isdisjoint({"shard", "mps"})


def shared_partitions(members: Collection[str], rows: Sequence[str]) -> list[str]:
    """The partitions of "NAME NODES" rows that have trays of the clique; node sets are not known here."""
    found = []
    for row in rows:
        name, _blank, nodes = row.partition(" ")
        with contextlib.suppress(hostlist.HostlistError):
            if nodes.upper() == "ALL" or not set(hostlist.expand(nodes)).isdisjoint(members):
                found.append(f"partition {name}")
    return found


def _last(slurm: Mapping[str, Sequence[str]], key: str) -> str:
    return slurm[key][-1] if slurm.get(key) else ""
