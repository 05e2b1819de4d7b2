# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of IMEX per job on a tray, and the checks of slurm.conf for them: pure functions but program().

PROGRAM is one zip file that Python runs, with the prolog and all modules that it imports under their own names: one
atomic write replaces it, and a program that has started has imported everything.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import json
import pathlib
import zipfile
from collections.abc import Collection, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist, own_source
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, Value, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, slurm_conf, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import main, state

_PACKAGE = "ansible_collections.rackscale.nvlink.plugins.module_utils"
# The modules of the program: main and all that it imports, which test_job.py compares with what Python imports.
# Ansible sends to a tray what the module imports, so the module has them all.
_PARTS = """
    atomic child errors hostlist text imex.boot imex.files imex.status
    imex.prolog.daemon imex.prolog.failure imex.prolog.main imex.prolog.state imex.prolog.wait
"""
PROGRAM = "/usr/local/libexec/nvlink-imex-job"
# Written by earlier versions.
LIBRARY = "/usr/local/lib/nvlink-imex-job"
# Each member offers its settings file to the others, which name a tray that missed a run by it.
SOCKET = "nvlink-imex-job.socket"
SOCKET_UNIT = f"/etc/systemd/system/{SOCKET}"
SERVICE_UNIT = "/etc/systemd/system/nvlink-imex-job@.service"
DROP_IN = "/etc/systemd/system/nvidia-imex.service.d/50-nvlink-job.conf"
# At boot systemd-tmpfiles removes the list of a job that died with the tray; /run, with the job's state, is empty then.
BOOT = "/etc/tmpfiles.d/50-nvlink-imex-job.conf"
NAME = survey.JOB_PROLOG
_MARK = "# Written by the role rackscale.nvlink.imex, which gives each job its nvidia-imex.\n"
# -I and -S: Python imports no file of a user or of the site.
_MAIN = """\
import os
import sys

# slurmd may have none: then other users could write to what this program creates.
os.umask(0o022)
from {module} import main

sys.exit(main(sys.argv[1:], dict(os.environ)))
"""
_SOCKET_TEXT = """\
{mark}[Socket]
ListenStream={port}
Accept=yes
# systemd's own limit would stop the socket for good once a member connects too often.
TriggerLimitIntervalSec=0
[Install]
WantedBy=sockets.target
"""
_SERVICE_TEXT = """\
{mark}[Unit]
CollectMode=inactive-or-failed
[Service]
ExecStart=/bin/cat {path}
StandardInput=null
StandardOutput=socket
User=nobody
CapabilityBoundingSet=
RuntimeMaxSec=10
"""
# A Prolog that does nothing, for a slurm.conf whose Prolog would match no file.
NOOP = "#!/bin/sh\n# Slurm fails every job where Prolog or Epilog matches no file.\nexit 0\n"
# Option of imex_job -> its lowest and highest value.
RANGES = {
    "wait": (5, 3600),
    "stop_wait": (1, 600),
    "min_trays": (1, 65536),
    "max_requeues": (0, 1000),
    "list_port": (1, 65535),
}
# Values of slurm.conf for no limit.
_NO_LIMIT = (0, 65534, 65535)


def settings_of(options: Arguments, slurm: Mapping[str, Sequence[str]]) -> state.Settings:
    """The settings by the options of imex_job and those of slurm.conf; ImexError for a wrong value."""
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
    return state.Settings(
        clique=options["clique"] or "",
        members=members,
        channel0=channel0,
        path=":".join(options["path"] or ()),
        gpus_counted=_gpus_are_counted(_last(slurm, "grestypes")),
        **{name: options[name] for name in (*RANGES, "policy", "scope", "proc_devices")},
    )


def files_of(settings: state.Settings, options: Arguments) -> dict[str, tuple[bytes, int]]:
    """path -> (content, mode) of every file."""
    service = _SERVICE_TEXT.format(mark=_MARK, path=state.SETTINGS_FILE)
    return {
        PROGRAM: (program(options["python"]), 0o755),
        state.SETTINGS_FILE: (render_settings(settings).encode(), 0o644),
        DROP_IN: (_drop_in(settings).encode(), 0o644),
        BOOT: (_boot(state.list_path()).encode(), 0o644),
        SOCKET_UNIT: (_SOCKET_TEXT.format(mark=_MARK, port=settings.list_port).encode(), 0o644),
        SERVICE_UNIT: (service.encode(), 0o644),
        f"{options['prolog_dir']}/{NAME}": (_wrapper("prolog").encode(), 0o755),
        f"{options['epilog_dir']}/{NAME}": (_wrapper("epilog").encode(), 0o755),
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


def program(python: str) -> bytes:
    """The content of PROGRAM, equal for equal sources."""
    members = {"__main__.py": _MAIN.format(module=main.__name__)}
    for part in _PARTS.split():
        name = f"{_PACKAGE}.{part}"
        source = own_source.read(name)
        if source is None:
            raise files.ImexError(f"the source of {part} cannot be read here; run the role without a module compiler.")
        path = name.replace(".", "/")
        members[f"{path}.py"] = source
        # Python before 3.13 finds no package in a zip file without this.
        members.update((f"{parent}/__init__.py", "") for parent in map(str, pathlib.PurePath(path).parents[:-1]))
    packed = io.BytesIO(f"#!{python} -IS\n".encode())
    packed.seek(0, io.SEEK_END)
    with zipfile.ZipFile(packed, "a") as archive:
        for path, source in sorted(members.items()):
            archive.writestr(zipfile.ZipInfo(path), source)
    return packed.getvalue()


# --- slurm.conf.


def evaluate(
    settings: state.Settings,
    options: Arguments,
    slurm: Mapping[str, Sequence[str]],
    path: str,
    calling: Collection[str] = (),
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
        limit = _last(slurm, key.lower())
        needs = settings.stop_wait + 30 if key == "EpilogTimeout" else settings.wait + state.MARGIN
        if limit.isdecimal() and int(limit) not in _NO_LIMIT and int(limit) < needs:
            values: dict[str, Value] = {"setting": f"{key}={limit}", "path": path, "seconds": needs}
            errors.append(host_finding("slurm_conf_inconsistent", "timeout", **values))
    missing = []
    for key, folder in (("Prolog", options["prolog_dir"]), ("Epilog", options["epilog_dir"])):
        patterns = [pattern for value in slurm.get(key.lower(), ()) for pattern in value.split(",")]
        if key not in calling and not any(fnmatch.fnmatch(f"{folder}/{NAME}", pattern.strip()) for pattern in patterns):
            missing.append(f"{key}={folder}/*")
    if missing:
        lines = " and ".join(missing)
        advice.append(host_finding("slurm_conf_inconsistent", "prolog", path=path, lines=lines, program=PROGRAM))
    shared = _shared_partitions(settings, slurm.get(slurm_conf.SHARED_PARTITIONS, ()))
    if shared and not settings.gpus_counted:
        advice.append(host_finding("slurm_conf_advice", "shared", partitions=shared, path=path))
    if settings.policy == "run" and not _last(slurm, "taskprolog"):
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
