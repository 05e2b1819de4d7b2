# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that nothing reads, and values of a wrong type, one row for each place of a value and each kind of type.

tests/unit/plugins/plugin_utils/guard has the values of each kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def _verdict(name: str, day: int, **more: Any) -> Callable[[Path], object]:
    def write(site: Path) -> None:
        whole = {"ok": True, "failures": [], "layers": {"hardware": "checked"}, "fabric_file": "/y", "queried": 4}
        for file, on, others in (("new", 21, {}), (name, day, more)):
            found = {**whole, "checked_at": f"2026-11-{on}T05:00:00Z", **others}
            (site / f"{file}.json").write_text(json.dumps(found))

    return write


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
    Mistake(
        "rackscale.nvlink.render --tags report -e report_since=/nope/x",
        "report_since: /nope/x is not a file; correct the path, or run the playbook that writes it first.",
        long=True,
    ),
    Mistake(
        "rackscale.nvlink.render --tags report -e report_since={site}/fabric.json -e verdict_file={site}/fabric.json",
        "/fabric.json: has no verdict; give the file that the playbook rackscale.nvlink.verify wrote.",
    ),
    Mistake(
        "rackscale.nvlink.render --tags report -e report_since={site}/old.json",
        "/old.json: there is no verdict to compare it with; set verdict_file to that of the last verify.",
        prepare=_verdict("old", 20),
    ),
    *(
        Mistake(
            "rackscale.nvlink.render --tags report -e report_since={site}/old.json -e verdict_file={site}/new.json",
            f"/old.json: {why}.",
            prepare=_verdict("old", day, **more),
            long=True,
        )
        for day, more, why in (
            (20, {"fabric_file": "/x"}, "is about /x, and verdict_file about /y; give one of the same fabric file"),
            (22, {}, "is of 2026-11-22T05:00:00Z, and verdict_file of 2026-11-21T05:00:00Z; give an earlier one"),
            (20, {"queried": 0}, "one of it and verdict_file is of a run with --tags quick; give two of the same kind"),
        )
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
