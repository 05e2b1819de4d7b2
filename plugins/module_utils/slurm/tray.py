# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tray becomes a node of a configless Slurm: packages, the cluster's key, slurmd.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Two steps, because slurmctld must know the node's hardware before its slurmd may start: ``prepare`` installs and
measures, ``start`` starts. No file of Slurm's configuration is written on a tray; slurmd fetches all from slurmctld.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import hardware, keys
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

UNIT = "slurmd.service"
# Slurm's own word for folders of programs is a pattern, which must find a file.
NOTHING = "00-nvlink"
NOTHING_TEXT = """\
#!/bin/sh
# Written by rackscale.nvlink (slurm). Slurm runs every program of this folder. It fails all jobs and drains the tray
# where it finds none, so this one, which does nothing, must stay.
exit 0
"""
# Where the open and the proprietary kernel modules show the parameters that they were loaded with.
DRIVER_PARAMETERS = "/proc/driver/nvidia/params"

HEALTH_CHECK = """\
#!/bin/sh
# Written by rackscale.nvlink (slurm), run by slurmd every HealthCheckInterval. The next run takes back what is changed.
# Drains this node while its GPUs do not answer, are too few or are not in their NVLink fabric. It resumes the node only
# where it was this program that drained it.
expected=@GPUS@
marker=/run/nvlink-slurm-drained
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
node=${SLURMD_NODENAME:-$(uname -n | cut -d. -f1)}
[ "$expected" -gt 0 ] || exit 0
problem=
if shown=$(timeout 30 nvidia-smi -q -x 2>/dev/null); then
    gpus=$(printf '%s\\n' "$shown" | grep -c '<gpu id=')
    attached=$(printf '%s\\n' "$shown" | sed -n '/<fabric>/,/<.fabric>/p' | grep -c '<state>Completed</state>')
    if [ "$gpus" -lt "$expected" ]; then
        problem="$gpus of $expected GPUs answer"
    elif [ "$attached" -lt "$expected" ]; then
        problem="$attached of $expected GPUs are in their NVLink fabric"
    fi
else
    problem="nvidia-smi fails or hangs"
fi
if [ -n "$problem" ]; then
    [ "$(cat "$marker" 2>/dev/null)" = "$problem" ] && exit 0
    scontrol update NodeName="$node" State=DRAIN Reason="nvlink: $problem" && printf '%s\\n' "$problem" > "$marker"
elif [ -e "$marker" ]; then
    # Somebody else may have given the drain another reason meanwhile; then it is theirs to end.
    case $(scontrol --oneliner show node "$node") in
    *"Reason=nvlink: "*) scontrol update NodeName="$node" State=RESUME ;;
    esac
    rm -f "$marker"
fi
exit 0
"""


@dataclass(frozen=True)
class DesiredState:
    """What a tray gets. ``key`` is the cluster's key as bytes; empty only in a check of hosts that have none yet."""

    packages: Sequence[str]
    auth: str
    key: bytes
    conf_servers: Sequence[str]
    options_file: str
    health_check: str = ""
    gpus: int = 0
    prolog_dirs: Sequence[str] = ()
    log: str = "/var/log/slurm/slurmd.log"


@dataclass(frozen=True)
class Seen:
    """What a tray tells: its hardware, null where slurmd is not installed yet, and the driver's count of channels."""

    hardware: hardware.Record | None
    channels: int | None


def prepare(host: Host, wish: DesiredState) -> Seen:
    """Everything but the start of slurmd."""
    if not wish.key and not host.check:
        raise SlurmError(
            "The Slurm controller has no authentication key yet: run once without --limit, so that it makes one."
        )
    host.install(wish.packages, held=(UNIT, keys.MUNGE_UNIT))
    if wish.key:
        keys.give(host, wish.auth, wish.key)
    if wish.auth == "munge":
        host.run(keys.MUNGE_UNIT)
    host.file(wish.options_file, options_text(wish).encode())
    if wish.health_check:
        host.file(wish.health_check, HEALTH_CHECK.replace("@GPUS@", str(wish.gpus)).encode(), mode=0o755)
    for folder in wish.prolog_dirs:
        host.file(os.path.join(folder, NOTHING), NOTHING_TEXT.encode(), mode=0o755)
    if not os.path.isdir(os.path.dirname(wish.log)):
        host.folder(os.path.dirname(wish.log), "root:root", 0o755)
    host.logrotate("slurm-nvlink", [wish.log], UNIT)
    return Seen(measure(host), channels())


def options_text(wish: DesiredState) -> str:
    servers = ",".join(wish.conf_servers)
    return (
        "# Written by rackscale.nvlink (slurm): slurmd has no files of its own, it fetches them from slurmctld.\n"
        f"SLURMD_OPTIONS='--conf-server {servers}'\n"
    )


def measure(host: Host) -> hardware.Record | None:
    try:
        program = Slurm().program("slurmd")
    except SlurmError:
        if host.check:
            return None
        raise
    result = host.call(program, "-C")
    record = hardware.parse_slurmd(result.stdout)
    if record is None:
        raise SlurmError("slurmd -C tells no hardware: run it by hand on this tray.")
    return record


def channels() -> int | None:
    """How many IMEX channels the driver has; None where no driver says so."""
    try:
        text = (read(DRIVER_PARAMETERS) or b"").decode("utf-8", "replace")
    except SlurmError:
        return None
    for line in text.splitlines():
        name, _colon, value = line.partition(":")
        if name.strip() == "ImexChannelCount" and value.strip().isdecimal():
            return int(value)
    return None


def start(host: Host, wish: DesiredState) -> None:
    """slurmd runs with these options, and is started at boot; jobs go on where it is restarted."""
    if wish.auth == "munge":
        host.enable(keys.MUNGE_UNIT)
    stale = host.is_active(UNIT) and not _runs_with(host, wish)
    host.run(UNIT, restart=stale, log=wish.log)


def _runs_with(host: Host, wish: DesiredState) -> bool:
    shown = host.call("systemctl", "show", "--property=MainPID", "--value", UNIT).stdout.strip()
    words = (read(f"/proc/{shown}/cmdline") or b"").decode("utf-8", "replace").split("\0") if shown.isdecimal() else []
    wanted = shlex.split(f"--conf-server {','.join(wish.conf_servers)}")
    return all(word in words for word in wanted)
