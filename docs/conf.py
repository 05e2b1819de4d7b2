# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sphinx settings of the site that `make docs` builds from these pages and the documentation of plugins and roles."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import yaml

# `make docs` copies galaxy.yml next to the pages; name, author and version come from it.
GALAXY = yaml.safe_load((Path(__file__).parent / "galaxy.yml").read_text())

project = f"{GALAXY['namespace']}.{GALAXY['name']}"
author = GALAXY["authors"][0]
release = GALAXY["version"]
html_title = f"{project} {release}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_search_scorer = str(Path(__file__).parent / "search_scorer.js")

extensions = ["myst_parser", "sphinx.ext.intersphinx", "sphinx_antsibull_ext"]
myst_heading_anchors = 3
myst_enable_extensions = ["smartquotes"]
# Code blocks hold commands, configuration and output: no single language fits.
highlight_language = "none"
# A lexer that does not know a word of a code block is no error of the page.
suppress_warnings = ["misc.highlighting_failure"]

# Targets on Ansible's own site that the generated reference links to, as a local inventory: a build needs no network.
ANSIBLE = {
    "label action_plugins": ("plugins/action.html#action-plugins", "Action plugins"),
    "label ansible_collections.ansible.builtin.assert_module": (
        "collections/ansible/builtin/assert_module.html",
        "ansible.builtin.assert",
    ),
    "label ansible_collections.ansible.builtin.debug_module": (
        "collections/ansible/builtin/debug_module.html",
        "ansible.builtin.debug",
    ),
    "label ansible_collections.ansible.builtin.local_connection": (
        "collections/ansible/builtin/local_connection.html",
        "ansible.builtin.local",
    ),
    "label ansible_configuration_settings": ("reference_appendices/config.html", "Ansible configuration settings"),
    "label callback_plugins": ("plugins/callback.html#callback-plugins", "Callback plugins"),
    "label common_return_values": ("reference_appendices/common_return_values.html", "Common return values"),
    "envvar ANSIBLE_STDOUT_CALLBACK": (
        "reference_appendices/config.html#envvar-ANSIBLE_STDOUT_CALLBACK",
        "ANSIBLE_STDOUT_CALLBACK",
    ),
}
_ROWS = "".join(
    f"{target} std:{kind} -1 {page} {name}\n"
    for (kind, target), (page, name) in ((key.split(), value) for key, value in ANSIBLE.items())
)
_INVENTORY = Path(__file__).parent / "ansible.inv"
_INVENTORY.write_bytes(
    b"# Sphinx inventory version 2\n# Project: Ansible\n# Version: latest\n"
    b"# The remainder of this file is compressed using zlib.\n" + zlib.compress(_ROWS.encode())
)
intersphinx_mapping = {"ansible": ("https://docs.ansible.com/projects/ansible/latest/", str(_INVENTORY))}


def _list_the_pages(_app: object, name: str, source: list[str]) -> None:
    """Add the list of all pages to the first page of the site; a reader of a checkout or of GitHub needs none."""
    if name == "index":
        source[0] += "\n" + (Path(__file__).parent / "toctree.txt").read_text()


def _link_the_repository(_app: object, name: str, source: list[str]) -> None:
    """Turn links to files outside docs/, which work in a checkout, into links to the repository."""
    outside = re.escape("../" * (name.count("/") + 1))
    source[0] = re.sub(rf"\]\({outside}([^)]+)\)", rf"]({GALAXY['repository']}/blob/main/\1)", source[0])


def setup(app: object) -> None:
    app.connect("source-read", _list_the_pages)  # type: ignore[attr-defined]
    app.connect("source-read", _link_the_repository)  # type: ignore[attr-defined]
