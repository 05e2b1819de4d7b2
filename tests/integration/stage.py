# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run rehearsals on a host with a running slurmctld, for the tests."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.sandbox import FOLDER
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import info, topology_files

from .slurm_site import survey
from .slurmctld import ENTER, Slurmctld

UTILS = Path(__file__).resolve().parents[2] / "plugins" / "module_utils"


class Stage:
    """A running slurmctld, and rehearsals on the same host."""

    def __init__(self, slurmctld: Slurmctld) -> None:
        self.slurmctld = slurmctld
        self.style = scontrol.CONF if slurmctld.suite == "trixie" else scontrol.YAML
        self.name = "default" if self.style == scontrol.CONF else "nvlink"
        self.code = slurmctld.log.parent / "code"
        here = self.code / "ansible_collections" / "rackscale" / "nvlink"
        shutil.copytree(UTILS, here / "plugins" / "module_utils", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(Path(__file__).with_name("rehearse_inside.py"), here)

    def site(self, name: str, *lines: str) -> Path:
        """Make the configuration folder of another site."""
        folder = self.slurmctld.conf_dir / name
        folder.mkdir(exist_ok=True)
        (folder / "slurm.conf").write_text("".join(f"{line}\n" for line in lines))
        return folder

    def request(
        self, folder: Path, blocks: tuple[tuple[str, str], ...], sizes: list[int], **more: Any
    ) -> dict[str, Any]:
        """The input of rehearse_inside: blocks as pairs of name and hostlist."""
        topology = Topology(
            name=self.name,
            blocks=tuple(Block(name, tuple(expand(nodes)), nodes) for name, nodes in blocks),
            block_sizes=tuple(sizes),
        )
        writes = {str(folder / scontrol.FILE_NAMES[self.style]): topology_files.render([topology], self.style)}
        if self.style == scontrol.CONF:
            writes[str(folder / "slurm.conf")] = (folder / "slurm.conf").read_text() + "TopologyPlugin=topology/block\n"
        return {
            "conf_dir": str(folder),
            "version": [*self.slurmctld.version, 5],
            "style": self.style,
            "topology": self.name,
            "blocks": blocks,
            "block_sizes": sizes,
            "writes": {**writes, **more.pop("writes", {})},
            **more,
        }

    def command(self, *wrapper: str) -> list[str]:
        """The command of rehearse_inside on that host, which reads the request from its input."""
        enter = ["nsenter", "-t", str(self.slurmctld.pid), *ENTER, *wrapper, "env", f"PYTHONPATH={self.code}"]
        return [*enter, "python3", "-B", "-m", "ansible_collections.rackscale.nvlink.rehearse_inside"]

    def start(self, request: dict[str, Any], *wrapper: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*wrapper),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        process.stdin = None
        return process

    def rehearse(self, request: dict[str, Any], *wrapper: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The rehearsal and its findings."""
        output, errors = self.start(request, *wrapper).communicate(timeout=240)
        assert output, errors
        answer = json.loads(output)
        return answer["rehearsal"], list(map(worded, answer["findings"]))

    def ask(self, seconds: float = 30, **more: Any) -> dict[str, Any]:
        """The answers of the running slurmctld on test jobs."""
        _result, running = info.report(survey(self.slurmctld), "nvlink")
        request = {"live": seconds, "running": running, "conf_dir": str(self.slurmctld.conf_dir), **more}
        output, errors = self.start(request).communicate(timeout=240)
        assert output, errors
        answers: dict[str, Any] = json.loads(output)
        return answers

    def changes(self) -> list[str]:
        """The live changes that a reconfigure would undo."""
        request = {"changes": True, "conf_dir": str(self.slurmctld.conf_dir)}
        output, errors = self.start(request).communicate(timeout=240)
        assert output, errors
        return list(json.loads(output))

    def traces(self) -> tuple[list[str], str, list[str], dict[str, bytes]]:
        """All that a rehearsal could leave behind or change: processes, mounts, files of the host and of conf_dir."""
        rows = [row.split() for row in self.slurmctld.run("ps", "-eo", "stat=,comm=").stdout.splitlines()]
        # The first process of this slurmctld's sandbox is a sleep, which reaps no zombies.
        processes = [row[1] for row in rows if not row[0].startswith("Z")]
        mounts = self.slurmctld.run("cat", "/proc/1/mountinfo").stdout
        upper = self.slurmctld.directory / "upper"
        changing = ("var/spool/slurmctld", "run", "tmp/hsperf")
        tree = [str(path.relative_to(upper)) for path in sorted(upper.rglob("*"))]
        conf = {path.name: path.read_bytes() for path in self.slurmctld.conf_dir.rglob("*") if path.is_file()}
        kept = [name for name in tree if not name.startswith(changing)]
        return sorted(set(processes) - {"ps"}), mounts, kept, conf

    def rehearsing(self) -> bool:
        return bool(self.slurmctld.run("pgrep", "-f", f"slurmctld.*{FOLDER}").stdout)
