# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts that a tray gets of files of the controller: the role's templates, and the TLS files of the site."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import trust_as_template
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.phases import Phases


def rendered(
    values: Mapping[str, Any], folders: Sequence[str], loader: DataLoader, template: Callable[[Any], Any]
) -> dict[str, str]:
    """Render the role's templates with the variables of the tray: file on the tray -> text.

    Not by the lookup of Ansible, which copies all variables, those of all groups too, for each tray. folders: in which
    the task searches files.
    """
    texts = dict.fromkeys(domain.TEMPLATES.values(), "")
    for name, path in domain.TEMPLATES.items():
        given = values[name]
        if not given:
            continue
        try:
            found = loader.path_dwim_relative_stack(folders, "templates", given)
            text = loader.get_text_file_contents(found)
            # A template that renders nothing is None for Ansible.
            texts[path] = str(template(trust_as_template(text)) or "")
        except AnsibleError as error:
            raise formats.ImexError(f"{name}: {given} cannot be rendered ({error}); correct it.") from None
    return texts


def tls(change: Phases, loader: DataLoader) -> dict[str, str]:
    """Read key, certificate and authority; a vaulted file is decrypted here, in memory."""
    paths = change.certificate["files"] if change.certificate else change.values["imex_tls_files"] or {}
    contents = {}
    for name in domain.TLS_FILES:
        path = paths.get(name)
        if not path:
            raise formats.ImexError(f"imex_tls_files: {name} is missing; set it to a file.")
        if change.certificate and change.changes_nothing and not os.path.exists(path):
            # No tray has this text, so its file counts as changed.
            contents[name] = "to be made\n"
            continue
        try:
            contents[name] = str(loader.get_text_file_contents(absolute(path)))
            if not contents[name].strip():
                raise ValueError("it is empty")
        except (AnsibleError, OSError, ValueError) as error:
            raise formats.ImexError(
                f"imex_tls_files, {name}: {path} cannot be read ({error}); name a file of the controller."
            ) from None
    return contents
