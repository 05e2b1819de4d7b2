# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""With a stand-in of ssh whose behaviour the host name selects; the integration tests use real hosts."""

from __future__ import annotations

import base64
import contextlib
import pickle
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import reading, ssh
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets, standin_text
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays
from ClusterShell import __version__ as clustershell

NOW = "2026-11-21T05:00:00Z"
# The last two of its arguments are the host and the command; with -N the last is the gateway.
SSH = """#!/bin/sh
for command in "$@"; do [ "$last" = -S ] && socket=$command; host=$last; last=$command; done
case " $* " in *" -N "*)
  echo "$$ $*" >> "$SCRATCH/gateways"
  case $last in
  gateway-refused) echo "ssh: connect to host $last port 22: Connection refused" >&2; exit 255 ;;
  gateway-hangs) exec sleep 60 ;;
  gateway-dies) touch "$socket"; exec sleep 1 ;;
  esac
  touch "$socket"; exec sleep 60 ;;
esac
case $command in
*ClusterShell.__version__*) echo "$CLUSTERSHELL"; exit ;;
*ClusterShell.Gateway*) cat "$SCRATCH/pickled"; exec sleep 1 ;;
esac
echo "$host" >> "$SCRATCH/calls"
case $host in
driver-*) NVLINK_STANDIN_GPUS=$SCRATCH/$host exec /bin/sh -c "$command" ;;
tray*) exec /bin/sh -c "$command" ;;
refused*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
slow*) echo "ssh: connect to host $host port 22: Connection timed out" >&2; exit 255 ;;
denied*) echo "root@$host: Permission denied (publickey)." >&2; exit 255 ;;
unknownkey*) echo "No ED25519 host key is known for $host and you have requested strict checking." >&2
  echo "Host key verification failed." >&2; exit 255 ;;
unasked*) echo "Host key verification failed." >&2; exit 255 ;;
attempts*) echo "Received disconnect from 10.0.0.6 port 22:2: Too many authentication failures" >&2
  echo "Disconnected from 10.0.0.6 port 22" >&2; exit 255 ;;
odd*) printf '{{ 7 * 7 }}\\033[31m something new\\n' >&2; exit 255 ;;
mute*) exit 255 ;;
unforwarded*) echo "mux_client_request_stdio_fwd: session request failed: Session open refused by peer" >&2
  echo "kex_exchange_identification: Connection closed by remote host" >&2; exit 255 ;;
bare*) echo "sh: 1: exec: python3: not found" >&2; exit 127 ;;
garbage*) echo 'nvlink-facts-2:{"attached": tru:nvlink-facts-end' ;;
flood*) exec cat /dev/zero ;;
angry*) exec cat /dev/zero >&2 ;;
hang*) exec sleep 60 ;;
cutoff*) sleep 2; exit 255 ;;
pickled*) exec cat "$SCRATCH/pickled" ;;
half*) echo 'nvlink-facts-2:{"ansible_facts": {"nvlink_fabric": {"chassis_serial": "\\ud800"}}}:nvlink-facts-end' ;;
password*) read -r answer < /dev/tty || { echo "no terminal to prompt at" >&2; exit 255; } ;;
arguments*) echo "$@" > "$SCRATCH/arguments"; exit 255 ;;
esac
"""

Observe = Callable[..., dict[str, Observation]]


class Recorder:
    """Keeps the messages of a run."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.warned: list[str] = []

    def v(self, msg: str) -> None:
        self.messages.append(msg)

    def warning(self, msg: str) -> None:
        self.warned.append(msg)


@pytest.fixture
def observe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observe:
    """Observe hosts with more options of the source; tray -> its observation."""
    for name, text in {
        "ssh": SSH,
        "nvidia-smi": f"#!/bin/sh\nexec cat '{tmp_path}/answer.xml'\n",
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "answer.xml").write_text(standin_text.smi_text(next(iter(fleets.fleet().values()))))
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    own = {"ssh": str(tmp_path / "ssh"), "python": sys.executable, "backend": "nvidia_smi"}
    own["nvidia_smi"] = str(tmp_path / "nvidia-smi")

    def run(
        hosts: Any, known: dict[str, str] | None = None, reporter: sources.Reporter | None = None, **options: Any
    ) -> dict[str, Observation]:
        given = {**own, "command_timeout": 30, **({"hosts": hosts} if hosts else {}), **options}
        return {row.tray: row for row in ssh.discover(given, NOW, known or {}, reporter or Display()).observations}

    return run


@pytest.mark.core
def test_trays_are_read_and_report_their_clique(observe: Observe) -> None:
    facts = next(iter(fleets.fleet().values()))
    observed = observe("tray[1-5]", fanout=2)
    assert list(observed) == ["tray1", "tray2", "tray3", "tray4", "tray5"]
    for row in observed.values():
        assert (row.source, row.reachable, row.problem) == ("ssh", True, "")
        assert row.identity == (facts["cluster_uuid"], facts["clique_id"])
        assert len(row.gpu_uuids) == facts["gpu_count"]


@pytest.fixture
def drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hosts driver-FAULT have NVML with that fault, or with none."""
    for fault in (*standin_text.NVML_FAULTS, None):
        text = standin_text.standin_text(next(iter(fleets.fleet().values())), fault)
        (tmp_path / f"driver-{fault or 'none'}").write_text(text)
    (tmp_path / nvml.LIBRARY).symlink_to(trays.library())
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


