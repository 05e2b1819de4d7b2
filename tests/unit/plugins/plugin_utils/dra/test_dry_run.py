# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dry run of a rendered chart against a server with the API's answers, and the reason of a failed Helm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import DraError, dry_run
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options

from ..clients.http_servers import Reply, Request, served

RESOURCES = {
    "/apis/apps/v1": [{"name": "daemonsets", "kind": "DaemonSet", "namespaced": True}, {"name": "daemonsets/status"}],
    "/apis/resource.k8s.io/v1": [{"name": "deviceclasses", "kind": "DeviceClass", "namespaced": False}],
}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "plugin", "namespace": "dra"}}
CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}}
DOMAIN = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": {"name": "x"}}
CRD = {"spec": {"group": "resource.nvidia.com", "names": {"kind": "ComputeDomain"}}}


class Api:
    """An API server: answers to writes by method, live objects by path."""

    def __init__(self, status: int = 201, message: str = "", live: Any = None) -> None:
        self.answer = (status, {"kind": "Status", "message": message})
        self.live: dict[str, Any] = live or {}

    def __call__(self, request: Request, reply: Reply) -> None:
        path = request.target.partition("?")[0]
        if request.method == "GET" and path in RESOURCES:
            reply.json({"resources": RESOURCES[path]})
        elif request.method == "GET":
            reply.json(self.live.get(path, {"message": "not found"}), 200 if path in self.live else 404)
        else:
            reply.json(self.answer[1], self.answer[0])


def sent(api: Api, *rows: Any) -> tuple[list[str], list[Request]]:
    """(the findings as code and sentence, the requests that would write)."""
    with served(api) as server:
        config = login.client_config(Options({"api_url": server.url}, login.OPTIONS, "dra_driver"))
        found = dry_run.DryRun(config).refused(rows, "dra", [CRD])
    writes = [request for request in server.requests if request.method != "GET"]
    assert all(request.target.endswith("?dryRun=All") for request in writes)
    return [f"{row['code']}: {row['message']}" for row in found], writes


def test_a_live_object_is_replaced_in_its_version() -> None:
    path = "/apis/resource.k8s.io/v1/deviceclasses/gpu.nvidia.com"
    found, (write, other) = sent(Api(200, live={path: {"metadata": {"resourceVersion": "7"}}}), CLASS, DAEMON_SET)
    assert found == []
    assert (write.method, write.target.partition("?")[0]) == ("PUT", path)
    assert (other.method, other.target.partition("?")[0]) == ("POST", "/apis/apps/v1/namespaces/dra/daemonsets")
    assert json.loads(write.body)["metadata"] == {"name": "gpu.nvidia.com", "resourceVersion": "7"}


def test_a_kind_of_the_charts_own_crds_need_not_be_served() -> None:
    other = {**DOMAIN, "apiVersion": "cert-manager.io/v1", "kind": "Issuer"}
    found, writes = sent(Api(), DOMAIN, other)
    assert [row.partition(";")[0] for row in found] == [
        "dra_value_refused: The API server would refuse Issuer x (it serves no kind Issuer of cert-manager.io/v1)"
    ]
    assert writes == []


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (
            403,
            'daemonsets.apps is forbidden: User "poor" cannot create resource "daemonsets"',
            "dra_not_readable: The API",
        ),
        (403, 'admission webhook "policy" denied the request: no', "dra_value_refused: The API server would refuse"),
        (500, "Internal error occurred: failed calling webhook", "failed calling webhook"),
        (409, "object is being deleted", "object is being deleted"),
    ],
)
def test_a_missing_right_differs_from_a_refusal(status: int, message: str, words: str) -> None:
    (found,), _writes = sent(Api(status, message), DAEMON_SET)
    assert words in found
    # A webhook that cannot answer a dry run refuses nothing.
    assert sent(Api(400, 'admission webhook "x" does not support dry run'), DAEMON_SET)[0] == []


def test_an_invalid_manifest_is_one_sentence() -> None:
    assert dry_run.objects("---\n# nothing\n---\nkind: A\n") == [{"kind": "A"}]
    with pytest.raises(DraError, match="manifest of a release is not valid YAML"):
        dry_run.objects("a: b: c")
