# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugin's documentation: every option of every source, each with an example that could be one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.inventory import fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http

FILES: list[dict[str, Any]] = list(yaml.safe_load_all(fabric.EXAMPLES))
# What these hold is another program's, or names of trays.
FREE = {
    "simulation.split",
    "ssh.jump",
    "topograph.provider.params",
    "topograph.provider.creds",
    "topograph.engine.params",
}


def documented(options: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The options and their suboptions, as source.option.suboption."""
    for name, option in options.items():
        yield f"{above}{name}"
        yield from documented(option.get("suboptions") or {}, f"{above}{name}.")


def shown(value: Any, above: str) -> Iterator[str]:
    """The keys of an example, in the same form."""
    if isinstance(value, Mapping) and above not in FREE:
        for key, item in value.items():
            yield f"{above}.{key}"
            yield from shown(item, f"{above}.{key}")


@pytest.mark.parametrize("source", sources.LIVE)
def test_every_option_of_a_source_is_documented_with_an_example(
    source: str, new_plugin: Callable[[], fabric.InventoryModule]
) -> None:
    definition = new_plugin().option_definitions[source]
    result = set(documented(definition["suboptions"], f"{source}."))
    known = importlib.import_module(f"{sources.__name__}.{source}").OPTIONS
    assert {name.split(".")[1] for name in result} == {*known}
    used = {key for file in FILES for key in shown(file.get(source), source)}
    assert used <= result
    # How a service is reached and logged in at is the same with three sources, so one example among them serves.
    shared = {f"{source}.{option}" for option in http.OPTIONS} if set(http.OPTIONS) <= set(known) else set()
    assert result - shared <= used


@pytest.mark.parametrize("option", http.OPTIONS)
def test_every_authentication_method_has_an_example(option: str) -> None:
    assert any(option in (file.get(source) or {}) for file in FILES for source in sources.LIVE)


def test_every_example_names_its_sources_and_no_others() -> None:
    for file in FILES:
        names = sources.check_names(file["sources"])
        assert {*names, "fabric_file"} & {*sources.KNOWN} >= {*file} & {*sources.KNOWN}
        assert [name for name in names if name not in file] == []
    assert {name for file in FILES for name in file["sources"]} == {*sources.KNOWN}
    assert any("min_answer" in file for file in FILES)
