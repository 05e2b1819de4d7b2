# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is kept of the answer and of the facts of a host that may lie."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils._internal import _messages
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import survey
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_facts import RETURN
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_step import RETURN as SLURM_STEP
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import MAX_MESSAGE, worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from hypothesis import given
from hypothesis import strategies as st

SCHEMA = schemas.of_return(RETURN)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("facts", "foreign"),
    [
        ({"imex_tls_files": {}, "nvlink_imex_address": "198.51.100.1"}, ["imex_tls_files", "nvlink_imex_address"]),
        ({"nvlink_anything": 1}, ["nvlink_anything"]),
        ({"rollout_selected": {}, "_slurm_key": {}}, ["_slurm_key", "rollout_selected"]),
        ({name: {} for name in trust.OWN_FACTS}, []),
        # Facts of setup, without their prefix, and of the site's own modules.
        ({"distribution": "Debian", "local": {}, "nodename": "x", "services": {}, "site_rack": 3}, []),
        ("no mapping", []),
        (None, []),
    ],
)
def test_variables_of_the_collection_among_facts_are_foreign(facts: Any, foreign: list[str]) -> None:
    assert trust.foreign_variables(facts) == foreign


def test_what_fabric_facts_returns_passes_its_schema_with_its_findings_worded(monkeypatch: pytest.MonkeyPatch) -> None:
    # This machine may run a lab, whose nvidia-imex is a process here, too.
    monkeypatch.setattr(survey, "processes", lambda _wanted: [])
    answer = json.loads(json.dumps(subsets.gather(subsets.Options(gather_subset=["all"]))))
    facts = {
        name: {**part, "findings": list(map(worded, part["findings"]))}
        for name, part in answer["ansible_facts"].items()
    }
    kept = trust.accepted("r01t01", answer, SCHEMA)
    assert kept == {**answer, "findings": list(map(worded, answer["findings"])), "ansible_facts": facts}
    assert any(row["gpu"] is None for row in kept["findings"] if row["part"] == "gpu")
    assert trust.accepted("r01t01", kept, SCHEMA) == kept


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"ansible_facts": {"fabric_sources": []}}, "ansible_facts.fabric_sources"),
        ({"ansible_facts": {"nvlink_fabric": {"gpu_count": -1}}}, "ansible_facts.nvlink_fabric"),
        ({"ansible_facts": {"nvlink_fabric": {"gpu_count": 4.0}}}, "ansible_facts.nvlink_fabric"),
        ({"ansible_facts": {"nvlink_fabric": {"chassis_serial": "\ud800"}}}, "ansible_facts.nvlink_fabric"),
        ({"ansible_facts": {"nvlink_fabric": {"unknown": 1}}}, "ansible_facts.nvlink_fabric"),
        ({"ansible_facts": [1]}, "ansible_facts"),
        ({"ansible_stats": {"data": {"passed": 18}}}, "ansible_stats"),
        ({"add_host": {"host_name": "x"}}, "add_host"),
        ({"changes": ["x" * 100_000]}, "changes"),
        ({"findings": [{"code": "BAD", "severity": "error", "message": "x"}]}, "findings"),
        ({"findings": {}}, "findings"),
        ({"findings": ["gpu_lost"]}, "findings"),
        ({"findings": [{"code": "gpu_lost", "gpu": "{0.__class__}"}]}, "findings"),
        ({"findings": [{"code": "gpu_lost", "case": ["lost"]}]}, "findings"),
        ({"findings": [{"code": "gpu_lost", "case": "smi_lost", "values": {"which": "x" * 5000}}]}, "findings"),
        ({"findings": [{"code": "gpu_lost", "case": "smi_lost", "values": {"which": {"x": 1}}}]}, "findings"),
        ({"ansible_facts": {"nvlink_fabric": {"findings": [{"code": 1}]}}}, "ansible_facts.nvlink_fabric"),
        ({"msg": 3}, "msg"),
    ],
)
def test_what_a_module_does_not_document_is_dropped_with_a_finding(more: dict[str, Any], named: str) -> None:
    kept = trust.accepted("r01t01", {"changed": False, **more}, SCHEMA)
    findings, warnings = kept.pop("findings"), kept.pop("warnings")
    assert kept == {"changed": False}
    assert [(row["code"], row["tray"]) for row in findings] == [("tray_answer_invalid", "r01t01")]
    assert named in findings[0]["message"]
    assert named in warnings[0]


RED = "\x1b[31mr01t01\x07\n\tis \u202ebad\x9b2J"
CLEAN = " [31mr01t01 \n\tis  bad 2J"


@pytest.mark.parametrize(
    "value",
    [
        {"msg": RED, "module_stderr": RED},
        {"warnings": [RED], "deprecations": [{"msg": RED, "version": RED}]},
        {"warnings": [_messages.WarningSummary(event=_messages.Event(msg=RED, help_text=RED))]},
        {"exception": _messages.ErrorSummary(event=_messages.Event(msg=RED, formatted_traceback=RED))},
        {"diff": {"prepared": RED}},
        {"findings": [{"code": "gpu_lost", "severity": "error", "message": RED, "gpu": None}]},
    ],
)
def test_what_a_terminal_shows_has_no_control_characters(value: dict[str, Any]) -> None:
    kept = trust.accepted("r01t01", value, SCHEMA)
    assert repr(kept) == repr(value).replace(repr(RED), repr(CLEAN))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"changed": true}\n', {"changed": True}),
        ('motd {x}\n  {"changed": true} \n} or so\nPLAY RECAP\n', {"changed": True}),
        ('login\n {\n"changed": true}  \nPLAY RECAP *****\n', {"changed": True}),
        (
            '{"warnings": ["x\\u001b[2J\\nPLAY RECAP"], "deprecations": [{"msg": "x"}], "changed": true}',
            {"changed": True},
        ),
        ('{"_ansible_verbose_always": "x", "changed": true}', {"changed": True}),
        ("[" * 100_000, None),
        ("no answer", None),
        (f'{{"a": {"[" * 100_000}}}', ""),
    ],
)
def test_ansible_reads_of_an_answer_what_is_accepted_alone(text: str, expected: Any) -> None:
    """It shows warnings, and text around an answer, before an action has the answer."""
    found = trust.printed(text, "r01t01", {})
    assert (json.loads(found) if isinstance(expected, dict) else found) == (text if expected is None else expected)


