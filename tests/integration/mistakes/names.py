# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trays, cliques, rollouts, hosts, groups, tags and limits that do not exist or leave out what a playbook needs.

tests/unit/plugins/plugin_utils/run/test_targets.py has the names of each kind; here are the playbooks that would
end without a host, or without a task, if they did not check them.
"""

from __future__ import annotations

from pathlib import Path

from . import Mistake

NO_CONTROLLER = (
    "group slurm_controller: the inventory has no host in it; put the host of slurmctld into it, or name its group with"
    " -e slurm_controller_hosts=GROUP."
)
NO_TRAYS = (
    "group nvlink: the inventory has no host in it; add an inventory source that reads the fabric file, such as"
    " -i cluster.nvlink.yml, or name the trays with -e imex_hosts=PATTERN."
)


def _broken(site: Path) -> None:
    (site / "fabric.json").write_text("{")


def _other_suffix(site: Path) -> None:
    text = (site / "cluster.nvlink.yml").read_text()
    (site / "cluster.yml").write_text(text.replace("fabric_file:", "fabric_fil:"))


def _no_controller(site: Path) -> None:
    (site / "hosts.yml").write_text("others: {hosts: {login: {}}}\n")


def _limit(site: Path) -> None:
    (site / "limit").write_text("r01t01\n")


MISTAKES = [
    # Trays and cliques.
    Mistake(
        "rackscale.nvlink.drain -e drain_trays=r99t01",
        "drain_trays: 'r99t01' is no tray, clique or domain of the fabric file, and no host of the inventory; did you"
        " mean r0",
    ),
    Mistake("rackscale.nvlink.drain", "drain_trays: is not set; add -e drain_trays=r01t04."),
    Mistake(
        "rackscale.nvlink.drain -e drain_trays=r01t01 -e fabric_file=/nope.json",
        "fabric_file: /nope.json is not a file; correct the path, or run the playbook that writes it first.",
    ),
    # Parts of a playbook that a tag chooses.
    Mistake("rackscale.nvlink.drain --tags spares", "spares_active: is not set; add -e spares_active=16."),
    Mistake(
        "rackscale.nvlink.drain -e drain_trays=r01t01 -e spares_active=1",
        "spares_active: only --tags spares reads it; add the tag or leave spares_active out.",
    ),
    Mistake(
        "rackscale.nvlink.drain --tags spares -e spares_active=1 -e drain_trays=r01t01",
        "drain_trays: --tags spares does not read it; leave the tag or drain_trays out.",
    ),
    Mistake(
        "rackscale.nvlink.rollout -e rollout_name=imexx",
        "rollout_name: 'imexx' has no steps of its own, nor is rollout_steps set; did you mean imex?",
        long=True,
    ),
    # Hosts and groups.
    Mistake("rackscale.nvlink.slurm", NO_CONTROLLER, prepare=_no_controller),
    *(
        Mistake(f"rackscale.nvlink.{line}", NO_CONTROLLER, prepare=_no_controller, long=True)
        for line in ("slurm_bringup", "verify --tags benchmark", "drain -e drain_trays=r01t01")
    ),
    Mistake(
        "rackscale.nvlink.slurm -e slurm_controller_hosts=slurm_controler",
        "slurm_controller_hosts: 'slurm_controler' matches no host of the inventory; did you mean slurm_controller?",
    ),
    Mistake("rackscale.nvlink.imex", NO_TRAYS, inventory=("hosts.yml",)),
    Mistake("rackscale.nvlink.imex", "group nvlink: the inventory has no host in it, since /", prepare=_broken),
    Mistake(
        "rackscale.nvlink.imex",
        # The warnings of Ansible have the reason too.
        "group nvlink: the inventory has no host in it, since /",
        prepare=_other_suffix,
        inventory=("cluster.yml", "hosts.yml"),
        long=True,
    ),
    Mistake(
        "rackscale.nvlink.discover",
        "group trays: the inventory has no host in it; put the trays into it, or use -e fabric_hosts=PATTERN.",
    ),
    Mistake("rackscale.nvlink.discover", "inventory: it has no host; name its file with -i", inventory=()),
    # Limits and tags. Ansible passes a limit from a file on as it passes one of hosts.
    *(
        Mistake(
            f"rackscale.nvlink.discover --limit {limit}",
            f"This playbook runs on localhost too: use --limit {limit},localhost.",
            prepare=_limit,
        )
        for limit in ("r01t01", "@limit")
    ),
    Mistake(
        "rackscale.nvlink.slurm --limit nvlink",
        "--limit nvlink: leaves no host of slurm_controller; add one: --limit nvlink,ctl.",
    ),
    Mistake(
        "rackscale.nvlink.imex --limit r99t01,r01t01",
        "--limit: 'r99t01' matches no host of the inventory; did you mean r0",
    ),
    # The Slurm controller does not answer.
    Mistake(
        "rackscale.nvlink.verify --limit r01t01,localhost",
        '"msg": "4 trays in 2 cliques, 1 queried, 3 not evaluated (outside this run: r01t02,r02t[01-02]): the',
        answering=True,
        lines=81,
    ),
    Mistake(
        "rackscale.nvlink.site --tags discovr",
        "--tags: 'discovr' is no tag of the playbook site; did you mean discover?",
    ),
]
