# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base trees: one Debian root a suite, shared by all hosts of all labs as the lower layer of their overlays.

A tree is cached under the hash of everything that goes into it, so it is never changed in place and a running lab
never loses the tree under it.
"""

from __future__ import annotations

import re
from pathlib import Path

from . import cached, packages, tools

# What a tray or the Slurm controller runs, nothing that only waits.
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "python3",
    "openssh-server",
    "iproute2",
)
# What a lab with Slurm has installed, and an empty host finds in its repository.
SLURM_PACKAGES = (
    "munge",
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurmdbd",
    "mariadb-server",
)
# Next to what they depend on, an empty host's repository has what a site would install with them.
EMPTY_EXTRA = ("logrotate", "python3-pymysql")
# ansible.builtin.apt needs it; an installation of Debian or Ubuntu that is not minimal has it.
EMPTY_PACKAGES = ("python3-apt",)
# Newer ansible-core needs a newer Python than the machine may have: it is tested inside the trixie tree.
EXTRA_PACKAGES = {
    "trixie": ("python3-venv", "python3-pip", "openssh-client", "git", "ca-certificates", "make"),
    "forky": (),
}
# The Release file of the testing suite runs out within days; a mirror may be older than that.
APT_OPTIONS = {"trixie": (), "forky": ('Acquire::Check-Valid-Until "false"',)}

# Units that only cost time in a container; 37 of them share two cores.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty.target",
    "ldconfig.service",
    "modprobe@.service",
    "remote-fs.target",
    "systemd-boot-random-seed.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-journal-flush.service",
    "systemd-logind.service",
    "systemd-machine-id-commit.service",
    "systemd-network-generator.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-pcrphase.service",
    "systemd-pstore.service",
    "systemd-random-seed.service",
    "systemd-sysctl.service",
    "systemd-sysusers.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-update-done.service",
    "systemd-update-utmp.service",
    "systemd-sysext.socket",
    "sshd-keygen.service",
)
MASKED_GENERATORS = (
    "systemd-cryptsetup-generator",
    "systemd-debug-generator",
    "systemd-fstab-generator",
    "systemd-getty-generator",
    "systemd-gpt-auto-generator",
    "systemd-hibernate-resume-generator",
    "systemd-rc-local-generator",
    "systemd-ssh-generator",
    "systemd-system-update-generator",
    "systemd-sysv-generator",
    "systemd-tpm2-generator",
)
# The lab's hosts start these by a link in their own layer, each host what it needs.
NOT_ENABLED = (
    "mariadb.service",
    "munge.service",
    "slurmctld.service",
    "slurmd.service",
    "slurmdbd.service",
    "remote-fs.target",
)

NETWORK_UNIT = """\
[Unit]
Description=Static address of the lab
DefaultDependencies=no
Before=network.target network-online.target ssh.service munge.service slurmd.service slurmctld.service
After=local-fs.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/ip -batch /etc/nvlink-lab/network.batch

