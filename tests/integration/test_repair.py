# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of docs/repair.md and docs/day-two/night.md: broken trays leave service, return as spares."""

from __future__ import annotations

import contextlib
import http.server
import json
import stat
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from . import hostile, pages
from .conftest import CHECKOUT, LAB, RunningLab, lab_command, running_lab
from .test_day_two import ENTRY, Site, killed, spares
from .test_lab import wait_until

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import imex

pytestmark = [pytest.mark.lab, pytest.mark.long]

PAGE = "docs/repair.md"
NIGHT = "docs/day-two/night.md"
SCENARIO = """\
suite: forky
slurm:
  conf: [SlurmdTimeout=20]
racks:
  - {name: r01, trays: 4, gpus: 1}
  - {name: r02, trays: 3, gpus: 1}
"""
# Resets when the test, in the place of the hardware, has made the GPU healthy.
SMI = """\
#!/bin/sh
test "$1" = --gpu-reset || exec nvidia-smi "$@"
touch /run/gpu-reset
for _ in $(seq 100); do test -e /run/gpu-reset || exit 0; sleep 0.2; done
exit 1
"""
POWER = """\
#!/bin/sh
{python} {lab} start --name {name} --timeout=0.1 "$1"
exit 0
"""
TOKEN = "swordfish-of-the-tickets"


