# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tests' chart and definitions against the driver's own, where those are next to the checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from nvlab.kubernetes import chart, programs

from .conftest import CHECKOUT

# With the marks of the lab, as the programs are fetched: elsewhere tests run without a network.
SHARED = CHECKOUT.parent / "shared"
SAMPLES = SHARED / "samples" / "dra-chart"
pytestmark = [
    pytest.mark.lab,
    pytest.mark.kubernetes,
    pytest.mark.long,
    pytest.mark.skipif(not SAMPLES.is_dir(), reason="the driver's own chart is not next to the checkout"),
]

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


def described(value: Any) -> Any:
    """A schema without its prose, its lists in one order."""
    if isinstance(value, dict):
        kept = {key: inner for key, inner in value.items() if key != "description" or isinstance(inner, dict)}
        return {key: described(inner) for key, inner in kept.items()}
    return sorted((described(inner) for inner in value), key=str) if isinstance(value, list) else value


def is_within(ours: Any, real: Any) -> bool:
    """Whether a value has nothing that another lacks; the rows of lists stand in any order."""
    if isinstance(ours, dict) and isinstance(real, dict):
        return all(key in real and is_within(value, real[key]) for key, value in ours.items())
    if isinstance(ours, list) and isinstance(real, list):
        return all(any(is_within(row, other) for other in real) for row in ours)
    return bool(ours == real)


def test_values_are_those_of_the_drivers_chart() -> None:
    real, ours = (yaml.safe_load((folder / "values.yaml").read_text()) for folder in (SAMPLES, chart.CHART))
    del real["webhook"]
    assert ours == real


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["kind"], row["metadata"]["name"]): row for row in yaml.safe_load_all(text) if row}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_release_has_nothing_that_the_drivers_lacks(shape: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(SHAPES[shape]))
    options = ["--namespace", chart.NAME, "--kube-version", "1.34.2", "--values", str(tmp_path / "values.yaml")]
    command = [str(programs.helm()), "template", chart.NAME, str(chart.CHART), *options]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ours = objects(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    real = objects((SAMPLES / f"rendered.{shape}.yaml").read_text().replace("0.5.0-dev", chart.NEWEST))
    # What else it has, such as permissions, no test needs.
    kinds = ("DaemonSet", "Deployment", "DeviceClass")
    assert {key for key in real if key[0] in kinds} == {key for key in ours if key[0] in kinds}
    for key, row in ours.items():
        if key[0] == "DeviceClass":
            # The rendering of the real chart knew no version of the API.
            row, real[key] = row["spec"]["selectors"], real[key]["spec"]["selectors"]
        assert is_within(row, real[key]), key


def test_definitions_are_those_of_the_driver_and_the_stale_one_that_of_the_operator() -> None:
    for ours in chart.crds():
        real = definition(f"{ours['metadata']['name'].partition('.')[0]}.yaml")
        assert described(ours["spec"]) == described(real["spec"])
    real = definition("computedomains.stale-gpu-operator-26.7.0.yaml")
    assert described(chart.stale_crd()["spec"]) == described(real["spec"])


def definition(file: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SHARED / "crds" / f"resource.nvidia.com_{file}").read_text())
    return found
