# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of verify where no fabric file exists yet; the verdicts are in plugin_utils/verify/test_verify.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.action.verify import ActionModule
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import verify
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import acknowledging, fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import switch
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.switch_domain import ONE, Switches


def test_check_mode_without_a_fabric_file_warns_and_a_run_fails(
    tmp_path: Path, run_action: Callable[..., dict[str, Any]]
) -> None:
    given = {"fabric_file": str(tmp_path / "fabric.json"), "verdict_file": str(tmp_path / "verdict.json")}
    checked = run_action(ActionModule, check=True, **given)
    assert (checked["changed"], checked["verdict"]["ok"]) == (False, True)
    assert checked["text"] == checked["warnings"]
    assert "run discover and accept first" in checked["text"][0]
    assert (checked["changes"], checked["findings"]) == ([], [])
    with pytest.raises(AnsibleActionFail, match="does not exist; run discover"):
        run_action(ActionModule, **given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("variable", ["verdict_file", "junit_file"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fabric.json", "belongs to fabric_file; name another file"),
        ("link", "belongs to fabric_file; name another file"),
        ("both", "belongs to (junit|verdict)_file; name another file"),
        ("hosts.yml", "is not replaced, since no earlier run has written it; name another file, or remove it"),
        ("brackets", "is not replaced, since no earlier run has written it; name another file, or remove it"),
        ("zero", r"is not replaced \(it is not a regular file\); name another file"),
    ],
)
def test_no_output_replaces_an_input_another_output_or_a_file_of_somebody_else(
    tmp_path: Path, run_action: Callable[..., dict[str, Any]], variable: str, name: str, sentence: str
) -> None:
    fabric = tmp_path / "fabric.json"
    fabric.write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=2, split=())))
    (tmp_path / "hosts.yml").write_text("trays: {}")
    (tmp_path / "brackets").write_text("[" * 100_000)
    (tmp_path / "link").symlink_to("fabric.json")
    (tmp_path / "zero").symlink_to("/dev/zero")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "zero"}
    given = {word: str(tmp_path / "both") for word in ("verdict_file", "junit_file") if name == "both"}
    given[variable] = str(tmp_path / name)
    first = "verdict_file" if name == "both" else variable
    with pytest.raises(AnsibleActionFail, match=rf"^{first}: .*/{name} {sentence}"):
        run_action(ActionModule, fabric_file=str(fabric), quick=True, **given)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "zero"} == before


def test_the_outputs_of_an_earlier_run_and_empty_files_are_replaced(
    tmp_path: Path, run_action: Callable[..., dict[str, Any]]
) -> None:
    fabric, files = tmp_path / "fabric.json", [tmp_path / "verdict.json", tmp_path / "verdict.xml"]
    fabric.write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=2, split=())))
    for file in files:
        file.touch()
    given = dict(zip(("verdict_file", "junit_file"), map(str, files), strict=True))
    for _run in range(2):
        run_action(ActionModule, fabric_file=str(fabric), quick=True, **given)
        assert all(file.stat().st_size for file in files)


def test_named_partitions_are_compared_with_those_of_the_switches(
    tmp_path: Path, run_action: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Switches(tmp_path / "switches", fleets.fleet(racks=1, trays_per_rack=2))
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=2, trays=2, split=())))
    own = {"ansible_host": "127.0.0.1", "nvue_port": running.servers[0].server_port, "nvlink_switch_domain": "r01"}
    login = {"nvue_user": switch.USER, "nvue_password": switch.PASSWORD}
    hostvars = fabrics.HostVars({ONE: {**own, **login, "nvue_ca_file": str(tmp_path / "switches" / "ca.crt")}})

    def run(**options: Any) -> dict[str, Any]:
        given = {"fabric_file": str(tmp_path / "fabric.json"), "quick": True, **options}
        return run_action(ActionModule, task_vars={"hostvars": hostvars}, **given)

    named = {"r01": {"r01": {"trays": "r01t[01-02]", "resiliency": "adaptive_bandwidth"}}}
    try:
        # A shape has no mode and no limit, and after a tray was removed it has another size.
        for wanted, found in (({"r01": "2x9"}, 0), ({}, 0), ({**named, "r02": [7]}, 1)):
            texts = run(switches=[ONE], partitions=wanted)["text"]
            assert sum("and nvlink_partitions has adaptive_bandwidth" in text for text in texts) == found
        # One that fits no more stops neither the run nor another domain.
        wrong = {"r02": {"r02": {"trays": "r02t09"}}}
        said = list[str]()
        monkeypatch.setattr(Display, "warning", lambda _display, text: said.append(text))
        texts = run(switches=[ONE], partitions={**wrong, **named})["text"]
        assert sum("and nvlink_partitions has adaptive_bandwidth" in text for text in texts) == 1
        assert [text.partition(": ")[0] for text in said] == ["nvlink_partitions.r02.r02.trays"]
        # Without a switch nothing is compared.
        assert run(partitions=wrong)["verdict"]["layers"]["switch"].startswith("skipped")
    finally:
        running.stop()