class Tickets:
    """A site's ticket system: what it got, in its order. While it is broken it refuses all."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.broken = False
        tickets = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                tickets.tokens.add(str(self.headers.get("Authorization")))
                if not tickets.broken:
                    tickets.got.append(json.loads(data))
                self.send_response(500 if tickets.broken else 201)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/tickets"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def states(self, incident: str) -> list[str]:
        return [row["state"] for row in self.got if row["ticket_id"] == incident]


class Repaired(Site):
    """The site with the variables of docs/repair.md in group_vars, and what its ledger has."""

    tickets: Tickets

    @property
    def lines(self) -> list[dict[str, Any]]:
        path = self.folder / "fabric.repairs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def incident(self, tray: str) -> str:
        found = [line["incident"] for line in self.lines if line["subject"] == tray and line["step"] == "open"]
        return str(found[-1])

    def states(self, tray: str) -> dict[str, str]:
        """Step -> its last state, of the last incident of a tray."""
        name = self.incident(tray)
        lines = [line for line in self.lines if line["incident"] == name and line["state"] != "refused"]
        return {line["step"]: line["state"] for line in lines}

    def timeline(self, tray: str) -> dict[str, str]:
        name = self.incident(tray)
        return {f"{line['step']} {line['state']}": line["at"] for line in self.lines if line["incident"] == name}

    def timed(self, command: str) -> str:
        started = time.monotonic()
        output = self.type(command).stdout
        print(f"{time.monotonic() - started:.0f} s: {command}")
        return output


def write(racks: RunningLab, host: str, path: str, program: str) -> None:
    racks.exec(host, "sh", "-c", f"cat > {path} <<'END'\n{program}END\nchmod 755 {path}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repaired]:
    """Two racks with Slurm, IMEX and a spare in the first block."""
    folder, lab = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("lab")
    (lab / "racks.yml").write_text(SCENARIO)
    with running_lab(lab, lab / "racks.yml") as racks:
        lab_command("packages", "--name", racks.name, str(imex.packages()))
        site = Repaired(folder, racks)
        site.tickets = Tickets()
        power = folder / "power"
        power.write_text(POWER.format(python=sys.executable, lab=LAB, name=racks.name))
        power.chmod(0o755)
        write(racks, "r01t02", "/usr/local/bin/smi", SMI)
        variables = {
            "repair_actions": ["reset_gpu", "power_cycle"],
            "repair_power_command": [str(power), "{tray}"],
            "repair_ticket_url": site.tickets.url,
            "repair_ticket_token": TOKEN,
            "spares_active": 3,
            "repair_stop_file": str(folder / "stop"),
        }
        with (folder / "group_vars" / "all.yml").open("a") as file:
            file.write("".join(f"{name}: {json.dumps(value)}\n" for name, value in variables.items()))
        yield site
        site.tickets.server.shutdown()


def test_broken_trays_are_repaired(site: Repaired) -> None:
    verify, dry, apply, *_rest = pages.commands(PAGE)
    stop, go_on = "touch stop", "rm stop"
    site.type(pages.commands(ENTRY)[0])
    site.type("ansible-playbook rackscale.nvlink.drain --tags spares")
    assert spares(site) == {"r01": "r01t04"}
    # A person has drained a tray that is broken too.
    site.racks.set("r02t01", "gpu0.recovery_action=gpu_reset")
    site.racks.exec("ctl", "scontrol", "update", "nodename=r02t01", "state=drain", "reason=broken fan")
    site.racks.set("r01t02", "gpu0.recovery_action=gpu_reset")
    job = site.racks.exec("ctl", "sbatch", "--parsable", "-w", "r01t02", "--wrap=sleep 900").stdout.strip()
    wait_until(lambda: "r01t02" in site.racks.exec("ctl", "squeue", "-h", "-tR").stdout, "the job runs", 60)
    site.timed(verify)

    before = site.snapshot()
    output = site.timed(dry)
    parts = ("(r01t02): reset_gpu for recovery_action", "taken it out of service (broken fan)", "-e repair_apply=true.")
    for part in parts:
        assert part in output
    assert (site.snapshot(), site.tickets.got, site.lines) == (before, [], [])

    # Killed while the evidence is read: the next run goes on. The job is not killed, so no action is done.
    killed(site, apply, until=lambda: any(line["step"] == "evidence" for line in site.lines))
    assert site.states("r01t02")["evidence"] == "begin"
    output = site.timed(apply)
    incident = site.incident("r01t02")
    assert site.drained() == {"r01t02": f"nvlink: repair {incident}", "r02t01": "broken fan"}
    for part in ("waits for the jobs on it", "r01t04 is in service in place of a broken tray, with IMEX READY"):
        assert part in output
    assert job in site.racks.exec("ctl", "squeue", "-h", "-tR").stdout
    assert [line["state"] for line in site.lines if line["step"] == "drain"] == ["begin", "done"]
    assert spares(site) == {}, "the spare is in service"
    assert site.tickets.states(incident) == ["open"]
    assert site.tickets.tokens == {f"Bearer {TOKEN}"}
    assert TOKEN not in site.reported
    folder = site.folder / "repairs" / incident
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "<gpu_recovery_action>" in (folder / "nvidia-smi.xml").read_text()
    kept = json.loads((folder / "index.json").read_text())
    assert kept["tray"] == "r01t02"
    assert {"nvidia-smi.xml", "imex-state.txt", "links.json", "jobs-1.txt"} <= {path.name for path in folder.iterdir()}

    # While the file exists, nothing is done.
    site.racks.exec("ctl", "scancel", job)
    wait_until(lambda: not site.racks.exec("ctl", "squeue", "-h").stdout, "the job has ended", 60)
    site.type(stop)
    known = site.lines
    site.type(apply)
    assert [line for line in site.lines[len(known) :] if line["state"] != "refused"] == []
    site.type(go_on)

    site.racks.exec("ctl", "sbatch", "-w", "r01t04", "--wrap=sleep 900")
    with healing(site, "r01t02"):
        site.timed(f"{apply} -e fabric_facts_nvidia_smi=/usr/local/bin/smi")
    assert set(site.states("r01t02").values()) == {"done"}, site.states("r01t02")
    assert site.tickets.states(incident) == ["open", "close"]
    assert site.drained() == {"r02t01": "broken fan"}
    assert spares(site) == {"r01": "r01t02"}, "the repaired tray is the spare"
    print(site.timeline("r01t02"))
    # A closed incident is not opened again by the verdict of that time.
    known = site.lines
    site.type(apply)
    assert [line for line in site.lines[len(known) :] if line["state"] != "refused"] == []


@contextlib.contextmanager
def healing(site: Repaired, tray: str) -> Iterator[None]:
    """While it lasts, a reset makes the GPUs of the tray healthy."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            if site.racks.exec(tray, "test", "-e", "/run/gpu-reset", check=False).returncode == 0:
                site.racks.set(tray, "gpu0.recovery_action=none")
                site.racks.exec(tray, "rm", "/run/gpu-reset")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_tray_without_power_returns(site: Repaired) -> None:
    verify, _dry, apply, *_rest = pages.commands(PAGE)
    site.racks.stop("r01t03", "--keep-disk")
    # It starts when the spare is in service.
    site.racks.exec("ctl", "sbatch", "-w", "r01t02", "--wrap=sleep 900")
    site.tickets.broken = True
    wait_until(
        lambda: "DOWN" in site.racks.exec("ctl", "scontrol", "show", "node", "r01t03").stdout, "Slurm misses it", 90
    )
    site.timed(verify)
    # The ticket system fails, and the tray returns nevertheless; the next run sends what is missing.
    output = site.fails(apply)
    assert "ticket failed" in output
    site.tickets.broken = False
    site.timed(verify)
    site.timed(apply)
    incident = site.incident("r01t03")
    assert site.tickets.states(incident) == ["open", "close"]
    missing = json.loads((site.folder / "repairs" / incident / "index.json").read_text())["missing"]
    assert missing["nvidia-smi.xml"] == "the tray is unreachable"
    assert set(site.states("r01t03").values()) == {"done"}
    assert site.drained() == {"r02t01": "broken fan"}
    assert spares(site) == {"r01": "r01t03"}
    print(site.timeline("r01t03"))


