# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run every scenario in molecule/ that has a molecule.yml, or the named ones, one after another.

Those of PROVEN are created, converged, verified and destroyed; the others, and all of them with --all, run the whole
sequence of `molecule test`, which has check mode and idempotence too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
# Scenario -> the test that proves check mode and idempotence of the same playbooks on the same lab.
PROVEN = {"default": "test_proof.py", "imex": "test_imex_role.py", "slurm": "test_slurm_role.py"}


def run_scenario(name: str, everything: bool) -> bool:
    """Whether the scenario passed; its lab is removed either way."""
    environment = dict(os.environ, PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", NO_COLOR="1", PY_COLORS="0")

    def molecule(command: str) -> bool:
        print(f"== molecule {command} -s {name}", flush=True)
        words = [str(BIN / "molecule"), command, "-s", name]
        return not subprocess.run(words, cwd=CHECKOUT, env=environment, check=False).returncode

    if everything or name not in PROVEN:
        return molecule("test")
    # Converge creates and prepares where that was not done, so a lab that a killed run left goes first.
    passed = molecule("destroy") and molecule("converge") and molecule("verify")
    return molecule("destroy") and passed


def main() -> int:
    scenarios = sorted(path.parent.name for path in (CHECKOUT / "molecule").glob("*/molecule.yml"))
    arguments = sys.argv[1:]
    wanted = [name for name in arguments if name != "--all"] or scenarios
    failed = [name for name in wanted if not run_scenario(name, "--all" in arguments)]
    print(f"{len(wanted) - len(failed)} scenarios passed, failed: {', '.join(failed) or 'none'}")
    return int(bool(failed) or not wanted)


if __name__ == "__main__":
    sys.exit(main())
