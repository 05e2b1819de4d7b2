# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host: its own files, its start under systemd-nspawn, the way into it.

Every host runs in a mount namespace of its own that holds all its mounts (the overlay, its tmpfs, a pure cgroup v2), so
no mount of a lab is ever seen outside and none can outlive the host's processes. All its processes are in one cgroup,
named after lab and host, so that they are ended together and nothing else ever is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
import uuid
from pathlib import Path

from . import linux, network, packages, tools
from .addresses import BRIDGE_ADDRESS, CONTROLLER, PREFIX
from .errors import LabError
from .image import GPU_FILES
from .scenario import Scenario
from .slurm import CGROUP_CONF, SLURMD_DEFAULT, SLURMDBD_CONF, slurm_conf

UNITS = "etc/systemd/system"
WANTS = f"{UNITS}/multi-user.target.wants"
# A folder that the controllers have in common, as a site has a shared file system for slurmctld's state.
SHARED, SHARED_PLACE = "shared", "/opt/nvlink-lab-shared"
# What a stopped host wrote, where it keeps its disk; whiteouts and opaque folders of the overlay are in the attributes.
DISK = "disk.tar"
TAR = ("tar", "--xattrs", "--xattrs-include=*", "--numeric-owner", "--warning=no-file-ignored")
# The driver of a tray offers IMEX channels: with the major number of terminals, whose devices containers may create.
CHANNELS = f"""\
[Unit]
Before=ssh.service slurmd.service
ConditionPathExists={GPU_FILES}/gpus

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=sh -c "sed '/^Block/i 4 nvidia-caps-imex-channels' /proc/devices > /run/devices"
ExecStart=mount --bind /run/devices /proc/devices
"""
AFTER_SLURMDBD = "[Unit]\nAfter=slurmdbd.service\n"


def write_files(directory: Path, name: str, scenario: Scenario, lab: Path, base: Path) -> None:
    """The layer over the base tree that makes a host this host."""
    files = directory / "files"
    address = scenario.hosts[name]
    hosts = "".join(f"{ip} {host}\n" for host, ip in scenario.hosts.items())
    batch = f"link set host0 up\naddr add {address}/{PREFIX} dev host0\nroute add default via {BRIDGE_ADDRESS}\n"
    texts = {
        "etc/hostname": f"{name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{hosts}",
        "etc/machine-id": f"{uuid.uuid4().hex}\n",
        "etc/nvlink-lab/network.batch": batch,
        "etc/apt/sources.list": packages.sources(scenario.empty),
        "root/.ssh/authorized_keys": (lab / "key.pub").read_text(),
        f"{UNITS}/nvlink-lab-channels.service": CHANNELS,
    }
    if scenario.slurm and name == CONTROLLER:
        texts["etc/slurm/slurm.conf"] = slurm_conf(scenario)
        texts["etc/slurm/cgroup.conf"] = CGROUP_CONF
        if scenario.slurm.accounting:
            texts["etc/slurm/slurmdbd.conf"] = SLURMDBD_CONF
            texts[f"{UNITS}/slurmctld.service.d/accounting.conf"] = AFTER_SLURMDBD
        texts.update((f"etc/slurm/{file}", text) for file, text in scenario.slurm.files.items())
    elif scenario.slurm:
        texts["etc/default/slurmd"] = SLURMD_DEFAULT
    for relative, text in texts.items():
        target = files / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (files / "root").chmod(0o700)
    (files / "root/.ssh").chmod(0o700)
    (files / "etc/ssh").mkdir()
    shutil.copy2(lab / "host_key", files / "etc/ssh/ssh_host_ed25519_key")
    shutil.copy2(lab / "host_key.pub", files / "etc/ssh/ssh_host_ed25519_key.pub")
    wants = files / WANTS
    wants.mkdir(parents=True)
    (wants / "nvlink-lab-channels.service").symlink_to(f"/{UNITS}/nvlink-lab-channels.service")
    if scenario.slurm:
        _add_munge_key(files, lab / "munge.key", base)
        units = ["munge.service", "slurmctld.service" if name == CONTROLLER else "slurmd.service"]
        if scenario.slurm.accounting and name == CONTROLLER:
            (files / "etc/slurm/slurmdbd.conf").chmod(0o600)
            units += ["mariadb.service", "slurmdbd.service"]
        for unit in units:
            (wants / unit).symlink_to(f"/usr/lib/systemd/system/{unit}")


def _add_munge_key(files: Path, key: Path, base: Path) -> None:
    # A merged directory shows the upper layer's owner and mode: take over the tree's.
    owner = (base / "etc/munge").stat()
    target = files / "etc/munge/munge.key"
    target.parent.mkdir()
    target.parent.chmod(0o700)
    shutil.copyfile(key, target)
    target.chmod(0o400)
    for entry in (target.parent, target):
        os.chown(entry, owner.st_uid, owner.st_gid)


