# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tests' chart and definitions against the driver's own, where those are next to the checkout, and the linter."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import linter, values, versions
from nvlab.kubernetes import chart, programs

from .conftest import CHECKOUT

# With the marks of the lab, as the programs are fetched: elsewhere tests run without a network.
pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long]

SHARED = CHECKOUT.parent / "shared"
SAMPLES = SHARED / "samples" / "dra-chart"
with_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the driver's own chart and definitions are not next to the checkout"
)

DOMAINS = {"resources": {"gpus": {"enabled": False}}}
# The values behind each of the real chart's renderings.
SHAPES: dict[str, dict[str, Any]] = {
    "all-dra": {"gpuResourcesEnabledOverride": True},
    "compute-domains-only": DOMAINS,
    "host-managed": {
        "resources": {"gpus": {"enabled": False}, "computeDomains": {"imex": {"mode": "hostManaged"}}},
        "featureGates": {"HostManagedIMEXDaemon": True},
    },
    "renamed-upgrade": {**DOMAINS, "nameOverride": chart.OLD_NAME},
}


def helm(folder: Path, tmp_path: Path, values: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of a chart, without a cluster."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    common = ["--namespace", chart.NAME, "--kube-version", "1.34.2", "--values", str(file)]
    command = [str(programs.helm()), "template", chart.NAME, str(folder), *common, *options]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def objects(text: str) -> dict[tuple[str, str, str | None], dict[str, Any]]:
    rows = [row for row in yaml.safe_load_all(text) if row]
    found = {(row["kind"], row["metadata"]["name"], row["metadata"].get("namespace")): row for row in rows}
    assert len(found) == len(rows)
    return found


def keys(value: Any, path: str = "") -> dict[str, Any]:
    """Every key of a document by its path, with its value where that is no map of further keys."""
    if isinstance(value, dict) and value:
        return {key: found for name, inner in value.items() for key, found in keys(inner, f"{path}.{name}").items()}
    return {path: value}


def described(value: Any) -> Any:
    """A schema without its prose, its lists in one order."""
    if isinstance(value, dict):
        return {
            key: described(inner)
            for key, inner in value.items()
            if not (key == "description" and isinstance(inner, str))
        }
    return sorted((described(inner) for inner in value), key=str) if isinstance(value, list) else value


@with_samples
def test_values_are_those_of_the_drivers_chart() -> None:
    real, ours = ((folder / "values.yaml").read_text() for folder in (SAMPLES, chart.CHART))
    assert keys(yaml.safe_load(ours)) == keys(yaml.safe_load(real))


@with_samples
@pytest.mark.parametrize("shape", SHAPES)
def test_a_release_has_the_same_objects(shape: str, tmp_path: Path) -> None:
    real = objects((SAMPLES / f"rendered.{shape}.yaml").read_text())
    done = helm(chart.CHART, tmp_path, SHAPES[shape])
    assert done.returncode == 0, done.stderr
    ours = objects(done.stdout)
    assert set(ours) == set(real)
    for key, row in ours.items():
        if key[0] in ("DaemonSet", "Deployment"):
            assert workload(row) == workload(real[key])
        if key[0] == "DeviceClass":
            selectors = [" ".join(one["cel"]["expression"].split()) for one in row["spec"]["selectors"]]
            assert selectors == [one["cel"]["expression"] for one in real[key]["spec"]["selectors"]]


def workload(row: dict[str, Any]) -> Any:
    """The parts of a workload that other programs read."""
    spec, pod = row["spec"], row["spec"]["template"]["spec"]
    read = {"IMEX_MODE", "IMEX_ISOLATION", "IMEX_HOST_SOCKET_PATH", "GPU_CLIQUE_LABEL_ENABLED", "FEATURE_GATES"}
    settings = {
        (part["name"], entry["name"], entry.get("value"))
        for part in pod["containers"]
        if part["name"] == "compute-domains"
        for entry in part["env"]
        if entry["name"] in read
    }
    return (
        spec["selector"],
        spec["template"]["metadata"]["labels"],
        [part["name"] for part in pod["containers"]],
        pod["serviceAccountName"],
        pod["priorityClassName"],
        pod["affinity"],
        pod["tolerations"],
        settings,
    )


@with_samples
def test_definitions_are_those_of_the_driver_and_the_stale_one_that_of_the_operator() -> None:
    for ours in chart.crds():
        real = definition(f"{ours['metadata']['name'].partition('.')[0]}.yaml")
        assert described(ours["spec"]) == described(real["spec"])
    real = definition("computedomains.stale-gpu-operator-26.7.0.yaml")
    assert described(chart.stale_crd()["spec"]) == described(real["spec"])


def definition(file: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SHARED / "crds" / f"resource.nvidia.com_{file}").read_text())
    return found


# What Helm accepts and the driver does not: the linter finds it.
OF_THE_LINTER = {
    "a typo": {"resources": {"computeDomain": {"enabled": True}}},
    "a conflict of gates": {"featureGates": {"IMEXDaemonsWithDNSNames": False}},
}


@pytest.mark.parametrize("case", OF_THE_LINTER)
def test_what_helm_accepts_is_found(case: str, tmp_path: Path) -> None:
    made = values.build("compute_domains", OF_THE_LINTER[case], "v1")
    assert helm(chart.CHART, tmp_path, made).returncode == 0
    defaults = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    unread = [
        row["key"]
        for row in linter.variants(made, defaults)[1:]
        if helm(chart.CHART, tmp_path, dict(row["values"])).stdout == helm(chart.CHART, tmp_path, made).stdout
    ]
    assert len([*unread, *linter.check_start(made, versions.pinned(chart.NEWEST))]) == 1
