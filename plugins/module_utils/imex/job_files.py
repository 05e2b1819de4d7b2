# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of IMEX per job on a tray, and the checks of slurm.conf for them: pure functions but sources().

The program is an ordinary one: PROGRAM, a few lines, imports imex/prolog/ from a folder of LIBRARY, with all modules
under their own names. A folder and not a zip archive, because Python keeps the byte code beside the sources (in
__pycache__, which root writes and everybody reads), for the Python that runs it, also after an upgrade of that.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist, own_source
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, Value, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, slurm_conf, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import main, state

_PACKAGE = "ansible_collections.rackscale.nvlink.plugins.module_utils"
# The modules of the program: main and all that it imports, which test_imex_job.py compares with what Python imports.
# Ansible sends to a tray what the module imports, so the module has them all.
_PARTS = """
    atomic child errors findings host_findings hostlist interfaces text
    gpu.constants gpu.facts gpu.nvidia_smi gpu.nvml gpu.readings
    imex.boot imex.facts imex.files imex.readings imex.slurm_conf imex.status imex.survey
    imex.prolog.daemon imex.prolog.failure imex.prolog.main imex.prolog.state imex.prolog.wait
    slurm.syntax
"""
PROGRAM = "/usr/local/libexec/nvlink-imex-job"
LIBRARY = "/usr/local/lib/nvlink-imex-job"
DROP_IN = "/etc/systemd/system/nvidia-imex.service.d/50-nvlink-job.conf"
# At boot systemd-tmpfiles removes the list of a job that died with the tray; /run, with the job's state, is empty then.
BOOT = "/etc/tmpfiles.d/50-nvlink-imex-job.conf"
NAME = survey.JOB_PROLOG
_MARK = "# Written by the role rackscale.nvlink.imex, which gives each job its nvidia-imex.\n"
# -I and -S: Python imports no file of a user or of the site.
_PROGRAM = """\
#!{python} -IS
{mark}
import os
import sys

# slurmd may have none: then other users could write to what this program creates, and its byte code is among that.
os.umask(0o022)
sys.path.insert(0, {folder!r})

from {module} import main

sys.exit(main(sys.argv[1:], dict(os.environ)))
"""
# A Prolog that does nothing, for a slurm.conf whose Prolog would match no file.
NOOP = "#!/bin/sh\n# Slurm fails every job where Prolog or Epilog matches no file.\nexit 0\n"
# Option of imex_job -> its lowest and highest value.
RANGES = {"wait": (5, 3600), "stop_wait": (1, 600), "min_trays": (1, 65536), "max_requeues": (0, 1000)}
# Values of slurm.conf for no limit.
_NO_LIMIT = (0, 65534, 65535)


@dataclass(frozen=True)
class DesiredState:
    """The desired state of IMEX per job on a tray, checked."""

    settings: state.Settings
    prolog_dir: str
    epilog_dir: str
    python: str


def desired_state(options: Arguments, slurm: Mapping[str, Sequence[str]]) -> DesiredState:
    """The desired state by the options of imex_job and the settings of slurm.conf; ImexError for a wrong value."""
    for name, (low, high) in RANGES.items():
        if not low <= options[name] <= high:
            raise files.ImexError(f"option {name} is {options[name]}; use a number from {low} to {high}.")
    members = tuple((str(entry["node"]), str(entry["address"])) for entry in options["members"] or ())
    if any(not line.strip() for _node, line in members):
        raise files.ImexError("option members: a tray has no IMEX address; set its imex_address in the fabric file.")
    if members:
        files.render_nodes(line for _node, line in members)
        if not options["clique"]:
            raise files.ImexError("option clique is missing; name the clique of members.")
    if len({node for node, _line in members}) < len(members):
        raise files.ImexError("option members: a Slurm node is named twice; name each once.")
    channel0 = {"always": True, "never": False}.get(
        options["channel0"], _last(slurm, "switchtype").lower() != slurm_conf.CHANNEL_PLUGIN
    )
    settings = state.Settings(
        clique=options["clique"] or "",
        members=members,
        policy=options["policy"],
        scope=options["scope"],
        wait=float(options["wait"]),
        stop_wait=float(options["stop_wait"]),
        min_trays=options["min_trays"],
        max_requeues=options["max_requeues"],
        channel0=channel0,
        path=":".join(options["path"] or ()),
        proc_devices=options["proc_devices"],
        gpus_counted=_gpus_are_counted(_last(slurm, "grestypes")),
    )
    return DesiredState(settings, options["prolog_dir"], options["epilog_dir"], options["python"])


