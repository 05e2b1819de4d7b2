# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the state of IMEX on this tray without evaluating it: files, unit, processes, devices, output of the ctl.

Programs that may hang run in a child with a time limit. What cannot be read is null.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
from collections.abc import Callable, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, child, interfaces
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, formats, slurm_conf
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Channels, Device, Survey, Unit
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.processes import DAEMON, processes
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import slurmd
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import rfc3339

UNIT = "nvidia-imex.service"
# The kernel truncates the name of a process to 15 characters: compute-domain-daemon and its kubelet plugin.
DRIVER_DAEMON = "compute-domain-"
PROC_DEVICES = "/proc/devices"
# The files of IMEX per job among prologs.
JOB_PROLOG = "50-nvlink-imex"
_SYSTEM_TIMEOUT = 10.0
_UNIT_FIELDS = ("LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "Result")
_DRIVER_VERSION = re.compile(r"[0-9]{3,4}(\.[0-9]{1,4}){1,3}")


def survey(
    config_path: str = formats.CONFIG_FILE,
    record_path: str = formats.RECORD_FILE,
    ctl: str = "nvidia-imex-ctl",
    timeout: float = 10.0,
    prolog_files: Sequence[str] = slurmd.PROLOG_FILES,
    proc_devices: str = PROC_DEVICES,
    addresses: Callable[[], list[str]] | None = None,
    driver_version: Callable[[], str | None] | None = None,
) -> Survey:
    """Everything that assemble() of assembly.py needs; ``timeout`` (seconds) bounds each ctl call.

    ``addresses`` and ``driver_version`` are for a caller that has read them already.
    """
    config_text = atomic.read_text(config_path)
    config = formats.Config(config_text or "")
    nodes_path = config.get("IMEX_NODE_CONFIG_FILE") or formats.NODES_FILE
    daemons = processes(lambda name: name == DAEMON or name.startswith(DRIVER_DAEMON))
    running = any(process["name"] == DAEMON for process in daemons)
    hostname = os.uname().nodename
    devices = channels(proc_devices)
    # In a child, since both may be on a file system of the network.
    slurm, ended = child.call(_slurm, _SYSTEM_TIMEOUT, list(prolog_files), devices["major"])
    if slurm is None:
        raise formats.ImexError(f"slurm.conf and its prologs cannot be read ({ended.reason}); check their file system.")
    answers = _query_ctl(ctl, config_path, timeout) if running else {}
    return {
        "observed_at": rfc3339(),
        "hostname": hostname,
        "names": sorted({hostname, hostname.partition(".")[0]}),
        "addresses": (addresses or _addresses)(),
        "program": shutil.which(DAEMON),
        "version": _program_version() if shutil.which(DAEMON) else None,
        "package": installed_package(),
        "driver_version": (driver_version or _driver_version)(),
        "unit": unit(),
        "config": {"path": config_path, "text": config_text},
        "nodes": {"path": nodes_path, "text": atomic.read_text(nodes_path), "changed_at": _changed_at(nodes_path)},
        "record": {"path": record_path, "text": atomic.read_text(record_path)},
        "persist": {"path": formats.PERSIST_FILE, "exists": os.path.exists(formats.PERSIST_FILE)},
        "processes": daemons,
        "answers": answers,
        "control_tool": _is_invoked(ctl, answers, timeout),
        "channels": devices,
        "prolog_files": slurm[0],
        "slurm_gives_channels": slurm[1],
        "prolog_gives_channels": slurm[2],
        "log_path": config.get("LOG_FILE_NAME"),
        "log": atomic.tail(config.get("LOG_FILE_NAME")),
    }


def _query_ctl(ctl: str, config_path: str, timeout: float) -> dict[str, child.Result]:
    """The results of -q and -N -j; where the first hangs, the second is not run."""
    state = child.run([ctl, "-c", config_path, "-q"], timeout)
    if state.timed_out:
        return {"state": state}
    return {"state": state, "domain": child.run([ctl, "-c", config_path, "-N", "-j"], timeout)}


def _is_invoked(ctl: str, answers: dict[str, child.Result], timeout: float) -> bool:
    """Whether the control tool runs and ends; one that hung is not asked again."""
    if any(answer.timed_out for answer in answers.values()):
        return False
    return any(answer.rc == 0 for answer in answers.values()) or child.run([ctl, "--version"], timeout).rc == 0


def _addresses() -> list[str]:
    # In a child too, since a faulty network driver can hold the kernel's lock on addresses for ever.
    return [entry["address"] for entry in child.call(interfaces.read, _SYSTEM_TIMEOUT).value or []]


def _changed_at(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _program_version() -> str | None:
    done = child.run([DAEMON, "--version"], _SYSTEM_TIMEOUT)
    found = _DRIVER_VERSION.search(done.stdout + done.stderr)
    return found.group() if found else None


def installed_package() -> dict[str, str] | None:
    """Name and version of the package of the daemon, from the installed package manager."""
    queries = (
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\\n", "nvidia-imex*"],
        ["rpm", "-qa", "--qf", "ii  %{NAME} %{VERSION}-%{RELEASE}\\n", "nvidia-imex*"],
    )
    for query in queries:
        if shutil.which(query[0]):
            for line in child.run(query, _SYSTEM_TIMEOUT).stdout.splitlines():
                words = line.split()
                if len(words) == 3 and words[0][1:2] == "i":  # installed, also where it is on hold
                    return {"name": words[1], "version": words[2]}
    return None


def loaded_driver() -> str | None:
    """The version of the loaded kernel module; None where the kernel does not report it."""
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        found = _DRIVER_VERSION.search(atomic.read_text(path) or "")
        if found:
            return found.group()
    return None


def _driver_version() -> str | None:
    """The version of the loaded kernel module; from NVML where the kernel does not report it."""
    loaded = loaded_driver()
    if loaded:
        return loaded
    try:
        return nvml.read(_SYSTEM_TIMEOUT).driver_version
    except NvlinkError:
        return None


def unit() -> Unit | None:
    """The state of the unit in systemd; None without systemd."""
    done = child.run(["systemctl", "show", f"--property={','.join(_UNIT_FIELDS)}", UNIT], _SYSTEM_TIMEOUT)
    if done.rc != 0:
        return None
    values = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    load, active, sub, enabled, pid, result = (values.get(field) or None for field in _UNIT_FIELDS)
    return {
        "load": load,
        "active": active,
        "sub": sub,
        "enabled": enabled,
        "main_pid": int(pid) if pid and pid.isdigit() and pid != "0" else None,
        "result": result,
    }


def channels(proc_devices: str) -> Channels:
    """The major number of channel devices in this boot, None where the driver offers none, and the devices."""
    return {"major": boot.major_of_channels(proc_devices), "devices": _channel_devices()}


def _channel_devices() -> list[Device]:
    devices: list[Device] = []
    try:
        names = os.listdir(boot.CHANNELS)
    except OSError:
        return []
    for name in names:
        try:
            status = os.stat(os.path.join(boot.CHANNELS, name), follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode):
            major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
            mode = f"{stat.S_IMODE(status.st_mode):04o}"
            devices.append({"name": name, "major": major, "minor": minor, "mode": mode})
    return sorted(devices, key=lambda device: (device["minor"], device["name"]))


def _slurm(patterns: Sequence[str], major: int | None) -> tuple[list[str], bool, bool]:
    """(files of prologs that mention nvidia-imex, whether Slurm gives each job a channel, whether a prolog may)."""
    settings = slurm_conf.read()[1]
    named = [pattern for key in slurm_conf.PROLOGS for pattern in settings.get(key, ())]
    names = {name for pattern in [*patterns, *named] for name in glob.glob(pattern)}
    texts = {name: atomic.read_text(name) or "" for name in names}
    prologs = sorted(name for name, text in texts.items() if DAEMON in text)
    by_prolog = any(os.path.basename(boot.CHANNELS) in text for text in texts.values())
    return prologs, slurm_conf.gives_channels(settings, major), by_prolog
