# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that nothing reads, and values of a wrong type, one row for each place of a value and each kind of type.

tests/unit/plugins/plugin_utils/guard has the values of each kind.
"""

from __future__ import annotations

import json
from pathlib import Path

from . import Mistake

NOTHING_READS = "is a variable that nothing reads"
TIERS = [{"name": "big", "all": True, "priorty_tier": 10}]


def _wrong_port(site: Path) -> None:
    (site / "group_vars" / "nvlink.json").write_text(json.dumps({"imex_list_port": "abc"}))


def _wrong_on_one_host(site: Path) -> None:
    (site / "host_vars").mkdir()
    (site / "host_vars" / "r02t02.yml").write_text("imex_tls: sites\n")


def _unknown_in_inventory(site: Path) -> None:
    (site / "group_vars" / "nvlink.json").write_text(json.dumps({"imex_onwer": "none", "site_name": "x"}))


def _unknown_on_one_host(site: Path) -> None:
    ours = "ours: {hosts: {r02t02: {imex_onwer: none}}}"
    (site / "hosts.yml").write_text(f"slurm_controller: {{hosts: {{ctl: {{}}}}}}\n{ours}\n")


MISTAKES = [
    Mistake("rackscale.nvlink.imex -e imex_onwer=none", f"imex_onwer (-e) {NOTHING_READS}; did you mean imex_owner?"),
    Mistake(
        "rackscale.nvlink.accept",
        f"[WARNING]: imex_onwer (variable of r01t01) {NOTHING_READS}; did you mean imex_owner?",
        prepare=_unknown_in_inventory,
        core=True,
    ),
    Mistake(
        "rackscale.nvlink.accept",
        f"[WARNING]: imex_onwer (variable of r02t02) {NOTHING_READS}; did you mean imex_owner?",
        prepare=_unknown_on_one_host,
    ),
    Mistake(
        "rackscale.nvlink.render -e render_dir={site}/out -e verdict_file=/nope/x",
        "verdict_file: /nope/x is not a file; correct the path, or run the playbook that writes it first.",
    ),
    Mistake("rackscale.nvlink.site -e site_accept=yes", "site_accept (-e) is 'yes'; use one of gates, review."),
    Mistake(
        """rackscale.nvlink.site -e '{"site_phases": ["slurm"]}'""",
        "site_phases (-e): removed, see upgrading#site_phases.",
    ),
    Mistake(
        "rackscale.nvlink.imex",
        "imex_list_port (variable of r01t01) is 'abc', write an integer.",
        prepare=_wrong_port,
    ),
    Mistake(
        "rackscale.nvlink.imex --check",
        "imex_tls (variable of r02t02) is 'sites'; did you mean site?",
        prepare=_wrong_on_one_host,
        long=True,
    ),
    Mistake(
        f"rackscale.nvlink.slurm --check -e '{json.dumps({'slurm_tiers': TIERS})}'",
        "slurm_tiers[0] (-e) has the unknown key 'priorty_tier'; did you mean priority_tier?",
    ),
    Mistake(
        # A template is evaluated by the task that evaluates it.
        """rackscale.nvlink.discover -e fabric_hosts=nvlink -e 'fabric_moved_percent={{ "a" ~ "bc" }}'""",
        "moved_percent (fabric_file) is 'abc', write a number",
        core=True,
    ),
]