def start(directory: Path, name: str, base: Path, lab: str, cgroup: Path, is_tray: bool, devices: int = 0) -> int:
    """Start the host and return the pid of its nspawn; it goes on when the caller ends.

    ``devices`` is how many /dev/nvidiaN it has: Slurm counts only GPUs that have a file.
    """
    cgroup.mkdir(parents=True, exist_ok=True)
    (directory / "root").mkdir(exist_ok=True)
    nspawn = shutil.which("systemd-nspawn", path=tools.PATH)
    assert nspawn is not None
    pid = linux.fork()
    if pid:
        return pid
    try:
        _become_nspawn(directory, name, base, lab, cgroup, is_tray, devices, nspawn)
    except BaseException as error:
        print(f"lab: starting {name}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _become_nspawn(
    directory: Path, name: str, base: Path, lab: str, cgroup: Path, is_tray: bool, devices: int, nspawn: str
) -> None:
    os.setsid()
    (cgroup / "cgroup.procs").write_text("0")
    null = os.open("/dev/null", os.O_RDONLY)
    log = os.open(directory / "console.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, 4096)
    netns = os.open(network.file_of(lab), os.O_RDONLY)
    os.setns(netns, os.CLONE_NEWNET)
    os.close(netns)
    _private_mounts(directory, base)
    command = [nspawn, "--quiet", f"--directory={directory / 'root'}", f"--machine={name}", "--register=no"]
    command += ["--keep-unit", f"--network-bridge={network.BRIDGE}", "--console=pipe", "--resolv-conf=off"]
    command += ["--timezone=off", "--link-journal=no", "--kill-signal=SIGRTMIN+3"]
    command.append(f"--bind-ro={directory.parent.parent / packages.SITE}:{packages.PLACE}/{packages.SITE}")
    if is_tray:
        command.append(f"--bind-ro={directory / 'gpu'}:{GPU_FILES}")
    else:
        command.append(f"--bind={directory.parent.parent / SHARED}:{SHARED_PLACE}")
    command += [f"--bind=/dev/null:/dev/nvidia{number}" for number in range(devices)]
    command.append("--boot")
    environment = {"PATH": tools.PATH, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_NSPAWN_LOCK": "0"}
    os.execve(nspawn, command, environment)


def _private_mounts(directory: Path, base: Path) -> None:
    """Set up the host's private mount namespace, which ends with the host."""
    os.unshare(os.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    # systemd in a container wants cgroup v2 alone, whatever the machine mixes; sysfs must show the lab's network.
    linux.umount("/sys")
    linux.mount("sysfs", "/sys", "sysfs")
    linux.mount("cgroup2", "/sys/fs/cgroup", "cgroup2")
    # nspawn keeps notes in /run that it would leave behind when it is killed.
    here = os.open(directory, os.O_PATH)
    lab = directory.parent.parent
    common = {lab / name: os.open(lab / name, os.O_PATH) for name in (packages.SITE, SHARED)}
    for inner in linux.mounts_below("/run"):
        # Or this host would keep alive the network of every other lab; one that goes down just now is as good.
        with contextlib.suppress(FileNotFoundError):
            linux.umount(inner)
    linux.mount("tmpfs", "/run", "tmpfs", 0, "mode=0755")
    os.makedirs(directory)
    linux.mount(f"/proc/self/fd/{here}", str(directory), None, linux.MS_BIND)
    os.close(here)
    for folder, handle in common.items():
        os.makedirs(folder)
        linux.mount(f"/proc/self/fd/{handle}", str(folder), None, linux.MS_BIND)
        os.close(handle)
    layers = directory / "layers"
    layers.mkdir(exist_ok=True)
    linux.mount("tmpfs", str(layers), "tmpfs", 0, "mode=0755")
    (layers / "upper").mkdir()
    (layers / "work").mkdir()
    if (directory / DISK).exists():
        tools.call([*TAR, "-C", str(layers / "upper"), "-xpf", str(directory / DISK)], "the host's disk")
    options = f"lowerdir={directory / 'files'}:{base},upperdir={layers / 'upper'},workdir={layers / 'work'}"
    linux.mount("overlay", str(directory / "root"), "overlay", 0, options)


def keep_disk(directory: Path, pid: int, cgroup: Path) -> None:
    """Keep what a host has written, as it stands at this moment, for its next start. ``pid``: of its nspawn."""
    (cgroup / "cgroup.freeze").write_text("1")
    upper = f"/proc/{pid}/root{directory}/layers/upper"
    tools.call([*TAR, "-C", upper, "-cf", str(directory / DISK), "."], "the host's disk")


def leader(cgroup: Path) -> int | None:
    """The pid of the host's systemd: the one process of its cgroup that is number 1 in the container."""
    for procs in cgroup.rglob("cgroup.procs"):
        try:
            pids = procs.read_text().split()
        except OSError:
            continue
        for pid in pids:
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            for line in status.splitlines():
                if line.startswith("NSpid:"):
                    numbers = line.split()[1:]
                    if len(numbers) > 1 and numbers[-1] == "1":
                        return int(pid)
    return None


def enter_command(leader_pid: int, command: list[str]) -> list[str]:
    """The command line that runs `command` inside the host."""
    clean = ["env", "-i", f"PATH={tools.PATH}", "HOME=/root", "LANG=C.UTF-8", f"TERM={os.environ.get('TERM', 'dumb')}"]
    return ["nsenter", f"--target={leader_pid}", "--all", "--", *clean, *command]


def end_processes(cgroup: Path, seconds: float = 15.0) -> None:
    """End every process of a cgroup and its children, and remove the cgroup. Idempotent."""
    if not cgroup.is_dir():
        return
    deadline = time.monotonic() + seconds
    (cgroup / "cgroup.kill").write_text("1")
    while "populated 1" in (cgroup / "cgroup.events").read_text():
        if time.monotonic() > deadline:
            pids = " ".join(p.read_text().replace("\n", " ") for p in cgroup.rglob("cgroup.procs")).split()
            raise LabError(f"processes of {cgroup.name} do not end (pids {', '.join(pids)}): run down again.")
        time.sleep(0.02)
    for child in sorted((p for p in cgroup.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
        _rmdir(child, deadline)
    _rmdir(cgroup, deadline)


def _rmdir(cgroup: Path, deadline: float) -> None:
    while True:
        try:
            cgroup.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise LabError(f"cgroup {cgroup} cannot be removed ({error.strerror}): run down again.") from error
            time.sleep(0.02)
