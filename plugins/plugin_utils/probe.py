# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe: the program that the source ssh sends to a tray's Python, which prints the facts of that tray.

It is one Python program around the files of module_utils that the module fabric_facts runs, so both return the same.
It writes no file on the tray, and needs only Python 3.9 with its standard library there.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import marshal
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts as fabric_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fanout import MAX_OUTPUT
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import json_document

PACKAGE = "ansible_collections.rackscale.nvlink.plugins.module_utils"
ENTRY = "gpu.facts"
CATALOGUE = "findings"
# Modules that only a guarded probe needs.
GUARD = ("child", "gpu.nvidia_smi")

# The facts are between these as JSON on one line, whatever a login shell prints before and after.
BEGIN, END = "nvlink-facts-1:", ":nvlink-facts-end"

# Run by python3 -c, so that standard input stays free for the program itself. No character that a shell would
# interpret within single quotes. -I and -S: the tray's environment, site-packages and home directory are ignored.
BOOTSTRAP = "import marshal,sys;a=marshal.load(sys.stdin.buffer);exec(a[0],a[1])"
FLAGS = ("-I", "-S")

# A module runs when one of its names is first used: nvidia_smi, for one, only where NVML does not respond.
# Importing whole modules would take half of a probe's time, so reduced ones stand in for them: signal without its
# enums, os with the names of posix alone, and empty ones where only types are used. ctypes is built on the same _ctypes
# as the library's own, with what these modules use; where that fails it is imported.
_PROGRAM = """
import _signal, gc, marshal, posix, sys
gc.disable()
_signal.alarm(limit)

class NamedTuple:
    def __init__(self, *values, **named):
        self.__dict__.update(zip(type(self).__annotations__, values), **named)
    def _replace(self, **named):
        return type(self)(**{**self.__dict__, **named})

class Os(type(sys)):
    def __getattr__(self, name):
        return getattr(posix if hasattr(posix, name) else full("os"), name)

class Types(type(sys)):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

types = Types("types")
types.NamedTuple = NamedTuple

def foreign():
    import _ctypes

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO

    class CDLL:
        def __init__(self, name, use_errno=True):
            self._handle = _ctypes.dlopen(name, _ctypes.RTLD_LOCAL)
        def __getattr__(self, name):
            function = self.__dict__[name] = Function((name, self))
            return function

    ctypes = type(sys)("ctypes")
    for name, letter in simple.items():
        setattr(ctypes, name, type(_ctypes._SimpleCData)(name, (_ctypes._SimpleCData,), {"_type_": letter}))
    Function._restype_ = ctypes.c_int
    ctypes.CDLL = CDLL
    ctypes.create_string_buffer = lambda size: (ctypes.c_char * size)()
    for name in ("Structure", "byref", "get_errno", "sizeof"):
        setattr(ctypes, name, getattr(_ctypes, name))
    return ctypes

simple = {"c_char": "c", "c_char_p": "z", "c_int": "i", "c_longlong": "q", "c_uint": "I", "c_uint8": "B"}
simple.update({"c_ulonglong": "Q", "c_ushort": "H", "c_void_p": "P"})
light = {"__future__": types, "collections.abc": types, "os": Os("os"), "signal": _signal, "typing": types}
full = __import__
try:
    light["ctypes"] = foreign()
except (AttributeError, ImportError, TypeError, ValueError):
    pass

def load(name, *rest):
    return light[name] if name in light else full(name, *rest)

builtins = {**vars(sys.modules["builtins"]), "__import__": load}

class Module(type(sys)):
    def __getattr__(self, name):
        part = parts.pop(self.__name__, None)
        if part is None:
            raise AttributeError(name)
        self.__builtins__ = builtins
        exec(part if same else compile(part, self.__name__, "exec"), self.__dict__)
        return getattr(self, name)

package = sys.modules[PACKAGE] = type(sys)(PACKAGE)
for part in (*parts, *absent):
    sys.modules[part] = Module(part)
    parent, _dot, name = part.rpartition(".")
    setattr(sys.modules.setdefault(parent, type(sys)(parent)), name, sys.modules[part])
package.gpu = sys.modules[PACKAGE + ".gpu"]

class Reply:
    class result:
        timed_out = False
    def __init__(self, value):
        self.value = value

if absent:
    # No child. NVML's progress goes to descriptor 2, which from here would reach the controller.
    posix.dup2(posix.open("/dev/null", posix.O_RDWR), 2)
    package.child.calls = lambda functions, timeout: [Reply(function()) for function in functions]
facts = package.gpu.facts.gather(*options)
try:
    # The same as json.dumps(), without the regular expressions that json imports.
    import _json
    quote = _json.encode_basestring_ascii
    text = "".join(_json.make_encoder(None, None, quote, None, ":", ",", False, False, True)(facts, 0))
except Exception:
    import json
    text = json.dumps(facts, separators=(",", ":"))
sys.stdout.write("\\n" + BEGIN + text + END + "\\n")
sys.stdout.flush()
posix._exit(0)
"""
_START = """
import _frozen_importlib_external, marshal, sys, zlib
same = magic == _frozen_importlib_external.MAGIC_NUMBER
size, squeezed = code if same else marshal.load(sys.stdin.buffer)
program, parts = marshal.loads(zlib.decompress(squeezed, bufsize=size))
exec(program)
"""


