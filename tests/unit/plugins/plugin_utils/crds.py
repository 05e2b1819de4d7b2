# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schedulers' own CustomResourceDefinitions, where a folder next to the checkout has them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema
import yaml

FOLDER = Path(__file__).resolve().parents[5] / "shared" / "crds"
MISSING = "the schedulers' own CustomResourceDefinitions are not next to the checkout (../shared/crds)"


@cache
def _schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """(apiVersion, kind) -> schema."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        if "stale" in path.name:
            continue
        for crd in yaml.safe_load_all(path.read_text()):
            spec = crd["spec"]
            for version in spec["versions"]:
                key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                found[key] = version["schema"]["openAPIV3Schema"]
    return found


def complaint(row: dict[str, Any]) -> str | None:
    """The validation error of the API server for an object, without CEL rules; None if it is valid."""
    schema = _schemas().get((row["apiVersion"], row["kind"]))
    if schema is None:
        return f"no CustomResourceDefinition of {row['apiVersion']} {row['kind']}"
    try:
        # A draft is named, because fastjsonschema's own default takes `format` for a rule.
        fastjsonschema.compile({"$schema": "http://json-schema.org/draft-07/schema#", **schema})(row)
    except fastjsonschema.JsonSchemaException as error:
        return str(error.message)
    return _unknown(row, schema, row["kind"])


def known() -> set[tuple[str, str]]:
    return set(_schemas())


def _unknown(value: Any, schema: dict[str, Any], where: str) -> str | None:
    """The first field that the API server would silently drop."""
    if isinstance(value, list):
        return next((bad for part in value if (bad := _unknown(part, schema.get("items", {}), where))), None)
    properties = schema.get("properties")
    if not isinstance(value, dict) or properties is None:
        return None
    for key, part in value.items():
        if key not in properties:
            return f"{where} has no field {key}"
        bad = _unknown(part, properties[key], f"{where}.{key}")
        if bad:
            return bad
    return None
