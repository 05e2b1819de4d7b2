# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the documentation site into build/docs/html; any warning fails.

The pages are those of docs/. antsibull-docs adds a page for each plugin and role, from their documentation and their
argument_specs. Its index leaves out the modules that are internal. Then the site's own search, run by node, must find
the page of each symptom; without node that is not checked.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from reference import internal_modules

CHECKOUT = Path(__file__).resolve().parents[2]
SITE = CHECKOUT / "build" / "docs"
REFERENCE = "antsibull-docs collection --use-current --squash-hierarchy --fail-on-error rackscale.nvlink --dest-dir"
HTML = "sphinx-build -b html -W --keep-going --quiet"
# What an operator types -> the page, which must be among the first three results.
SYMPTOMS = {
    "nvidia-smi couldn't communicate with the driver": "troubleshooting",
    "driver/library version mismatch": "troubleshooting",
    "GPU is lost": "findings",
    "fabric state in progress": "troubleshooting",
    "fabric status insufficient resources": "troubleshooting",
    "clique id 0 missing": "troubleshooting",
    "cluster uuid changed": "discovery",
    "nvlink Xid 149": "findings",
    "nvlink bandwidth degraded": "findings",
    "imex domain degraded": "troubleshooting",
    "imex node list mismatch": "troubleshooting",
    "imex waiting for recovery": "findings",
    "imex not started after reboot": "troubleshooting",
    "imex version does not match driver": "findings",
    "imex port blocked by firewall": "imex-domain",
    "nccl mnnvl imex channel missing": "troubleshooting",
    "NCCL uses InfiniBand": "troubleshooting",
    "imex job prolog hung": "imex-jobs",
    "slurmctld topology block not applied": "slurm",
    "slurm job pending idle nodes": "troubleshooting",
    "No suitable topology unit found": "troubleshooting",
    "segment larger than block": "slurm",
    "rack missing in scontrol show topology": "troubleshooting",
    "job pending NvidiaImexChannels": "slurm",
    "node drained reason nvlink": "troubleshooting",
    "partition settings lost after reconfigure": "troubleshooting",
    "node without nvidia.com/gpu.clique label": "troubleshooting",
    "pod ContainerCreating computedomain not ready": "troubleshooting",
    "computedomain stuck deleting": "findings",
    "DRA driver not registered": "troubleshooting",
    "no tray answered permission denied": "doctor",
    "stopped by gate moved_percent": "discovery",
}


def without(index: str, modules: set[str]) -> str:
    """The index of all plugins without the lines of these modules; their pages stay as targets of links."""
    names = "|".join(sorted(modules)) or "$^"
    return re.sub(rf"^(?:    (?:{names})_module|\* :ansplugin:`(?:{names}) module .*)\n", "", index, flags=re.MULTILINE)


def search_problems(html: Path) -> Iterator[str]:
    """One line for each symptom whose page the search of the site does not list first, second or third."""
    script = Path(__file__).with_name("docs_search.js")
    command = ["node", str(script), str(html), *SYMPTOMS]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    for (query, page), links in zip(SYMPTOMS.items(), found, strict=True):
        first = [link.partition(".html")[0] for link in links[:3]]
        if page not in first:
            yield f"a search for `{query}` lists {', '.join(first) or 'nothing'}; use its words in docs/{page}.md."


def main() -> int:
    pages = SITE / "pages"
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(CHECKOUT / "docs", pages)
    shutil.copy(CHECKOUT / "galaxy.yml", pages)
    reference = pages / "reference"
    reference.mkdir(mode=0o755)
    status = subprocess.run([*REFERENCE.split(), str(reference)], cwd=CHECKOUT, check=False).returncode
    if status:
        return status
    index = reference / "index.rst"
    index.write_text(without(index.read_text(), internal_modules()))
    status = subprocess.run([*HTML.split(), str(pages), str(SITE / "html")], cwd=CHECKOUT, check=False).returncode
    if status:
        return status
    if not shutil.which("node"):
        print("The site's search is not checked: it needs node (Debian: nodejs).")
    elif lost := list(search_problems(SITE / "html")):
        print("\n".join(lost))
        return 1
    print(f"{(SITE / 'html' / 'index.html').relative_to(CHECKOUT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
