# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run `molecule test` for every scenario in molecule/ that has a molecule.yml, one after another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def main() -> int:
    scenarios = sorted(path.parent.name for path in (CHECKOUT / "molecule").glob("*/molecule.yml"))
    wanted = sys.argv[1:] or scenarios
    environment = dict(os.environ, PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", NO_COLOR="1", PY_COLORS="0")
    failed = []
    for name in wanted:
        print(f"== molecule test -s {name}", flush=True)
        command = [str(BIN / "molecule"), "test", "-s", name]
        if subprocess.run(command, cwd=CHECKOUT, env=environment, check=False).returncode:
            failed.append(name)
    print(f"{len(wanted) - len(failed)} scenarios passed, failed: {', '.join(failed) or 'none'}")
    return int(bool(failed) or not wanted)


if __name__ == "__main__":
    sys.exit(main())
