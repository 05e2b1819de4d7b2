# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slurm's programs as shell scripts, and a slurmctld with a systemd unit made of them."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.trays import script


def programs(folder: Path, timeout: float = 10, **scripts: str) -> Slurm:
    """Slurm's programs, each a shell script."""
    for name, text in scripts.items():
        script(folder / name, text)
    return Slurm(str(folder), timeout)


class FakeSlurm:
    """It runs the content that its file had when it was loaded.

    bin_dir holds scontrol and systemctl. loads, hangs, exits: shell commands for ``on_reconfigure``.
    """

    def __init__(self, directory: Path) -> None:
        self.conf_dir, self.bin_dir, state = directory / "etc", directory / "bin", directory / "state"
        for folder in (self.conf_dir, self.bin_dir, state):
            folder.mkdir()
        self.file, self.log, self._calls = self.conf_dir / "topology.conf", state / "log", state / "calls"
        self._running, self._silent, self._times = state / "running", state / "silent", state / "times"
        self._script, self._stuck, self._refuses = state / "script", state / "stuck", state / "refuses"
        self.loads = f"cat {self.file} > {self._running} 2>/dev/null || true"
        self.hangs, self.exits = f"echo active > {self._silent}", f"echo failed > {self._silent}"
        self.shown = state / "shown"  # what scontrol show prints
        script(
            self.bin_dir / "scontrol",
            f"""echo "scontrol $*" >> {self._calls}
case "$1" in
ping) [ -e {self._silent} ] && echo "Slurmctld(primary) at ctl is DOWN" || echo "Slurmctld(primary) at ctl is UP" ;;
show|-a) cat {self.shown} 2>/dev/null ;;
reconfigure)
    [ -e {self._silent} ] && sleep 60
    if [ -s {self._times} ]; then sed -i 1d {self._times}; . {self._script}; exit 0; fi
    {self.loads} ;;
esac""",
        )
        script(
            self.bin_dir / "systemctl",
            f"""echo "systemctl $*" >> {self._calls}
case "$1" in
show) echo LoadState=loaded; echo "ActiveState=$(cat {self._silent} 2>/dev/null || echo active)" ;;
kill) rm -f {self._stuck} ;;
start|restart)
    [ -e {self._stuck} ] && sleep 60
    if cmp -s {self.file} {self._refuses}; then echo failed > {self._silent}; exit 1; fi
    rm -f {self._silent}; {self.loads} ;;
esac""",
        )

    def load(self) -> None:
        self._running.write_bytes(self.file.read_bytes())

    def runs(self) -> str:
        return self._running.read_text()

    def on_reconfigure(self, script: str, times: int) -> None:
        """What the next reconfigures do instead of loading the file."""
        self._script.write_text(script + "\n")
        self._times.write_text("x\n" * times)

    def does_not_start_with(self, data: bytes) -> None:
        """The unit fails while the file holds this."""
        self._refuses.write_bytes(data)

    def does_not_stop(self) -> None:
        """A restart waits for ever, until the daemon is killed."""
        self._stuck.touch()

    def calls(self, program: str) -> list[str]:
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(program)]
