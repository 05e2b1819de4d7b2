# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dry run of a rendered chart against a server with the API's answers, of text that is sent undecoded."""

from __future__ import annotations

import urllib.parse
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import dry_run
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options

from ..clients.http_servers import Reply, Request, served

RESOURCES = {
    "/api/v1": [{"name": "secrets", "kind": "Secret", "namespaced": True}],
    "/apis/apps/v1": [{"name": "daemonsets", "kind": "DaemonSet", "namespaced": True}, {"name": "daemonsets/status"}],
    "/apis/resource.k8s.io/v1": [{"name": "deviceclasses", "kind": "DeviceClass", "namespaced": False}],
    "/apis/scheduling.k8s.io/v1": [{"name": "priorityclasses", "kind": "PriorityClass", "namespaced": False}],
}
PLUGIN = """
# Source: chart/templates/plugin.yaml
apiVersion: apps/v1 # of Kubernetes
kind: "DaemonSet"
metadata:

  annotations: {a: b}
  # Not the namespace: other
  namespace: dra
  labels:
    name: not-this
  name: 'plugin'
spec: {count: 1234e56, mode: 0o17, none: ~}
"""
CLASS = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata:\n  name: gpu.nvidia.com\n"
DOMAIN = "apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nmetadata:\n  name: x\n"
CRD = {"spec": {"group": "resource.nvidia.com", "names": {"kind": "ComputeDomain"}}}
CLASS_PATH = "/apis/resource.k8s.io/v1/deviceclasses/gpu.nvidia.com"
PLUGIN_PATH = "/apis/apps/v1/namespaces/dra/daemonsets/plugin"
OURS = {"meta.helm.sh/release-name": "driver", "meta.helm.sh/release-namespace": "dra"}


class Api:
    """An API server: answers to writes, live objects by path."""

    def __init__(self, status: int = 201, answer: Any = "", live: Any = None) -> None:
        self.answer = (status, {"kind": "Status", "message": answer} if isinstance(answer, str) else answer)
        self.live: dict[str, Any] = live or {}

    def __call__(self, request: Request, reply: Reply) -> None:
        path = request.target.partition("?")[0]
        if request.method != "GET":
            missing = self.live.get("namespace") == "missing" and "/namespaces/dra/" in path
            reply.json(*(({"message": 'namespaces "dra" not found'}, 404) if missing else self.answer[::-1]))
        elif path in RESOURCES:
            reply.json({"resources": RESOURCES[path]})
        elif path in self.live:
            reply.json(self.live[path])
        else:
            # As for a group that is not served.
            reply.send(404, b"404 page not found\n", Content_Type="text/plain")


def sent(api: Api, *texts: str) -> tuple[list[str], list[Request]]:
    """(the findings as code and sentence, the requests that would write)."""
    with served(api) as server:
        config = login.client_config(Options({"api_url": server.url}, login.OPTIONS, "dra_driver"))
        found = dry_run.DryRun(config, ("dra", "driver")).refused("---\n".join(texts), [CRD])
    writes = [request for request in server.requests if request.method != "GET"]
    expected = {"dryRun": "All", "fieldManager": "helm", "fieldValidation": "Strict"}
    for request in writes:
        assert dict(urllib.parse.parse_qsl(request.target.partition("?")[2])) == expected
    return [f"{row['severity']} {row['code']}: {row['message']}" for row in found], writes


def live(operation: str, **annotations: str) -> Any:
    managed = [{"manager": "helm", "operation": operation}]
    return {"metadata": {"annotations": annotations or OURS, "resourceVersion": "7", "managedFields": managed}}


@pytest.mark.parametrize(
    ("path", "text", "there", "method", "kind"),
    [
        (PLUGIN_PATH, PLUGIN, {}, "PATCH", "apply-patch+yaml"),
        (CLASS_PATH, CLASS, live("Apply"), "PATCH", "apply-patch+yaml"),
        # Of Helm 3, whose patch removes what the chart no longer has.
        (CLASS_PATH, CLASS, live("Update"), "PUT", "yaml"),
        (PLUGIN_PATH, PLUGIN, live("Update"), "PUT", "yaml"),
    ],
)
def test_a_document_is_sent_as_helm_wrote_it(path: str, text: str, there: Any, method: str, kind: str) -> None:
    found, (write,) = sent(Api(200, {}, {path: there} if there else {}), text)
    assert found == []
    assert (write.method, write.target.partition("?")[0]) == (method, path)
    assert write.headers["content-type"] == f"application/{kind}"
    body = write.body.decode()
    assert body.replace('  resourceVersion: "7"\n', "", 1) == text
    assert (body != text) == (method == "PUT")


