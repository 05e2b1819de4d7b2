# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values and objects that an upgrade of a 25.x release drops: a pure comparison of the old and the new release.

The values of the old release are not carried over, since keys have moved, and Helm deletes objects that the new chart
no longer has. Findings contain only keys and names, never a value.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import chart_rules
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.chart_values import Values, merged, value
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.dry_run import Document
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding

_NOTHING = object()
_IMAGE_KEYS = ("image.repository", "image.tag")


def compare(
    old_values: Values, new_values: Values, old: Sequence[Document], new: Sequence[Document], chart: Values
) -> list[Finding]:
    """One finding for each key of the old values that is lost or changed, and one for all objects that are removed.

    old_values: the values of the old release (helm get values). old, new: the objects of both releases. chart: the new
    chart's values.yaml.
    """
    found = []
    for path, item, where in chart_rules.leaves(old_values, chart):
        key = ".".join(map(str, path))
        kept = value(new_values, key, _NOTHING)
        if merged({key: kept}, {key: item}) != {key: kept}:
            remedy = "add it to values if you need it" if path[-1] in where else "the new chart has no such key"
            remedy = "remove it, unless a mirror has the new image there" if key in _IMAGE_KEYS else remedy
            message = f"The old release sets {key}, which {'is dropped' if kept is _NOTHING else 'gets another value'}"
            found.append(finding("dra_upgrade_drops", f"{message}; {remedy}.", key=key))
    # In the namespace of the release.
    gone = sorted({f"{row.kind}/{row.name}" for row in old} - {f"{row.kind}/{row.name}" for row in new})
    if gone:
        message = f"The upgrade removes {', '.join(gone)}; check that nothing else names them."
        found.append(finding("dra_upgrade_drops", message))
    return found
