# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence of an incident on the controller: what a tray and Slurm answered before anything else is changed.

It has real names, so its folder is for its owner alone. Each answer has the limit of the module doctor; what could not
be read is named in index.json. No name of a file comes from a tray.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.capture import LOGS, MAX_CHARACTERS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import answers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import printable, sentence

_TRAY = ("nvidia-smi.xml", "imex-state.txt", "imex.json")
COMMANDS = {**{name: answers.OUTPUTS[name][0] for name in _TRAY}, **LOGS}
"""File -> the command that printed it on the tray."""


def write(path: str, tray: str, now: str, answer: Mapping[str, Any], of_slurm: Any) -> dict[str, str]:
    """Write the evidence of a tray; file -> why it has none, of all that could not be read.

    answer: what the module doctor returned of the tray. of_slurm: the results of a loop over its jobs in Slurm.
    """
    texts, missing = _of_tray(answer)
    commands = dict(COMMANDS)
    about = (row for row in map(mapped, as_list(of_slurm)) if mapped(row["item"][0]).get("tray") == tray)
    for number, row in enumerate(about, 1):
        file, text = f"jobs-{number}.txt", "\n".join(map(str, as_list(row.get("stdout_lines"))))
        commands[file] = " ".join(map(str, as_list(row.get("cmd"))))
        if row.get("failed") or row.get("unreachable"):
            missing[file] = sentence(row.get("stderr") or row.get("msg") or "unreachable")
        else:
            texts[file] = text[-MAX_CHARACTERS:]
    index = {"tray": tray, "at": now, "commands": commands, "missing": missing}
    texts["index.json"] = json.dumps(index, indent=1, sort_keys=True) + "\n"
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        for above in (os.path.dirname(path), path):
            os.chmod(above, 0o700)
        for file, text in texts.items():
            atomic.write(os.path.join(path, file), printable(text).encode("utf-8", "replace"), mode=0o600)
    except OSError as error:
        raise storage.cannot(path, "be written", error) from None
    return missing


def _of_tray(answer: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """(file -> its text, file -> why there is none or why it is no whole answer)."""
    is_whole = "outputs" in answer and not answer.get("failed") and not answer.get("unreachable")
    if not is_whole:
        why = "the tray is unreachable" if answer.get("unreachable") or not answer else sentence(answer.get("msg"))
        return {}, dict.fromkeys(COMMANDS, why or "it failed")
    rows = {str(row.get("name")): row for row in map(mapped, as_list(answer["outputs"]))}
    texts = {name: "".join(map(str, as_list(rows[name].get("parts")))) for name in COMMANDS if name in rows}
    facts = {"versions": mapped(answer.get("versions")), "findings": as_list(answer.get("findings"))}
    texts["facts.json"] = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    missing = {name: str(rows.get(name, {"problem": "not read"}).get("problem") or "") for name in COMMANDS}
    return {name: text for name, text in texts.items() if text}, {name: why for name, why in missing.items() if why}
