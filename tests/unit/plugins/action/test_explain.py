# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of Slurm and of Kubernetes; the answers of both are in tests/integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action import explain
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import sentences

SLURM = sentences.as_dict(sentences.Answer("queue", "", "jobs", "2 jobs wait in the queue."))
PODS = sentences.Answer("queue", "", "kubernetes", "1 waits in Kubernetes.")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pod": "default/a", "job": "1"}, "ask one question: a job, a tray, a segment, a pod or a ComputeDomain"),
        ({"partition": "gpu"}, "ask one question: a job, a tray, a segment, a pod"),
        ({"pod": "a", "kubeconfig": "k"}, "'a' is no NAMESPACE/NAME"),
        ({"compute_domain": "a/b/c", "kubeconfig": "k"}, "'a/b/c' is no NAMESPACE/NAME"),
        ({"pod": "default/a"}, "no scheduler is configured: set slurm_controller_hosts for jobs"),
        ({"tray": "r01t01", "slurm": False, "kubeconfig": "k"}, "no scheduler is configured"),
        ({"slurm": False}, "and trays, verify_kubeconfig for pods"),
    ],
)
def test_a_question_without_an_answer_is_one_sentence(run_action: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=sentence):
        run_action(explain.ActionModule, **options)


def test_all_that_waits_is_counted_in_both(
    run_action: Any, answer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def both(**options: Any) -> dict[str, Any]:
        answer(explain={"answer": dict(SLURM), "text": [SLURM["sentence"]]})
        found: dict[str, Any] = run_action(explain.ActionModule, path=str(tmp_path / "a.json"), check=True, **options)
        return found

    monkeypatch.setattr(explain, "_answered", lambda _options, _subject: (PODS, ["no list"]))
    found = both(kubeconfig="k")
    assert found["text"] == [SLURM["sentence"], PODS.sentence, "Not known: no list."]
    document = json.loads((tmp_path / "a.json").read_text())
    assert (document["sentence"], document["kubernetes"]["sentence"]) == (SLURM["sentence"], PODS.sentence)
    # Each alone has the same form.
    assert "kubernetes" not in both()
    assert both(kubeconfig="k", slurm=False)["answer"]["sentence"] == PODS.sentence

    def fails(_options: Any, _subject: str) -> Any:
        raise NvlinkError("the API server did not answer.")

    monkeypatch.setattr(explain, "_answered", fails)
    note = "what waits in Kubernetes: the API server did not answer"
    assert both(kubeconfig="k")["text"] == [SLURM["sentence"], f"Not known: {note}."]
    assert json.loads((tmp_path / "a.json").read_text())["unknown"] == [note]
    with pytest.raises(AnsibleActionFail, match="the API server did not answer"):
        both(kubeconfig="k", pod="default/a")
