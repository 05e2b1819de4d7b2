# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Alerts start verify and repair, with the ansible-rulebook of PyPI and Debian's Alertmanager."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, journal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import ledger
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from nvlab import tools
from nvlab.trees import SHARED, VIEWERS

from . import pages
from .commands import LOCAL, environment, unreachable
from .conftest import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "tests" / "tools"))
from make_venv import find_uv

PAGE = "docs/monitoring.md"
TOKEN = "a-token"
# No event that starts a run, whoever sends it.
IGNORED = (
    *(b"[]", b'"firing"', b"null", b'{"status": ["firing"]}', b'{"status": {"status": "firing"}}'),
    *(b'{"status": "resolved"}', b'{"nvlink_alerts": "firing"}', b'{"payload": {"status": "firing"}}'),
)


@pytest.fixture(scope="module")
def rulebook() -> list[str]:
    """The command of ansible-rulebook, in the environment of the group `events` of uv.lock."""
    tools.ensure_tools({"java": "default-jre-headless"})
    venv = CHECKOUT / "build" / "venv-events"
    own = {"UV_PROJECT_ENVIRONMENT": str(venv), "UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1"}
    sync = [str(find_uv()), "sync", "--quiet", "--frozen", "--only-group", "events", "--python", sys.executable]
    subprocess.run(sync, cwd=CHECKOUT, env={**os.environ, **own}, check=True)
    return [str(venv / "bin" / "ansible-rulebook")]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder of a site: one rack of four trays, none of which answers."""
    fabric = fabrics.fabric(racks=1, trays=4, split=())
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabric))
    inventory = tmp_path / "inventory"
    inventory.mkdir()
    trays = dict.fromkeys(fabric.trays, unreachable(tmp_path))
    (inventory / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"hosts": {"localhost": LOCAL}, "children": {"trays": {"hosts": trays}}}})
    )
    source = {"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"]}
    (inventory / "cluster.nvlink.yml").write_text(
        yaml.safe_dump({**source, "fabric_file": str(tmp_path / "fabric.json")})
    )
    return tmp_path


@contextlib.contextmanager
def running(command: list[str], log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that ends with the block."""
    with log.open("wb") as output:
        program = subprocess.Popen(
            command, cwd=log.parent, env=environment(**more), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield program
    finally:
        program.terminate()
        program.wait(60)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait(what: str, log: Path, is_so: Callable[[], Any], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if is_so():
                return
        time.sleep(0.3)
    raise AssertionError(f"not after {seconds:.0f} s: {what}\n{log.read_text(errors='replace')[-6000:]}")


def post(url: str, body: bytes, token: str = TOKEN) -> int:
    """The status of a POST of JSON."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def replaced(text: str, **values: str) -> str:
    """A file of the page with values of the test; each must occur in it."""
    for old, new in values.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def alert(number: int) -> dict[str, Any]:
    """An alert of rack r01, whose text is a template that changes a file."""
    labels = {"alertname": "NvlinkLayersDisagree", "domain": "r01", "gpu": str(number)}
    evil = "{{ lookup('ansible.builtin.pipe', 'touch " + f"{SHARED}/evil" + "') }}"
    return {"labels": {**labels, "instance": evil}, "annotations": {"summary": evil}}


@pytest.mark.lab
@pytest.mark.long
def test_40_alerts_of_a_rack_start_one_run_of_verify_and_repair(site: Path, rulebook: list[str]) -> None:
    files = pages.files(PAGE)
    port, manager = free_port(), free_port()
    settings = replaced(files["events.yml"], **{"/srv/cluster": str(site), "REPLACE_WITH_A_SECRET": TOKEN})
    settings = replaced(settings, **{"apply: false": "apply: true"})
    (site / "events.yml").write_text(f"{settings}nvlink_events_port: {port}\n")
    (site / "token").write_text(TOKEN)
    route = replaced(
        files["alertmanager.yml"], **{"127.0.0.1:5000": f"127.0.0.1:{port}", "group_wait: 30s": "group_wait: 2s"}
    )
    (site / "alertmanager.yml").write_text(
        replaced(route, **{"/etc/alertmanager/nvlink-events.token": f"{SHARED}/token"})
    )
    (line,) = re.findall(r"^ExecStart=\S+ (.*)", (CHECKOUT / PAGE).read_text(), re.MULTILINE)
    options = replaced(line, **{"/srv/cluster": str(site)}).split()
    alertmanager = VIEWERS.command(
        [
            *(
                "prometheus-alertmanager",
                f"--config.file={SHARED}/alertmanager.yml",
                "--storage.path=/tmp/alertmanager",
            ),
            *(f"--web.listen-address=127.0.0.1:{manager}", "--cluster.listen-address="),
        ],
        site,
    )
    log, hook = site / "rulebook.log", f"http://127.0.0.1:{port}/alerts"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (
        running(alertmanager, site / "alertmanager.log"),
        running([*rulebook, *options], log, PATH=path),
    ):
        wait("ansible-rulebook listens", log, lambda: post(hook, b"{}") == 200)
        assert post(hook, b'{"status": "firing"}', "another-token") == 401
        assert {post(hook, body) for body in IGNORED} == {200}
        assert post(hook, b"{") == 400
        ready = f"http://127.0.0.1:{manager}/-/ready"
        wait("Alertmanager is ready", site / "alertmanager.log", lambda: urllib.request.urlopen(ready, timeout=5))
        began = time.monotonic()
        alerts = json.dumps([alert(number) for number in range(40)]).encode()
        assert post(f"http://127.0.0.1:{manager}/api/v2/alerts", alerts) == 200
        wait("repair has ended", log, lambda: log.read_text().count("PLAY RECAP") == 2)
        print(f"from 40 alerts to the end of repair: {time.monotonic() - began:.1f} s")
        # As long as another notification would have needed.
        time.sleep(11)
    output = log.read_text()
    assert output.count("PLAY RECAP") == 2, output
    assert output.index("Compare all layers with the fabric file") < output.index("Plan the repair"), output
    assert not list(site.rglob("evil"))
    verdict = json.loads((site / "verdict.json").read_text())
    assert {row["code"] for row in verdict["failures"]} == {"tray_unreachable"}
    # Half of the rack is bad: one event of the rack, and no tray is drained.
    (incident,) = ledger.incidents(journal.read(ledger.path(str(site / "fabric.json"), None))).values()
    assert (incident.subject, incident.event, "drain" in incident.steps) == ("r01", True, False)
