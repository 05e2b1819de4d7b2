# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API server would refuse of a rendered chart, and what the chart's objects name that the cluster lacks.

Helm's own dry run sends no object. Here each document of Helm's text is sent as it is, since another reader of YAML
would read some values as Helm does not: with dryRun=All, fieldValidation=Strict and Helm's field manager, by
server-side apply, as Helm 4 does. Objects that Helm 3 manages are replaced, since an apply would merge them with their
old fields (patchResourceServerSide and patchResourceClientSide of helm/helm, pkg/kube/client.go). Of a document only
the lines with what its URL needs are read; what it names is read in the API server's answer.
"""

from __future__ import annotations

import functools
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import owner_of
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import api
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

SUBSTITUTE = "default"
"""The namespace of the dry run where the release's own does not exist yet; it exists in every cluster."""
MANAGER = "helm"

_SEPARATOR = re.compile(r"^---(?:[ \t\r].*)?$", re.MULTILINE)
_VALUE = r"""[ \t]+(?P<quote>["']?)(?P<value>[^\s"'#&*!|>{[][^\s"']*)(?P=quote)[ \t\r]*(?:#.*)?$"""
_TOP = re.compile(rf"^(?P<key>apiVersion|kind):{_VALUE}", re.MULTILINE)
_EMPTY = r"[ \t\r]*(?:#.*)?\n"
_METADATA = re.compile(
    rf"^metadata:{_EMPTY}(?:{_EMPTY})*(?P<indent> +).*\n?(?:(?P=indent).*\n?|{_EMPTY})*", re.MULTILINE
)
_WRITE_STATUSES = (201, 400, 403, 404, 405, 409, 415, 422, 500)
_MISSING_RIGHT = re.compile(r"User \S+ cannot ")
_SECRET, _CONFIG_MAP = ("v1", "Secret"), ("v1", "ConfigMap")
_NAMED = {
    "priorityClassName": ("scheduling.k8s.io/v1", "PriorityClass"),
    "runtimeClassName": ("node.k8s.io/v1", "RuntimeClass"),
    "serviceAccountName": ("v1", "ServiceAccount"),
    "claimName": ("v1", "PersistentVolumeClaim"),
    "service": ("v1", "Service"),
    **dict.fromkeys(("imagePullSecrets", "secret", "secretRef", "secretKeyRef"), _SECRET),
    **dict.fromkeys(("configMap", "configMapRef", "configMapKeyRef"), _CONFIG_MAP),
}
"""Field of an object -> what it names: a text, or mappings with the name."""
_OF_EVERY_NAMESPACE = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}


class Document(NamedTuple):
    """An object in Helm's text. namespace: empty where it names none, with the span of its text. body: the line below
    metadata, with its indent, at which a line of it can be inserted.
    """

    text: str
    api: str
    kind: str
    name: str
    namespace: str
    span: tuple[int, int]
    body: tuple[int, str]

    def with_namespace(self, name: str) -> Document:
        """The same object in another namespace; itself where it names none."""
        start, end = self.span
        return self._replace(text=self.text[:start] + name + self.text[end:]) if end else self


def documents(manifest: str) -> tuple[list[Document], list[str]]:
    """(the objects of Helm's text, the documents whose apiVersion, kind or name has no line of its own)."""
    found, unread = [], []
    for text in _SEPARATOR.split(str(manifest)):
        metadata = _METADATA.search(text)
        top = {row["key"]: row["value"] for row in reversed([*_TOP.finditer(text)])}
        rows: dict[str, re.Match[str]] = {}
        if metadata:
            own = re.compile(rf"^{metadata['indent']}(?P<key>name|namespace):{_VALUE}", re.MULTILINE)
            rows = {row["key"]: row for row in own.finditer(text, metadata.start(), metadata.end())}
        if metadata and "name" in rows and len(top) == 2:
            space = rows.get("namespace")
            where = (space["value"], space.span("value")) if space else ("", (0, 0))
            body = (metadata.start("indent"), metadata["indent"])
            found.append(Document(text, top["apiVersion"], top["kind"], rows["name"]["value"], *where, body))
        elif re.sub(r"(?m)^\s*#.*$", "", text).strip():
            unread.append(text.strip())
    return found, unread