def test_what_was_dropped_before_ansible_reads_an_answer_is_one_finding_and_one_warning() -> None:
    schema = schemas.of_return("{}")
    first = json.loads(trust.printed('{"add_host": {"host_name": "x"}, "changed": false}', "r01t01", schema))
    assert trust.accepted("r01t01", first, schema) == first
    assert [row["code"] for row in first["findings"]] == ["tray_answer_invalid"]
    assert len(first["warnings"]) == 1


def test_a_host_does_not_decide_the_severity_of_its_findings() -> None:
    rows = [{"code": code, "severity": "info", "message": "x"} for code in ("gpu_lost", "no_such_code")]
    (kept,) = trust.accepted("r01t01", {"findings": rows}, SCHEMA)["findings"]
    assert (kept["code"], kept["severity"]) == ("gpu_lost", "error")


@pytest.mark.parametrize(
    ("case", "values", "message"),
    [
        ("smi_lost", {"which": "{gpu.real} {{ 7 * 7 }} \x07%s"}, "because {gpu.real} {{ 7 * 7 }}  %s is lost;"),
        ("smi_lost", {"which": list(range(99))}, "because 0, 1, 2, 3, 4 and 94 more is lost;"),
        ("smi_lost", {"which": {"code": "no_permission"}}, "because The NVIDIA driver refuses this user; "),
        ("smi_lost", {"which": 1.50, "more": "x"}, "because 1.5 is lost;"),
        # Of another release, or of a host that is compromised: what the row of the code says.
        ("smi_lost", {}, "A GPU has fallen off the bus, needs a reset or cannot be read; drain the tray "),
        ("smi_lost", {"which": {"code": "no_such_code"}}, "A GPU has fallen off the bus, "),
        ("no_such_case", {}, "A GPU has fallen off the bus, "),
    ],
)
def test_values_of_a_host_are_text_in_a_message_of_the_table(case: str, values: Any, message: str) -> None:
    (kept,) = trust.accepted("r01t01", {"findings": [{"code": "gpu_lost", "case": case, "values": values}]}, SCHEMA)[
        "findings"
    ]
    assert message in kept.pop("message")
    assert kept == {"code": "gpu_lost", "severity": "error"}


def test_a_message_of_a_host_is_never_longer_than_its_limit() -> None:
    values = dict.fromkeys(("source", "field", "value", "subject"), "x" * 1024)
    found = {"code": "unusable_value", "case": "value", "values": values}
    (kept,) = trust.accepted("r01t01", {"findings": [found]}, SCHEMA)["findings"]
    assert len(kept["message"]) == MAX_MESSAGE
    assert trust.host_findings([kept]) == [kept]


def test_a_message_that_is_nested_too_deeply_is_dropped_with_a_finding() -> None:
    event = _messages.Event(msg="x")
    for _level in range(100):
        event = _messages.Event(msg="x", events=(event,))
    kept = trust.accepted("r01t01", {"exception": _messages.ErrorSummary(event=event)}, SCHEMA)
    assert "exception" not in kept
    assert "(exception)" in kept["findings"][0]["message"]


@given(st.dictionaries(st.text(), JSON, max_size=5), JSON)
def test_any_answer_becomes_one_that_can_be_written_and_has_documented_keys(answer: Any, facts: Any) -> None:
    kept = trust.accepted("r01t01", {**answer, "ansible_facts": facts}, SCHEMA)
    json.dumps(kept, ensure_ascii=False).encode()
    assert set(kept.get("ansible_facts", {})) <= trust.OWN_FACTS


ANY = {"survey": lambda _value: None}
NESTED: list[Any] = []
for _level in range(100_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (["\ud800"], ""),
        (float("nan"), ""),
        ({1, 2}, ""),
        (NESTED, ""),
        ([[]] * 600_000, " has more than 524288 values"),
        ("x" * trust.MAX_SIZE, " has more than 16777216 bytes"),
    ],
    ids=["surrogate", "nan", "set", "nested", "values", "bytes"],
)
def test_unbounded_data_is_recognized_and_named_with_its_limit(value: Any, limit: str) -> None:
    kept = trust.accepted("ctl", {"survey": value}, ANY)
    assert "survey" not in kept
    assert f"asked (survey{limit}), which" in kept["findings"][0]["message"]


def test_an_answer_has_no_value_of_another_step() -> None:
    assert set(schemas.of_return(SLURM_STEP, "step=read_files")) == {"changes", "files", "findings"}


def test_a_run_without_an_inventory_has_its_extra_variables() -> None:
    class NoInventory(dict[str, Any]):
        def __len__(self) -> int:
            return 0  # Ansible's own has the implicit localhost, and counts the hosts of the inventory

    assert trust.controller_value({"hostvars": NoInventory(localhost={"render_dir": "out"})}, "render_dir") == "out"