@pytest.mark.usefixtures("drivers")
def test_a_faulty_driver_costs_no_tray_its_facts(observe: Observe, tmp_path: Path) -> None:
    hosts = [f"driver-{fault or 'none'}" for fault in (*standin_text.NVML_FAULTS, None)]
    observed = observe(hosts, backend="auto", timeout=5)
    assert sorted((tmp_path / "calls").read_text().split()) == sorted(hosts)
    assert {host for host in hosts if observed[host].reachable} == set(hosts)
    # After a hang, nvidia-smi has a second or so, which may be too short on a busy machine.
    without = {host for host in hosts if not observed[host].gpu_uuids and "hang" not in host}
    assert without == {"driver-no_gpu", "driver-handle_refused"}


def test_trays_of_the_fabric_file_are_reached_at_their_addresses(observe: Observe) -> None:
    observed = observe(None, known={"r01t01": "tray1", "r01t02": "refused1"})
    assert {name: row.reachable for name, row in observed.items()} == {"r01t01": True, "r01t02": False}
    assert list(observe(["r01t01", "tray2"], known={"r01t01": "tray1", "r01t02": "refused1"})) == ["r01t01", "tray2"]


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("refused", "port 22: Connection refused"),
        ("slow", "port 22: Connection timed out"),
        ("denied", "Permission denied (publickey)"),
        ("unknownkey", "No ED25519 host key is known"),
        ("unasked", "Host key verification failed"),
        ("attempts", "Received disconnect:2: Too many authentication failures"),
        ("mute", "ssh failed without a message"),
        ("bare", f"no Python at {sys.executable}"),
        ("garbage", "it printed no facts (exit status 0)"),
        ("flood", "it prints more than 1024 KiB"),
        ("password", "no terminal to prompt at"),
    ],
)
def test_a_tray_without_facts_is_read_once_and_has_a_reason(
    observe: Observe, tmp_path: Path, host: str, problem: str
) -> None:
    observed = observe([host, "tray1"])
    assert sorted((tmp_path / "calls").read_text().split()) == sorted([host, "tray1"])
    assert (observed[host].reachable, observed[host].problem) == (False, problem)
    assert observed["tray1"].reachable


def test_an_answer_passes_the_schema_of_the_module(observe: Observe) -> None:
    half = observe("half1,tray1")["half1"]
    assert (half.reachable, half.problem) == (False, "the task that reads its facts returned none")
    assert [row["code"] for row in half.findings] == ["tray_answer_invalid"]


def test_a_hostile_reason_is_sanitized(observe: Observe) -> None:
    problem = observe("odd")["odd"].problem
    assert "something new" in problem
    assert "{{" not in problem
    assert problem.isprintable()


def is_alive(pid: str) -> bool:
    """Whether a process runs; one that has ended but was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gateways(scratch: Path) -> list[list[str]]:
    """The pid and the arguments of each ssh to a gateway."""
    file = scratch / "gateways"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.core
def test_trays_that_hang_or_flood_do_not_delay_others(observe: Observe, tmp_path: Path) -> None:
    """Nor do gateways that hang or refuse: each tray behind one has that reason."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    jump = {"tray[2-4]": "gateway-hangs", "tray[5-7]": "gateway-refused"}
    hosts = "hang[1-3],angry1,flood[1-5],tray[1-7]"
    observed = observe(hosts, jump=jump, connect_timeout=1, command_timeout=4, timeout=3)
    late = "no response within 5 s"
    whys = {"tray1": "", **dict.fromkeys(("hang1", "hang2", "hang3", "angry1"), late)}
    whys |= {f"flood{number}": "it prints more than 1024 KiB" for number in range(1, 6)}
    for number in range(2, 8):
        gateway, why = ("hangs", late) if number < 5 else ("refused", "port 22: Connection refused")
        whys[f"tray{number}"] = f"its gateway gateway-{gateway} cannot be used ({why})"
    assert {name: row.problem for name, row in observed.items()} == whys
    assert not {f"tray{number}" for number in range(2, 8)} & {*(tmp_path / "calls").read_text().split()}
    assert not any(is_alive(words[0]) for words in gateways(tmp_path))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_ssh_runs_without_prompts(observe: Observe, tmp_path: Path) -> None:
    observe("arguments", user="nobody", port=2222, ssh_options=["-o", "BatchMode=no", "-i", "a b"], connect_timeout=7)
    words = (tmp_path / "arguments").read_text().split()
    assert words.index("-oBatchMode=yes") < words.index("BatchMode=no")
    for word in ("-T", "-oConnectTimeout=7", "-oPort=2222", "nobody"):
        assert word in words