def test_observations_must_be_a_variable_name(tmp_path: Path, run_action: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(AnsibleActionFail, match=r"observations: 'tray-facts' is not a variable name"):
        run_action(ActionModule, fabric_file=str(tmp_path / "fabric.json"), observations="tray-facts")


def test_trays_that_do_not_answer_for_the_same_reason_are_one_failure(
    tmp_path: Path, run_action: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=2, split=())))
    ssh = "Task failed: Failed to connect to the host via ssh: "
    registered = {
        name: {"unreachable": True, "msg": f"{ssh}{'** Banner ** ' * 30}\nroot@10.0.0.{number}: Permission denied.\r\n"}
        for number, name in enumerate(("r01t01", "r01t02"))
    }
    hostvars = fabrics.HostVars({name: {"seen": result} for name, result in registered.items()})
    found = run_action(
        ActionModule,
        task_vars={"hostvars": hostvars},
        fabric_file=str(tmp_path / "fabric.json"),
        trays=list(registered),
        observations="seen",
    )
    assert found["text"][0].startswith("2 trays in 1 clique, 2 queried, 0 answered: ")
    assert "error hardware tray_unreachable: r01t[01-02] cannot be reached (Permission denied)." in found["text"]


@pytest.mark.parametrize(
    ("trays", "until", "options", "errors"),
    [
        (["r01t01"], "2999-01-01T00:00:00Z", {}, ["r01t02"]),
        (["r01t01", "r01t02"], "2999-01-01T00:00:00Z", {}, []),
        (["r01t01"], "2026-01-01T00:00:00Z", {}, ["r01t01", "r01t02"]),
        # Whether a tray may return to service.
        (["r01t01"], "2999-01-01T00:00:00Z", {"acknowledged": False}, ["r01t01", "r01t02"]),
    ],
)
def test_failures_of_trays_in_repair_alone_are_notes_until_the_date(
    tmp_path: Path,
    run_action: Callable[..., dict[str, Any]],
    trays: list[str],
    until: str,
    options: dict[str, Any],
    errors: list[str],
) -> None:
    path = str(tmp_path / "fabric.json")
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=2, split=())))
    entry = {"reason": "RMA 4711", "who": "op", "until": until}
    acknowledging.change(path, None, trays, entry, "2026-01-01T00:00:00Z", dry=False)
    hostvars = fabrics.HostVars({tray: {"seen": {"unreachable": True, "msg": tray}} for tray in ("r01t01", "r01t02")})
    found = run_action(
        ActionModule,
        task_vars={"hostvars": hostvars},
        fabric_file=path,
        trays=["r01t01", "r01t02"],
        observations="seen",
        **options,
    )
    rows = found["verdict"]["failures"]
    assert ([row["tray"] for row in rows if row["severity"] == "error"], found["verdict"]["ok"]) == (errors, not errors)
    for row in rows:
        noted = row["message"].endswith(f" op has acknowledged it until {until} (RMA 4711).")
        assert noted is (row["tray"] not in errors)


def test_a_failure_of_several_trays_of_which_one_is_in_repair_stays() -> None:
    entry = {"reason": "x", "who": "op", "until": "2999-01-01T00:00:00Z"}
    evidence = Evidence(fabrics.fabric(racks=1, trays=2, split=()), acknowledged={"r01t01": entry})
    row = failure("imex_pair_disconnected", "imex", "They do not connect.", trays=["r01t01", "r01t02"])
    whole = failure("imex_not_ready", "imex", "It is degraded.", clique="r01")
    for one in (row, whole):
        before = dict(one)
        verify.acknowledge(evidence, one)
        assert one == before
