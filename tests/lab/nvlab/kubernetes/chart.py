# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's chart as the tests have it, and one from before its renaming.

DRA_CHART names a folder with the real chart, which then takes the place of ours wherever the newest is needed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from .. import paths

CHART = paths.LAB / "kubernetes" / "chart"
NAME, OLD_NAME = "dra-driver-nvidia-gpu", "nvidia-dra-driver-gpu"
NEWEST = "0.5.0"
DOMAINS_CRD = "computedomains.yaml"


def newest(target: Path) -> Path:
    """The newest chart as a folder below `target`."""
    real = os.environ.get("DRA_CHART")
    return Path(real) if real else Path(shutil.copytree(CHART, target / NAME))


def before_renaming(target: Path) -> Path:
    """The chart 25.12.0 as a folder below `target`."""
    made = Path(shutil.copytree(CHART, target / OLD_NAME))
    own = {"name": OLD_NAME, "version": "25.12.0", "appVersion": "25.12.0"}
    _write(made / "Chart.yaml", {**_read(made / "Chart.yaml"), **own})
    values = _read(made / "values.yaml")
    values["image"]["repository"] = "nvcr.io/nvidia/k8s-dra-driver-gpu"
    values["kubeletPlugin"]["tolerations"] = []
    _write(made / "values.yaml", values)
    _write(made / "crds" / DOMAINS_CRD, stale_crd())
    return made


def crds() -> list[dict[str, Any]]:
    """The two CustomResourceDefinitions of the newest chart."""
    return [_read(path) for path in sorted((CHART / "crds").glob("*.yaml"))]


def stale_crd() -> dict[str, Any]:
    """ComputeDomain's CRD of driver 25.12 and GPU Operator 26.7.0: numNodes is required and has no minimum."""
    crd = _read(CHART / "crds" / DOMAINS_CRD)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["numNodes"] = {"type": "integer"}
    spec["required"] = ["channel", "numNodes"]
    return crd


def _read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    return document


def _write(file: Path, document: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump(document, sort_keys=False))
