# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an upgrade of a 25.x release drops: a pure comparison of that release with what will take its place.

Values that somebody gave the old release are not taken over, since keys have moved; and Helm deletes the objects that
the new chart no longer has. Only keys and names are told, never a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import DraError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.values import is_known, value
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import mapped

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOTHING = object()
_OF_THE_IMAGE = ("image.repository", "image.tag")


def drops(
    old_values: Mapping[str, Any], new_values: Mapping[str, Any], old_manifest: str, new_manifest: str
) -> list[Finding]:
    """One finding for each key of the old values that is lost or another, and one for all objects that will go.

    old_values: what was given to the old release (helm get values). Manifests: YAML as Helm has them; DraError if one
    is none.
    """
    found = []
    for key, old in _leaves(old_values):
        new = value(new_values, key, _NOTHING)
        if new != old:
            message = f"The old release sets {key}, which is {'dropped' if new is _NOTHING else 'another value now'}"
            found.append(finding("dra_upgrade_drops", f"{message}; {_remedy(key)}.", key=key))
    gone = sorted(_objects(old_manifest, "old") - _objects(new_manifest, "new"))
    if gone:
        message = f"The upgrade removes {', '.join(gone)}; see that nothing else names them."
        found.append(finding("dra_upgrade_drops", message))
    return found


def _remedy(key: str) -> str:
    if key in _OF_THE_IMAGE:
        return "leave it out, unless a mirror has the new image there"
    return "write it into dra_driver_values if you need it" if is_known(key) else "the new chart has no such key"


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in values.items():
        if isinstance(item, Mapping) and item:
            yield from _leaves(item, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", item


def _objects(manifest: str, which: str) -> set[str]:
    """Kind/name of every object; the namespace is the release's."""
    try:
        rows: Iterable[Any] = list(yaml.load_all(manifest, Loader=_Loader))
    except yaml.YAMLError:
        raise DraError(f"The manifest of the {which} release is no YAML; see what helm get manifest prints") from None
    found = map(mapped, rows)
    return {f"{row.get('kind')}/{mapped(row.get('metadata')).get('name')}" for row in found if row.get("kind")}