@pytest.mark.core
def test_trays_behind_a_gateway_share_one_connection_to_it(observe: Observe, tmp_path: Path) -> None:
    observed = observe("tray[1-9],arguments", jump="admin@gw1:2222", ssh_options=["-i", "a b"], port=23)
    assert all(observed[f"tray{number}"].reachable for number in range(1, 10))
    ((pid, *words),) = gateways(tmp_path)
    assert words[-6:] == ["-l", "admin", "-p", "2222", "--", "gw1"]
    for word in ("-oBatchMode=yes", "-oConnectTimeout=10", "-N", "-i"):
        assert word in words
    socket = words[words.index("-S") + 1]
    arguments = (tmp_path / "arguments").read_text()
    assert f"-S {socket} -oProxyCommand=false -W '[%h]:%p' -- gateway -oProxyUseFdpass=no" in arguments
    assert "-oPort=23" in arguments.split()
    assert "-oPort=23" not in words
    assert not is_alive(pid)
    assert not Path(socket).parent.exists()


def test_trays_have_the_gateways_of_their_racks(observe: Observe, tmp_path: Path) -> None:
    recorder = Recorder()
    jump = {"tray[1-2]": "gw1", "tray3,unforwarded1": "gw2", "tray[7-8]": "gw3"}
    observed = observe("tray[1-4],unforwarded1", jump=jump, reporter=recorder)
    assert observed["unforwarded1"].problem == "its gateway gw2 cannot connect to it"
    assert [name for name, row in observed.items() if row.reachable] == ["tray1", "tray2", "tray3", "tray4"]
    assert sorted(words[-1] for words in gateways(tmp_path)) == ["gw1", "gw2"]
    assert recorder.warned[0] == "ssh: jump has 'tray[7-8]', and none of these trays is read"


def test_a_gateway_that_dies_during_the_run_is_the_reason(observe: Observe) -> None:
    observed = observe("cutoff1,tray1", jump={"cutoff1": "gateway-dies"}, connect_timeout=5)
    assert observed["cutoff1"].problem == "its gateway gateway-dies closed the connection"
    assert observed["tray1"].reachable


def test_the_connection_to_a_gateway_ends_after_an_error(
    observe: Observe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading.probe, "answer_in", lambda output: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        observe("tray1,hang1", jump="gw1")
    assert [is_alive(words[0]) for words in gateways(tmp_path)] == [False]


def test_the_connection_to_a_gateway_ends_with_a_killed_controller(tmp_path: Path, observe: Observe) -> None:
    program = (
        "import sys; from ansible.utils.display import Display;"
        "from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ssh;"
        "ssh.discover({'hosts': 'hang1', 'ssh': sys.argv[1], 'jump': 'gw1'}, '2026-11-21T05:00:00Z', {}, Display())"
    )
    controller = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "ssh")])
    wait_for((tmp_path / "calls").exists)
    controller.kill()
    controller.wait()
    ((pid, *words),) = gateways(tmp_path)
    wait_for(lambda: not is_alive(pid))
    shutil.rmtree(Path(words[words.index("-S") + 1]).parent)


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once a condition holds; an error after 60 seconds."""
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends, "the ssh of the source neither started nor ended"
        time.sleep(0.01)


class RunsOnTheController:
    """Pickled, it makes the file of its name where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._file,)