def test_a_person_replaces_a_tray_that_died_at_night(site: Repaired) -> None:
    explain, spare, until, verify, resume, commit, reserve, _again = pages.commands(NIGHT)
    if not (site.folder / "fabric.json").exists():
        site.type(pages.commands(ENTRY)[0])
        site.type(reserve)
    site.racks.set("r02t01", "gpu0.recovery_action=none")
    drained = site.drained()
    site.type("git add -A && git commit -qm 'The fabric'")
    site.racks.stop("r01t02")
    site.reported = ""
    wait_until(
        lambda: "DOWN" in site.racks.exec("ctl", "scontrol", "show", "node", "r01t02").stdout, "Slurm misses it", 90
    )
    site.timed(explain)
    # It needs the spare.
    job = site.racks.exec(
        "ctl", "sbatch", "--parsable", "-N3", "-wr01t[01,03-04]", "--wrap=srun sleep 900"
    ).stdout.strip()
    for command in (spare, until, verify):
        site.timed(command)
    assert job in site.racks.exec("ctl", "squeue", "-h", "-tR", "-o%i").stdout
    assert (site.drained()["r01t02"], spares(site)) == ("nvlink: broken", {})
    before = site.fabric["trays"]["r01t02"]
    site.start("r01t02")
    site.racks.set("r01t02", "gpu0.gpu_uuid=GPU-11111111-0000-4000-8000-000000000000")
    for command in (resume, commit, reserve, explain):
        site.timed(command)
    assert (spares(site), site.drained()) == ({"r01": "r01t02"}, drained)
    after = site.fabric["trays"]["r01t02"]
    assert after["gpu_uuids"] != before["gpu_uuids"]
    assert (after["clique"], after["imex_address"]) == (before["clique"], before["imex_address"])
    assert job in site.racks.exec("ctl", "squeue", "-h", "-tR", "-o%i").stdout, "the job has run on"
    assert site.missing(NIGHT) == [], site.reported


def test_a_hostile_tray_gets_no_other_one_drained(site: Repaired) -> None:
    verify, _dry, apply, *_rest = pages.commands(PAGE)
    other = "r02t03"
    finding = {"code": "gpu_lost", "severity": "error", "tray": other, "trays": [other], "gpu": 0, "message": other}
    answer = {
        "findings": [finding],
        "ansible_facts": {"repair_plan": {"trays": [other]}, "repair_apply": True},
        "outputs": [{"name": "../../../evil", "problem": None, "parts": ["\x1b[2J"]}],
    }
    python = site.folder / "python"
    hostile.write_python(python, answer)
    site.racks.exec(
        "r02t02",
        "sh",
        "-c",
        f"cat > /usr/local/bin/hostile <<'E'\n{python.read_text()}E\nchmod 755 /usr/local/bin/hostile",
    )
    (site.folder / "host_vars").mkdir(exist_ok=True)
    (site.folder / "host_vars" / "r02t02.yml").write_text("ansible_python_interpreter: /usr/local/bin/hostile\n")
    started = time.monotonic()
    site.timed(verify)
    site.type(apply)
    assert time.monotonic() - started < 120
    assert other not in site.drained()
    assert set(site.drained()) <= {"r02t01", "r02t02"}
    assert not [line for line in site.lines if line["subject"] == other]
