# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the running Slurm, its files and a second topology file.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Observed on slurmctld 24.11.5 and 26.05.5: ``scontrol show topoconf`` shows the content of
topology.yaml; with topology.conf it is empty even where topology/block runs, so ``scontrol show topology`` is read
there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf_folder, files, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import SlurmConf, read_slurm_conf
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    CONF,
    FILE_NAMES,
    YAML,
    Block,
    ShownBlock,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm


@dataclass
class Survey:
    """The running Slurm, its files, and whether there is a topology file of the other format."""

    slurm: Slurm
    conf_dir: str
    version: rules.Version
    style: str
    conf: SlurmConf
    config: dict[str, str]
    file: bytes | None
    duplicate: bool
    running: list[Topology]
    shown: list[ShownBlock]
    acting: str = ""  # the active controller, where this host is a standby
    stamps: conf_folder.Stamps | None = None  # of the files in conf_dir
    tree: Topology | None = None  # the running tree of a topology.conf that a topology.yaml would hide

    @property
    def path(self) -> str:
        return os.path.join(self.conf_dir, FILE_NAMES[self.style])

    @property
    def version_text(self) -> str:
        return rules.show_version(self.version)

    @property
    def plugin(self) -> str:
        return self.config.get("topologyplugin", "")

    @property
    def power_saving(self) -> bool:
        """Whether slurmctld powers idle nodes down."""
        after = self.config.get("suspendtime", "").split(" ")[0].upper()
        return bool(self.config.get("suspendprogram")) and after not in ("", "-1", "INFINITE", "NONE")

    def written(self) -> list[Topology]:
        """The topologies of the topology file; SlurmError where it cannot be read.

        Where slurmctld would read a first topology.yaml instead of the site's tree, that tree.
        """
        if self.file is None:
            return [self.tree] if self.tree else []
        try:
            return files.parse(self.file.decode("utf-8", "replace"), self.style)
        except SlurmError as error:
            raise SlurmError(f"{self.path}: {error}") from None

    def own_topologies(self) -> list[str]:
        """The other topologies that an earlier run has written into the file."""
        return files.own_topologies((self.file or b"").decode("utf-8", "replace")) if self.style == YAML else []

    def running_topology(self, name: str) -> Topology | None:
        """The running block topology of that name; for topology.conf that of ``scontrol show topology``."""
        if self.running:
            return next((known for known in self.running if known.name == name and known.kind == "block"), None)
        return from_shown(self.shown, name)


def from_shown(shown: Sequence[ShownBlock], name: str = "default") -> Topology | None:
    """A topology from the lines of ``scontrol show topology``: its sizes are those of which a block exists."""
    blocks = tuple(Block(line.name, line.nodes) for line in shown if not line.aggregated)
    if not blocks:
        return None
    sizes = sorted({line.size for line in shown if line.size})
    return Topology(name=name, blocks=blocks, block_sizes=tuple(sizes))


def survey(slurm: Slurm, conf_dir: str, requested_style: str) -> Survey:
    """Read everything once; SlurmError where Slurm is too old, does not answer or has no slurm.conf there."""
    version = slurm.version()
    rules.require_supported(version)
    style = rules.choose_style(requested_style, version)
    stamps = conf_folder.stamps(conf_dir)
    conf = read_slurm_conf(conf_dir)
    config = slurm.config()
    running_version = rules.parse_version(config.get("slurm_version", rules.show_version(version)))
    if running_version[:2] != version[:2]:
        raise SlurmError(
            f"slurmctld {rules.show_version(running_version)} runs while {rules.show_version(version)} is installed:"
            " restart slurmctld first, so that both read the same topology file."
        )
    acting = active_controller(slurm, config)
    reads = os.path.dirname(config.get("slurm_conf", ""))
    # The active controller does not report what a standby reads.
    if not acting and reads and os.path.realpath(reads) != os.path.realpath(conf_dir):
        raise SlurmError(f"slurmctld reads its files from {reads}, not {conf_dir}: set conf_dir to {reads}.")
    file = host.read(os.path.join(conf_dir, FILE_NAMES[style]))
    other = os.path.join(conf_dir, FILE_NAMES[CONF if style == YAML else YAML])
    tree = None
    if style == YAML and file is None and config.get("topologyplugin", "").lower() == "topology/tree":
        try:
            tree = files.tree_of((host.read(other) or b"").decode("utf-8", "replace"))
        except SlurmError as error:
            raise SlurmError(f"{other}: {error}") from None
    running, shown = slurm.topologies(version), slurm.shown()
    # As long as slurmctld has loaded no topology.yaml, topology.conf is the only copy of what runs.
    duplicate = os.path.exists(other) and (style == CONF or (file is not None and bool(running)))
    return Survey(slurm, conf_dir, version, style, conf, config, file, duplicate, running, shown, acting, stamps, tree)


def active_controller(slurm: Slurm, config: Mapping[str, str]) -> str:
    """The active controller, where this host is a standby of it; empty where this host is the active one.

    config: ``scontrol show config``. The first SlurmctldHost that answers is active; a host that is none of them (it
    may share the folder) counts as active.
    """
    listed = [value.partition("(")[0] for key, value in config.items() if key.startswith("slurmctldhost")]
    name = socket.gethostname()
    mine = [host for host in listed if host == name or host.partition(".")[0] == name.partition(".")[0]]
    if len(listed) < 2 or not mine:
        return ""
    first = next((host for host, up in slurm.controllers() if up), mine[0])
    return "" if first == mine[0] else first


def refresh(observed: Survey) -> Survey:
    """Read again what runs; the files are not read again."""
    slurm = observed.slurm
    return replace(observed, config=slurm.config(), running=slurm.topologies(observed.version), shown=slurm.shown())