[Install]
WantedBy=multi-user.target
"""
SSHD = """\
UseDNS no
UsePAM no
X11Forwarding no
PermitRootLogin prohibit-password
PasswordAuthentication no
MaxStartups 200
MaxSessions 200
PerSourcePenalties no
HostKey /etc/ssh/ssh_host_ed25519_key
"""
JOURNALD = "[Journal]\nStorage=volatile\nRuntimeMaxUse=8M\nForwardToConsole=no\n"
# munged and the Slurm daemons wait for network-online.target and for nothing else that a lab has.
SLURM_UNIT = "[Unit]\nRequires=munge.service\nAfter=munge.service\n"
SLURMCTLD_UNIT = SLURM_UNIT + "[Service]\nUser=root\nGroup=root\n"
# Without slurm.conf slurmd asks the controller for it, which may boot later than the tray.
SLURMD_UNIT = SLURM_UNIT + "StartLimitIntervalSec=0\n[Service]\nRestart=on-failure\nRestartSec=1\n"
# Ready means that it has its tables: a slurmctld that finds none, and has no state of its own, ends.
# The database is made before: forky's libmariadb (11.8.9) reads nothing on a connection that first failed without one.
SLURMDBD_UNIT = """\
[Unit]
Requires=munge.service mariadb.service
After=munge.service mariadb.service
[Service]
User=root
Group=root
ExecStartPre=/usr/bin/mariadb -e 'CREATE DATABASE IF NOT EXISTS slurm_acct_db'
ExecStartPost=/bin/sh -c 'until sacctmgr -n show tres >/dev/null 2>&1; do sleep 0.1; done'
"""
# A database for a handful of rows, in a layer that is memory: small files and no waiting for a disk.
MARIADB_CNF = """\
[mariadbd]
skip-networking
skip-name-resolve
performance_schema=OFF
innodb_buffer_pool_size=64M
innodb_log_file_size=8M
innodb_lock_wait_timeout=900
loose_innodb_snapshot_isolation=OFF
innodb_flush_log_at_trx_commit=0
innodb_flush_method=nosync
"""
GPU_FILES = "/opt/nvlink-lab"


def ensure_base(suite: str, empty: bool = False) -> Path:
    """The suite's base tree, built when it is not there.

    An empty one has no Slurm, but the packages to install it from.
    """
    parts = [*EXTRA_PACKAGES[suite], *APT_OPTIONS[suite], Path(__file__).read_text(), str(empty)]

    def build(tree: Path, lock: int) -> None:
        tools.ensure_tools()
        command = ["mmdebstrap", "--quiet", "--variant=minbase"]
        command += [f"--aptopt={option}" for option in APT_OPTIONS[suite]]
        # What only the tests of other ansible-cores want is in the full tree alone.
        included = (*PACKAGES, *(EMPTY_PACKAGES if empty else (*SLURM_PACKAGES, *EXTRA_PACKAGES[suite])))
        command += [f"--customize-hook={hook}" for hook in (_download_hooks() if empty else ())]
        command += [f"--include={','.join(included)}", suite, str(tree)]
        tools.call(command, f"building the base tree of {suite}", keep=[lock])
        _customise(tree)
        if empty:
            packages.index(tree / packages.PLACE.lstrip("/") / packages.DEBIAN)
        else:
            _customise_slurm(tree)

    return cached.folder(suite, [part.encode() for part in parts], build)


def _download_hooks() -> tuple[str, str]:
    """Shell lines for mmdebstrap: the packages and all that they depend on, as files in the tree."""
    place = f'"$1"{packages.PLACE}/{packages.DEBIAN}'
    wanted = " ".join((*SLURM_PACKAGES, *EMPTY_EXTRA))
    return (
        f'chroot "$1" apt-get --quiet=2 --yes --no-install-recommends --download-only install {wanted}',
        f'mkdir -p {place} && mv "$1"/var/cache/apt/archives/*.deb {place}/',
    )


def _customise(root: Path) -> None:
    units = root / "etc/systemd/system"
    for name in MASKED:
        _link("/dev/null", units / name)
    for name in MASKED_GENERATORS:
        _link("/dev/null", root / "etc/systemd/system-generators" / name)
    wants = units / "multi-user.target.wants"
    for name in NOT_ENABLED:
        (wants / name).unlink(missing_ok=True)
    _write(units / "nvlink-lab-network.service", NETWORK_UNIT)
    _link("../nvlink-lab-network.service", wants / "nvlink-lab-network.service")
    _write(root / "etc/systemd/journald.conf.d/lab.conf", JOURNALD)
    _write(root / "etc/ssh/sshd_config.d/lab.conf", SSHD)
    for host_key in (root / "etc/ssh").glob("ssh_host_*"):
        host_key.unlink()
    (root / "etc/machine-id").write_text("")
    for directory in (GPU_FILES, f"{packages.PLACE}/{packages.SITE}"):
        (root / directory.lstrip("/")).mkdir(parents=True, exist_ok=True)
    (root / "etc/apt/sources.list.d").mkdir(parents=True, exist_ok=True)
    # Each host's own layer names the sources.
    for source in (root / "etc/apt/sources.list", *(root / "etc/apt/sources.list.d").iterdir()):
        source.unlink(missing_ok=True)
    # The GPUs' files come and go with `lab set`, so the tree only points at them.
    for libraries in (root / "usr/lib").glob("*-linux-gnu"):
        _link(f"{GPU_FILES}/libnvidia-ml.so.1", libraries / "libnvidia-ml.so.1")
    _link(f"{GPU_FILES}/nvidia-smi", root / "usr/bin/nvidia-smi")
    _link("/usr/lib/systemd/system/multi-user.target", units / "default.target")
    # Names come from /etc/hosts alone: name servers are out of reach, and each question to one costs ten seconds.
    _write(root / "etc/resolv.conf", "")
    nsswitch = root / "etc/nsswitch.conf"
    nsswitch.write_text(re.sub(r"(?m)^hosts:.*$", "hosts: files", nsswitch.read_text()))


def _customise_slurm(root: Path) -> None:
    units = root / "etc/systemd/system"
    _write(units / "slurmctld.service.d/lab.conf", SLURMCTLD_UNIT)
    _write(units / "slurmd.service.d/lab.conf", SLURMD_UNIT)
    _write(units / "slurmdbd.service.d/lab.conf", SLURMDBD_UNIT)
    _write(root / "etc/mysql/mariadb.conf.d/99-lab.cnf", MARIADB_CNF)
    for directory in ("var/lib/slurm/slurmctld", "var/spool/slurmd", "etc/slurm"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "etc/slurm/plugstack.conf").unlink(missing_ok=True)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def _link(points_at: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.symlink_to(points_at)