def files_of(desired: DesiredState, library: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """path -> (text, mode) of every file but those of the library."""
    return {
        PROGRAM: (program(desired.python, library), 0o755),
        state.SETTINGS_FILE: (render_settings(desired.settings), 0o644),
        DROP_IN: (_drop_in(desired.settings), 0o644),
        BOOT: (_boot(state.list_path()), 0o644),
        f"{desired.prolog_dir}/{NAME}": (_wrapper("prolog"), 0o755),
        f"{desired.epilog_dir}/{NAME}": (_wrapper("epilog"), 0o755),
    }


def render_settings(settings: state.Settings) -> str:
    """The settings file, which state.settings_of() reads. It has this tray's clique only: 18 trays of 10,368."""
    return json.dumps(settings._asdict(), indent=1, sort_keys=True) + "\n"


def _boot(path: str) -> str:
    escaped = path.replace("%", "%%")  # tmpfiles.d(5) expands specifiers
    return f'{_MARK}r! "{escaped}"\n'


def _wrapper(entry: str) -> str:
    return f"#!/bin/sh\n{_MARK}exec {PROGRAM} {entry}\n"


def _drop_in(settings: state.Settings) -> str:
    return (
        f"{_MARK}[Unit]\n# Short jobs may start more often than systemd's limit allows.\n"
        "StartLimitIntervalSec=0\n\n"
        "[Service]\n# A restarted daemon cannot restore what the job lost with the old one.\nRestart=no\n"
        f"TimeoutStartSec={settings.wait:g}\nTimeoutStopSec={settings.stop_wait:g}\n"
    )


def program(python: str, library: Mapping[str, str]) -> str:
    """The text of PROGRAM."""
    return _PROGRAM.format(python=python, mark=_MARK, folder=folder_of(library), module=main.__name__)


def folder_of(library: Mapping[str, str]) -> str:
    """The folder of this version of the modules: PROGRAM changes from one complete version to another."""
    return f"{LIBRARY}/{hashlib.sha256(repr(sorted(library.items())).encode()).hexdigest()[:16]}"


def sources() -> dict[str, str]:
    """Path in the library -> source, of the modules of the program."""
    library = {}
    for part in _PARTS.split():
        name = f"{_PACKAGE}.{part}"
        source = own_source.read(name)
        if source is None:
            raise files.ImexError(f"the source of {part} cannot be read here; run the role without a module compiler.")
        library[f"{name.replace('.', '/')}.py"] = source
    return library


# --- slurm.conf.


def evaluate(
    desired: DesiredState, slurm: Mapping[str, Sequence[str]], path: str, calling: Collection[str] = ()
) -> tuple[list[HostFinding], list[HostFinding]]:
    """(errors that block the installation, other findings), from the settings of the tray's slurm.conf.

    ``slurm``: key in lower case -> its values in order. ``calling``: Prolog or Epilog, where the site's own program
    calls the one of this collection.
    """
    errors, advice = [], []
    flags = {flag.strip().lower() for value in slurm.get("prologflags", ())[-1:] for flag in value.split(",")}
    # Contain, X11 and NoHold imply it.
    if not flags & {"alloc", "contain", "x11", "nohold", "deferbatch"}:
        errors.append(host_finding("slurm_conf_inconsistent", "prolog_flags", path=path))
    for key in ("PrologEpilogTimeout", "PrologTimeout", "EpilogTimeout"):
        limit = _number(_last(slurm, key.lower()))
        needs = desired.settings.stop_wait + 30 if key == "EpilogTimeout" else desired.settings.wait + state.MARGIN
        if limit is not None and limit not in _NO_LIMIT and limit < needs:
            values: dict[str, Value] = {"setting": f"{key}={limit}", "path": path, "seconds": needs}
            errors.append(host_finding("slurm_conf_inconsistent", "timeout", **values))
    missing = []
    for key, folder in (("Prolog", desired.prolog_dir), ("Epilog", desired.epilog_dir)):
        patterns = [pattern for value in slurm.get(key.lower(), ()) for pattern in value.split(",")]
        if key not in calling and not any(fnmatch.fnmatch(f"{folder}/{NAME}", pattern.strip()) for pattern in patterns):
            missing.append(f"{key}={folder}/*")
    if missing:
        lines = " and ".join(missing)
        advice.append(host_finding("slurm_conf_inconsistent", "prolog", path=path, lines=lines, program=PROGRAM))
    shared = _shared_partitions(desired.settings, slurm.get(slurm_conf.SHARED_PARTITIONS, ()))
    if shared and not desired.settings.gpus_counted:
        advice.append(host_finding("slurm_conf_advice", "shared", partitions=shared, path=path))
    if desired.settings.policy == "run" and not _last(slurm, "taskprolog"):
        advice.append(host_finding("slurm_conf_note", "task_prolog", program=PROGRAM, path=path))
    return errors, advice


def _gpus_are_counted(types: str) -> bool:
    """Whether SLURM_JOB_GPUS names GPUs of this job alone: jobs with shards or MPS share the GPUs that it names."""
    words = {word.strip().lower() for word in types.split(",")}
    return "gpu" in words and words.isdisjoint({"shard", "mps"})


def _shared_partitions(settings: state.Settings, rows: Sequence[str]) -> list[str]:
    """The partitions of "NAME NODES" rows that have trays of the clique; node sets are not known here."""
    members, found = {node for node, _line in settings.members}, []
    for row in rows:
        name, _blank, nodes = row.partition(" ")
        with contextlib.suppress(hostlist.HostlistError):
            if nodes.upper() == "ALL" or members & set(hostlist.expand(nodes)):
                found.append(f"partition {name}")
    return found


def _last(slurm: Mapping[str, Sequence[str]], key: str) -> str:
    return slurm[key][-1] if slurm.get(key) else ""


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