@functools.lru_cache(maxsize=4)
def packed(backend: str, nvidia_smi: str, timeout: float, limit: int, guarded: bool = True) -> bytes:
    """The probe as BOOTSTRAP reads it; it ends itself after `limit` seconds. Equal calls give equal bytes.

    `guarded`: it calls NVML in a child, and returns facts whether NVML responds or not. Otherwise it calls NVML itself,
    in two thirds of the time, and returns facts where NVML succeeds soon; else it ends, or hangs, without output.
    """
    source = _plain((_PROGRAM, {name: text for name, (text, _code) in parts(guarded)}))
    # One dump of all, so that constants that modules share are in it once.
    code = marshal.dumps(
        (_byte_code(ast.parse(_PROGRAM), "probe"), {name: code for name, (_text, code) in parts(guarded)})
    )
    names = {
        "PACKAGE": PACKAGE,
        "BEGIN": BEGIN,
        "END": END,
        "magic": importlib.util.MAGIC_NUMBER,
        "limit": limit,
        "absent": () if guarded else tuple(f"{PACKAGE}.{name}" for name in GUARD),
        "options": (backend, nvidia_smi, timeout),
        "code": _squeezed(code),
    }
    # The source comes last, so that a tray that can use the byte code need not read it.
    return _plain((_START, names)) + _plain(_squeezed(source))


def _plain(value: Any) -> bytes:
    """Version 2 of the format has no references, so equal values give equal bytes, and every Python 3 reads it."""
    return marshal.dumps(value, 2)


def _squeezed(raw: bytes) -> tuple[int, bytes]:
    """(its size, the bytes compressed)."""
    return len(raw), zlib.compress(raw)


@functools.cache
def parts(guarded: bool = True) -> tuple[tuple[str, tuple[str, CodeType]], ...]:
    """(full module name, (its source, its byte code for this Python)) of all modules of a probe.

    Those that fabric_facts imports, without GUARD where it is not guarded. Trays with the controller's version of
    Python use the byte code, which halves the probe's time.
    """
    directory = Path(fabric_facts.__file__).parents[1]
    sources: dict[str, str] = {}
    trees: dict[str, ast.Module] = {}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name not in trees and (guarded or name not in GUARD):
            sources[name] = (directory / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
            trees[name] = ast.parse(sources[name])
            waiting += _imported(trees[name])
    _leave_out_rows(trees[CATALOGUE], (text for name, text in sources.items() if name != CATALOGUE))
    sources[CATALOGUE] = ast.unparse(trees[CATALOGUE])
    return tuple(
        (f"{PACKAGE}.{name}", (sources[name], _byte_code(tree, f"{PACKAGE}.{name}")))
        for name, tree in sorted(trees.items())
    )


def _leave_out_rows(catalogue: ast.Module, others: Iterable[str]) -> None:
    """Keep only the catalogue's rows (two thirds of the code) that other sources name, and only their severities."""
    named = {word for source in others for word in re.findall(r'"(\w+)"', source)}
    table = next(node for node in ast.walk(catalogue) if isinstance(node, ast.Dict))
    rows = [row for row in zip(table.keys, table.values) if isinstance(row[0], ast.Constant) and row[0].value in named]
    table.keys, table.values = map(list, zip(*rows))
    for entry in table.values:
        if isinstance(entry, ast.Call):
            del entry.args[1:]


def _byte_code(tree: ast.Module, name: str) -> CodeType:
    """Byte code without docstrings and line numbers."""
    return _without_lines(compile(tree, name, "exec", dont_inherit=True, optimize=2))


def _without_lines(code: CodeType) -> CodeType:
    parts = [_without_lines(part) if isinstance(part, CodeType) else part for part in code.co_consts]
    return code.replace(co_linetable=b"", co_consts=tuple(parts))


def _imported(tree: ast.Module) -> Iterator[str]:
    """The names, such as `nvml`, of the modules of module_utils that a source imports at its top."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == PACKAGE:
                yield from (alias.name for alias in node.names)
            elif node.module == f"{PACKAGE}.gpu":
                yield from (f"gpu.{alias.name}" for alias in node.names)
            elif node.module.startswith(f"{PACKAGE}."):
                yield node.module.removeprefix(f"{PACKAGE}.")


def facts_in(output: bytes) -> dict[str, Any] | None:
    """The facts in the output of a tray; None if there are none, or only part of them."""
    begin = output.rfind(BEGIN.encode())
    end = output.find(END.encode(), begin)
    if begin < 0 or end < 0:
        return None
    try:
        facts = json_document(output[begin + len(BEGIN) : end], MAX_OUTPUT)
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None
