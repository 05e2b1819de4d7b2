# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that nothing reads, and values of a wrong type."""

from __future__ import annotations

import json
from pathlib import Path

from . import Mistake

NOTHING_READS = "is a variable that nothing reads"
TIERS = [{"name": "big", "all": True, "priorty_tier": 10}]


def _extra_file(site: Path) -> None:
    (site / "extra.json").write_text(json.dumps({"fabric_moved_prcent": 5}))


def _wrong_port(site: Path) -> None:
    (site / "group_vars" / "nvlink.json").write_text(json.dumps({"imex_server_port": "abc"}))


def _wrong_on_one_host(site: Path) -> None:
    (site / "host_vars").mkdir()
    (site / "host_vars" / "r02t02.yml").write_text("imex_tls: sites\n")


def _unknown_in_inventory(site: Path) -> None:
    (site / "group_vars" / "nvlink.json").write_text(json.dumps({"imex_onwer": "none", "site_name": "x"}))


MISTAKES = [
    Mistake("rackscale.nvlink.imex -e imex_onwer=none", f"imex_onwer (-e) {NOTHING_READS}; did you mean imex_owner?"),
    Mistake(
        "rackscale.nvlink.discover -e @extra.json --check",
        f"fabric_moved_prcent (-e @extra.json) {NOTHING_READS}; did you mean fabric_moved_percent?",
        prepare=_extra_file,
    ),
    Mistake(
        "rackscale.nvlink.drain -e drain_tray=r01t01",
        f"drain_tray (-e) {NOTHING_READS}; did you mean drain_trays?",
    ),
    Mistake(
        "rackscale.nvlink.site -e site_accpt=review --tags discover",
        f"site_accpt (-e) {NOTHING_READS}; did you mean site_accept?",
    ),
    Mistake(
        "rackscale.nvlink.rollout -e rollout_name=imex -e rollout_colour=red",
        f"rollout_colour (-e) {NOTHING_READS}; correct its name or remove it.",
    ),
    Mistake(
        "rackscale.nvlink.report -e render-dir=/x -e renderdir=/x",
        f"renderdir (-e) {NOTHING_READS}; did you mean render_dir?",
    ),
    Mistake(
        "rackscale.nvlink.accept",
        f"[WARNING]: imex_onwer (variable of r01t01) {NOTHING_READS}; did you mean imex_owner?",
        prepare=_unknown_in_inventory,
    ),
    Mistake(
        "rackscale.nvlink.discover -e fabric_moved_percent=abc", "fabric_moved_percent (-e) is 'abc', write a number."
    ),
    Mistake("rackscale.nvlink.site -e site_accept=yes", "site_accept (-e) is 'yes'; use one of gates, review."),
    Mistake(
        """rackscale.nvlink.site -e '{"site_phases": ["slrum"]}'""",
        "site_phases[0] (-e) is 'slrum'; did you mean slurm?",
    ),
    Mistake(
        "rackscale.nvlink.slurm -e slurm_topology_format=yml",
        "slurm_topology_format (-e) is 'yml'; did you mean yaml?",
    ),
    Mistake("rackscale.nvlink.imex -e imex_server_port=abc", "imex_server_port (-e) is 'abc', write an integer."),
    Mistake(
        "rackscale.nvlink.imex",
        "imex_server_port (variable of r01t01) is 'abc', write an integer.",
        prepare=_wrong_port,
    ),
    Mistake(
        "rackscale.nvlink.imex --check",
        "imex_tls (variable of r02t02) is 'sites'; did you mean site?",
        prepare=_wrong_on_one_host,
    ),
    Mistake(
        f"rackscale.nvlink.slurm --check -e '{json.dumps({'slurm_tiers': TIERS})}'",
        "slurm_tiers[0] (-e) has the unknown key 'priorty_tier'; did you mean priority_tier?",
    ),
    Mistake(
        "rackscale.nvlink.verify -e verify_quick=often",
        "verify_quick (-e) is 'often', write true or false.",
    ),
    Mistake(
        "rackscale.nvlink.slurm_bringup -e slurm_database_password=1 -e slurm_accounting=maybe",
        "slurm_accounting (-e) is 'maybe', write true or false.",
    ),
    Mistake(
        "rackscale.nvlink.kubernetes -e dra_driver_shape=computedomains",
        "dra_driver_shape (-e) is 'computedomains'; did you mean compute_domains?",
    ),
    Mistake(
        "rackscale.nvlink.render -e render_dir={site}/out -e fabric_renderers=slurm,imx",
        "fabric_renderers[1] (-e) is 'imx'; did you mean imex?",
    ),
    Mistake(
        """rackscale.nvlink.discover -e '{"fabric_sources": [{"ssh": {"usr": "root"}}]}' --check""",
        "fabric_sources[0].ssh (-e) has the unknown key 'usr'; did you mean user?",
    ),
    Mistake(
        "rackscale.nvlink.discover -e fabric_sources=sssh",
        "fabric_sources[0] (-e) has the unknown key 'sssh'; did you mean ssh?",
    ),
    Mistake(
        """rackscale.nvlink.benchmark -e '{"benchmark_programs": [{"nme": "nccl"}]}'""",
        "benchmark_programs[0] (-e) has the unknown key 'nme'; did you mean name?",
    ),
    Mistake(
        """rackscale.nvlink.imex --check -e '{"imex_tls_files": {"ky": "/etc/key.pem"}}'""",
        "imex_tls_files (-e) has the unknown key 'ky'; did you mean key?",
    ),
    Mistake(
        # A template is judged by the task that evaluates it.
        """rackscale.nvlink.discover -e 'fabric_moved_percent={{ "a" ~ "bc" }}'""",
        "moved_percent: 'abc' is not a number; write a percentage, such as 10",
    ),
    Mistake(
        "rackscale.nvlink.demo -e demo_dri={site}/x",
        f"demo_dri (-e) {NOTHING_READS}; did you mean demo_dir?",
    ),
    Mistake(
        "rackscale.nvlink.slurm_bringup -e slurm_serail=3",
        f"slurm_serail (-e) {NOTHING_READS}; did you mean slurm_serial?",
    ),
    Mistake(
        "rackscale.nvlink.teardown -e teardwon=yes",
        f"teardwon (-e) {NOTHING_READS}; did you mean teardown?",
    ),
]