def test_only_the_missing_namespace_of_the_release_is_substituted() -> None:
    missing = Api(201, {}, {"namespace": "missing"})
    found, (_first, write) = sent(missing, PLUGIN)
    assert found == []
    assert write.target.startswith("/apis/apps/v1/namespaces/default/daemonsets/plugin?")
    assert write.body.decode() == PLUGIN.replace("namespace: dra", "namespace: default")
    unnamed = PLUGIN.replace("  namespace: dra\n", "")
    assert sent(missing, unnamed)[1][1].body.decode() == unnamed
    (other,), writes = sent(Api(404, 'namespaces "b" not found'), PLUGIN.replace("namespace: dra", "namespace: b"))
    assert 'DaemonSet plugin (namespaces "b" not found); correct values.' in other
    assert len(writes) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DOMAIN, ""),
        (DOMAIN.replace("resource.nvidia.com/v1beta1", "cert-manager.io/v1"), "serves no kind ComputeDomain of cert-"),
        ("# nothing\n\n", ""),
        (
            "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}}",
            "did not check 1 object of the chart, first '{api",
        ),
        ("apiVersion: v1\nkind: List\nitems: []\n", "apiVersion, kind and metadata.name need a line each"),
    ],
)
def test_what_is_not_sent_is_reported_unless_the_run_applies_it_before(text: str, words: str) -> None:
    found, writes = sent(Api(), text)
    assert [words in row for row in found] == ([True] if words else [])
    assert writes == []


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (
            403,
            'daemonsets.apps is forbidden: User "poor" cannot patch resource "daemonsets"',
            "error dra_not_readable: The API",
        ),
        (403, 'admission webhook "policy" denied the request: no', "dra_value_refused: The API server would refuse"),
        (500, "Internal error occurred: failed calling webhook", "failed calling webhook"),
        (
            500,
            ".spec.template.operater: field not declared in schema",
            "operater: field not declared in schema); correct",
        ),
        (409, "object is being deleted", "object is being deleted"),
        (409, "Apply failed with 1 conflict: conflict with kubectl", "undo what the other manager has changed"),
    ],
)
def test_a_missing_right_differs_from_a_refusal(status: int, message: str, words: str) -> None:
    (found,), _writes = sent(Api(status, message), PLUGIN)
    assert words in found
    # A webhook that cannot answer a dry run refuses nothing.
    assert sent(Api(400, 'admission webhook "x" does not support dry run'), PLUGIN)[0] == []


def test_an_object_of_another_release_is_refused_as_by_helm() -> None:
    theirs = {**OURS, "meta.helm.sh/release-name": "other"}
    for owner, words in ((theirs, "the Helm release other in namespace dra"), ({"a": "b"}, "no Helm release")):
        (found,), writes = sent(Api(live={CLASS_PATH: live("Apply", **owner)}), CLASS)
        assert f"(it exists and belongs to {words}, so Helm refuses it)" in found
        assert writes == []


def test_every_name_is_looked_up_in_the_answer_of_the_api_server() -> None:
    pod = {
        "priorityClassName": "none-such",
        "runtimeClassName": "of a kind that is not served",
        "imagePullSecrets": [{"name": "mirror"}, {"name": "there"}],
        "volumes": [
            {"secret": {"secretName": "tls"}},
            {"secret": {"secretName": "may-miss", "optional": True}},
            {"projected": {"sources": [{"secret": {"name": "may-miss", "optional": True}}]}},
        ],
        "containers": [
            {"env": [{"valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}], "grpc": {"service": "x"}}
        ],
    }
    answer = {"spec": {"template": {"spec": pod}}}
    live = {"/api/v1/namespaces/dra/secrets/there": {}}
    found, _writes = sent(Api(201, answer, live), PLUGIN)
    assert [row.partition("name the ")[2].partition(";")[0] for row in found] == [
        "PriorityClass none-such, which the cluster lacks",
        "Secret key, which namespace dra lacks",
        "Secret mirror, which namespace dra lacks",
        "Secret tls, which namespace dra lacks",
    ]
    # What the release has, or a controller makes for it, is not missing.
    secrets = ("mirror", "key", "tls")
    made = [f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n" for name in secrets]
    assert len(sent(Api(201, answer, live), PLUGIN, *made)[0]) == 1
    certificate = {"spec": {**answer["spec"], "secretName": "tls"}}
    assert len(sent(Api(201, certificate, live), PLUGIN)[0]) == 3