class DryRun:
    """Sends the objects of a release, (namespace, name), to one API server with dryRun=All."""

    def __init__(self, config: http.ClientConfig, release: tuple[str, str]) -> None:
        self._client, self._release = api.Cluster("dra_driver", config), release
        self._resources = functools.cache(self._client.resources)

    def refused(self, manifest: str, chart_crds: Iterable[Object], check: bool = False) -> list[Finding]:
        """A finding for each refused object and each missing name, and for what could not be checked.

        chart_crds: CRDs that are applied before the release, whose kinds the API server need not serve yet. check:
        whether another account may install the driver later.
        """
        specs = [mapped(crd.get("spec")) for crd in chart_crds]
        pending = {(spec.get("group"), mapped(spec.get("names")).get("kind")) for spec in specs}
        rows, unread = documents(manifest)
        found, answers = [], []
        lines = "apiVersion, kind and metadata.name need a line each"
        unchecked = [(repr(sentence(text, 60)), lines) for text in unread]
        for row in rows:
            what = sentence(f"{row.kind} {row.name}")
            if row.kind not in self._resources(row.api):
                if (row.api.rpartition("/")[0], row.kind) not in pending:
                    remedy = "install its CustomResourceDefinition, or correct values"
                    found.append(_refusal(what, f"it serves no kind {row.kind} of {row.api}", remedy))
                continue
            status, reason, answer = self._send(row)
            if status == 403 and _MISSING_RIGHT.search(reason):
                unchecked.append((what, reason))
            elif status < 400:
                answers.append((row.namespace or self._release[0], answer))
            elif "does not support dry run" not in reason:
                conflict = "undo what the other manager has changed, or set it in values too"
                remedy = conflict if "Apply failed with" in reason else "correct values"
                found.append(_refusal(what, reason, remedy))
        made = {(row.kind, row.name) for row in rows} | _OF_EVERY_NAMESPACE
        # Of a Certificate, whose controller writes it.
        made |= {("Secret", str(mapped(row.get("spec")).get("secretName"))) for _home, row in answers}
        for kind, name, where in sorted({item for home, row in answers for item in _names(row, home)}):
            status = 200 if (kind[1], name) in made else self._get(*kind, where, name)[0]
            place = f"namespace {where}" if self._resources(kind[0]).get(kind[1], ("", False))[1] else "the cluster"
            if status == 403:
                unchecked.append((sentence(f"{kind[1]} {name}"), f"the account may not get it in {place}"))
            elif status == 404:
                message = f"The chart's objects name the {kind[1]} {sentence(name)}, which {place} lacks; create it, or"
                found.append(finding("dra_value_refused", f"{message} correct values."))
        # What the account may not write, Helm may not.
        unchecked.sort(key=lambda entry: not _MISSING_RIGHT.search(entry[1]))
        if unchecked:
            first, reason = unchecked[0]
            message = f"The API server did not check {count(len(unchecked), 'object')} of the chart, first {first}"
            message = f"{message} ({reason}); use the account that installs the driver, or see to them yourself."
            severity = ERROR if _MISSING_RIGHT.search(reason) and not check else WARNING
            found.append({**finding("dra_not_readable", message), "severity": severity})
        return found

    def _send(self, row: Document) -> tuple[int, str, Object]:
        """(status, the API server's reason, its answer) of one object."""
        status, live = self._get(row.api, row.kind, row.namespace or self._release[0], row.name)
        owner = owner_of(live)
        if status == 200 and owner != self._release:
            by = f"the Helm release {owner[1]} in namespace {owner[0]}" if owner else "no Helm release"
            return 409, f"it exists and belongs to {by}, so Helm refuses it", {}
        managers = [mapped(entry) for entry in as_list(mapped(live.get("metadata")).get("managedFields"))]
        if status == 200 and not any(
            entry.get("manager") == MANAGER and entry.get("operation") == "Apply" for entry in managers
        ):
            at, indent = row.body
            version = f'{indent}resourceVersion: "{mapped(live.get("metadata")).get("resourceVersion")}"\n'
            return self._write("PUT", row, row.text[:at] + version + row.text[at:])
        result = self._write("PATCH", row, row.text)
        if row.namespace in ("", self._release[0]) and result[1] == f'namespaces "{self._release[0]}" not found':
            result = self._write("PATCH", moved := row.with_namespace(SUBSTITUTE), moved.text, SUBSTITUTE)
        return result

    def _write(self, method: str, row: Document, text: str, namespace: str = "") -> tuple[int, str, Object]:
        query = {"dryRun": "All", "fieldManager": MANAGER, "fieldValidation": "Strict"}
        path = self._path(row.api, row.kind, namespace or row.namespace or self._release[0], row.name)
        kind = "application/apply-patch+yaml" if method == "PATCH" else "application/yaml"
        headers = {"Content-Type": kind, "Accept": http.JSON}
        url = f"{self._client.url}{path}?{urllib.parse.urlencode(query)}"
        answer = self._client.send(method, url, text, _WRITE_STATUSES, headers)
        if answer.status in (200, 201):
            return answer.status, "", mapped(self._client.json(answer))
        return answer.status, self._client.reason(answer), {}

    def _get(self, group: str, kind: str, namespace: str, name: str) -> tuple[int, Object]:
        """(status, the metadata of one object); a kind that is not served has every name."""
        if kind not in self._resources(group):
            return 200, {}
        return self._client.found(self._path(group, kind, namespace, name), api.METADATA.format(""))

    def _path(self, group: str, kind: str, namespace: str, name: str) -> str:
        plural, namespaced = self._resources(group)[kind]
        parts = [*(("namespaces", namespace) if namespaced else ()), plural, name]
        return "/".join([api.root(group), *(urllib.parse.quote(part, safe="") for part in parts)])


def _names(value: Any, where: str) -> Iterator[tuple[tuple[str, str], str, str]]:
    """What an object names: (API version and kind, name, namespace); not what is optional."""
    for row in value if isinstance(value, list) else ():
        yield from _names(row, where)
    for key, item in value.items() if isinstance(value, dict) and value.get("optional") is not True else ():
        yield from _names(item, where)
        for row in (item if isinstance(item, list) else [item]) if key in _NAMED else ():
            below = {"name": row} if key.endswith("Name") else mapped(row)
            name = below.get("secretName") or below.get("name")
            if isinstance(name, str) and name and below.get("optional") is not True:
                yield _NAMED[key], name, str(below.get("namespace") or where)


def _refusal(what: str, reason: str, remedy: str) -> Finding:
    return finding("dra_value_refused", f"The API server would refuse {what} ({reason}); {remedy}.")
