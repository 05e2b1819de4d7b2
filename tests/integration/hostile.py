# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hostile tray: a Python interpreter that runs what Ansible sends and answers what its owner wants.

Whoever is root on a tray owns the Python that Ansible's modules run on, so each value that a module returns may be
theirs. The writers below make such an interpreter for ansible_python_interpreter. With pipelining a module comes by
standard input, without it as a file, and discovery of the interpreter uses either. A reading by ssh (tray_reading) has
its program as an argument, and counts as the module fabric_facts.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

REAL = "/usr/bin/python3"

TEXT = r"""#!{real} -I
import base64, json, os, re, signal, subprocess, sys
REAL, ONLY, KIND, VALUE = {real!r}, {only!r}, {kind!r}, base64.b64decode({value!r})
arguments, source, given = sys.argv[1:], b"", None
if arguments and os.path.isfile(arguments[0]):
    with open(arguments[0], "rb") as file:
        source = file.read()
elif not [word for word in arguments if not word.startswith("-") or word == "-c"]:
    source = given = sys.stdin.buffer.read()
elif [word for word in arguments if "nvlink-probe" in word]:
    source, given = b"module_fqn='fabric_facts'", sys.stdin.buffer.read()
# What Ansible sends names its module; all else that runs on the tray's Python gets the tray's Python.
named = re.search(rb"module_fqn['\"]?\s*[:=]\s*['\"]([\w.]+)", source)
if not named or not re.search(ONLY or "", named.group(1).decode()):
    if given is None:
        os.execv(REAL, [REAL, *arguments])
    sys.exit(subprocess.run([REAL, *arguments], input=given).returncode)
if KIND == "hang":
    signal.alarm(1800)  # not for ever: nobody may find it tomorrow
    while True:
        signal.pause()
if KIND == "flood":
    sys.stdout.write('{{"changed": false, "padding": "')
    for _ in range(int(VALUE)):
        sys.stdout.write("x" * 1000000)
    sys.stdout.write('"}}\n')
    sys.exit(0)
done = subprocess.run([REAL, *arguments], input=given, stdout=subprocess.PIPE)
start = done.stdout.find(b"{{")
try:
    result, end = json.JSONDecoder().raw_decode(done.stdout.decode(), max(start, 0))
except ValueError:
    start, end, result = 0, len(done.stdout.decode()), {{"changed": False}}


def merge(old, new):
    for key, value in new.items():
        if value and isinstance(value, dict) and isinstance(old.get(key), dict):
            merge(old[key], value)
        else:
            old[key] = value


merge(result, json.loads(VALUE))
print(done.stdout[:max(start, 0)].decode() + json.dumps(result) + done.stdout.decode()[end:])
sys.exit(done.returncode)
"""


def _write(path: Path, kind: str, value: bytes, only: str | None, real: str) -> Path:
    value = base64.b64encode(value)
    path.write_text(TEXT.format(real=real, only=only, kind=kind, value=value))
    path.chmod(0o755)
    return path


def write_python(path: Path, answer: dict[str, Any], only: str | None = None, real: str = REAL) -> Path:
    """Write a Python that merges `answer` into the result of each module, or of those whose full name `only` finds.

    Dictionaries merge, so {"ansible_facts": {"x": 1}} leaves the module's own facts; every other value, an empty
    dictionary included, replaces.
    A module that prints no JSON gets the answer as its whole result.
    """
    return _write(path, "merge", json.dumps(answer).encode(), only, real)


def write_hang(path: Path, only: str | None = None, real: str = REAL) -> Path:
    """Write a Python that takes a module and never answers."""
    return _write(path, "hang", b"", only, real)


def write_flood(path: Path, only: str | None = None, real: str = REAL) -> Path:
    """Write a Python whose result is valid JSON of 200 MB."""
    return _write(path, "flood", b"200", only, real)