@pytest.mark.parametrize("option", ["topology", "jump"])
def test_what_a_gateway_or_a_tray_sends_is_never_run(
    observe: Observe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """ClusterShell's tree mode unpickles such a message of a gateway."""
    payload = base64.b64encode(pickle.dumps(RunsOnTheController(tmp_path / "ran"))).decode()
    message = f'<message type="SER" msgid="1" srcid="0" nodes="gw1">{payload}</message>'
    (tmp_path / "pickled").write_text(f'<?xml version="1.0"?><channel version="{clustershell}">{message}')
    (tmp_path / "topology.conf").write_text(f"[routes]\n{socket.gethostname().partition('.')[0]}: gw1\ngw1: pickled1\n")
    monkeypatch.setenv("CLUSTERSHELL", clustershell)
    given = {"topology": str(tmp_path / "topology.conf"), "jump": "gw1"}[option]
    outcome = ""
    with contextlib.suppress(SourceError):
        outcome = observe("pickled1", connect_timeout=1, **{option: given})["pickled1"].problem
    assert outcome == {"topology": "", "jump": "it printed no facts (exit status 0)"}[option]
    assert not (tmp_path / "ran").exists()


def test_progress_and_the_trays_without_facts_by_reason_are_reported(
    observe: Observe, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(reading, "_SECONDS_BETWEEN_PROGRESS", 0.0)
    observe("refused1,mute1,tray1", reporter=recorder, fanout=1)
    lines = recorder.messages
    assert [line.partition(" of 3 trays done")[0] for line in lines] == ["ssh: 1", "ssh: 2", "ssh: 3", "ssh: 3"]
    assert lines[-1] == "ssh: 3 of 3 trays done, 1 answered"
    assert recorder.warned == [
        "ssh: 2 of 3 trays returned no facts (1 tray (mute1): ssh failed without a message;"
        " 1 tray (refused1): port 22: Connection refused)"
    ]


RANGES = "which is not a node set; write ranges such as 01-18, of at most 20 digits"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hosts": None}, "hosts is missing; name the trays, or add fabric_file to the sources"),
        ({"hosts": 7}, "hosts has 7, write names such as r01t"),
        ({"hosts": []}, "hosts names no tray"),
        ({"hosts": "r01t["}, "hosts has 'r01t\\[', which is not a node set"),
        ({"hosts": "-oProxyCommand=x"}, "hosts has '-oProxyCommand=x', which is not a valid tray name"),
        ({"host": "a"}, "'host' is not a known option; did you mean hosts?"),
        ({"port": 0}, "port is 0, use an integer from 1 to 65535"),
        ({"command_timeout": 20}, "command_timeout is 20, use more than timeout, 20"),
        ({"timeout": "x"}, "timeout is 'x', use a number"),
        ({"backend": "smi"}, 'backend is "smi", use one of auto, nvml, nvidia_smi'),
        ({"ssh": "/no/ssh"}, "ssh '/no/ssh' is not a program on this controller"),
        ({"ssh_options": "-o 'x"}, "ssh_options is .*, which cannot be split"),
        ({"topology": "/etc/topology.conf"}, "'topology' is not a known option"),
        ({"jump": "-oProxyCommand=x"}, "jump has '-oProxyCommand=x', which is not a gateway"),
        ({"jump": "a@-Elog"}, "jump has 'a@-Elog', which is not a gateway"),
        ({"jump": "-E@gw1"}, "jump has '-E@gw1', which is not a gateway"),
        ({"jump": "gw1,gw2"}, "jump has 'gw1,gw2', which is not a gateway; write one as in admin@gw1:22"),
        ({"jump": ""}, "jump has '', which is not a gateway; write one as in admin@gw1:22"),
        ({"jump": {"tray1": ""}}, "jump has '', which is not a gateway"),
        ({"jump": "gw1:65536"}, "jump has 'gw1:65536', which is not a gateway"),
        ({"jump": {"tray[1": "gw1"}}, "jump has 'tray\\[1', which is not a node set"),
        ({"jump": {"tray[1-2]": "gw1", "tray2": "gw2"}}, "jump has two gateways for tray2; name each tray once"),
        ({"hosts": "a[1-9999]b[1-9999]"}, "hosts has 'a.*', which is more than 500000 trays; name fewer"),
        ({"hosts": "b[1-400000000],a[399999999-1]"}, "hosts has 'b.*', which is more than 500000 trays; name fewer"),
        ({"hosts": "a[1 - 400000000]"}, "hosts has 'a.*', which is more than 500000 trays; name fewer"),
        ({"hosts": f"a[1-{'9' * 40}]"}, f"hosts has 'a.*, {RANGES}"),
        ({"hosts": f"a[{'1'.zfill(31)}-{'400000000'.zfill(31)}]"}, f"hosts has 'a.*, {RANGES}"),
        ({"hosts": "a[1-400_000_000]"}, f"hosts has 'a.*, {RANGES}"),
        ({"hosts": "a[-400000000--1]"}, f"hosts has 'a.*, {RANGES}"),
        (
            {"hosts": ",".join(f"n{number}" for number in range(600_001))},
            "hosts has 'n0.*, which has more than 1048576 ",
        ),
        ({"hosts": f"{'a' * 9999}[1-9]"}, "hosts has 'a.*, which is not a valid tray name"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SourceError, match=f"^ssh: {sentence}") as raised:
        ssh.discover({"hosts": "tray1", "ssh": "/bin/true", **options}, NOW, {}, Display())
    assert not str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)


def test_a_program_that_cannot_be_started_is_one_sentence(tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    program.write_bytes(b"\0")
    program.chmod(0o755)
    expected = r"^ssh: cannot start ssh \(Exec format error\); correct the option ssh, or lower fanout$"
    with pytest.raises(SourceError, match=expected):
        ssh.discover({"hosts": "tray1", "ssh": str(program)}, NOW, {}, Display())
