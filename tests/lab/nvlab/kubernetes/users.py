# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Further users of a control plane, and invalid credentials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import certificates
from .plane import ControlPlane

NAMESPACE = "nvlink-lab"
Rule = Mapping[str, Iterable[str]]


def rule(group: str, resources: Iterable[str], verbs: Iterable[str]) -> dict[str, list[str]]:
    """One row of a ClusterRole: rule("", ["nodes"], ["get", "list"])."""
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def user(plane: ControlPlane, name: str, rules: Iterable[Rule] = ()) -> Path:
    """The kubeconfig file of a service account with exactly the permissions of `rules`."""
    path = _account(plane, name, [dict(row) for row in rules])
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return _kubeconfig(plane, name, plane.api().create(f"{path}/token", request)["status"]["token"])


def _kubeconfig(plane: ControlPlane, name: str, token: str) -> Path:
    target, pki = plane.directory / f"{name}.kubeconfig", plane.directory / "pki"
    certificates.write_kubeconfig(target, pki, f"https://{plane.address()}", {"token": token})
    return target


def token_of(kubeconfig: Path) -> str:
    """The token in a kubeconfig file of user(), which no output may contain."""
    line = next(line for line in kubeconfig.read_text().splitlines() if line.strip().startswith("token:"))
    return line.partition(":")[2].strip()


def unknown(plane: ControlPlane) -> Path:
    """A kubeconfig file with a token that the API server has not signed."""
    return _kubeconfig(plane, "unknown", "eyJhbGciOiJSUzI1NiJ9.e30.of-another-api-server")


def _account(plane: ControlPlane, name: str, rules: list[dict[str, Any]]) -> str:
    """The path of a service account."""
    api = plane.api()
    space = f"api/v1/namespaces/{NAMESPACE}"
    api.apply(space, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    path = f"{space}/serviceaccounts/{name}"
    api.apply(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    group, full_name = "rbac.authorization.k8s.io", f"{NAMESPACE}-{name}"
    made = {"apiVersion": f"{group}/v1", "metadata": {"name": full_name}}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": full_name}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]
    api.apply(f"apis/{group}/v1/clusterroles/{full_name}", {**made, "kind": "ClusterRole", "rules": rules})
    binding = {**made, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects}
    api.apply(f"apis/{group}/v1/clusterrolebindings/{full_name}", binding)
    return path
