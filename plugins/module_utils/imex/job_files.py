# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of IMEX per job on a tray, and the checks of slurm.conf for them: pure functions, but for sources().

The program is job.py with all of module_utils that it imports, as one Python file. What it imports at its start is
compiled once per boot; the rest, which only explains failures, when it is first used. The sources follow as comments,
which Python skips eight times as fast as string literals.
"""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import own_source
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, job, job_state, slurm_conf

PACKAGE = "ansible_collections.rackscale.nvlink.plugins.module_utils"
PROGRAM = "/usr/local/libexec/nvlink-imex-job"
DROP_IN = "/etc/systemd/system/nvidia-imex.service.d/50-nvlink-job.conf"
NAME = "50-nvlink-imex"
_MARK = "# Written by the role rackscale.nvlink.imex, which gives each job its nvidia-imex.\n"
# A Prolog that does nothing, for a slurm.conf whose Prolog would match no file.
NOOP = "#!/bin/sh\n# Slurm fails every job where Prolog or Epilog matches no file.\nexit 0\n"
# Option of imex_job -> its lowest and highest value.
RANGES = {"wait": (5, 3600), "stop_wait": (1, 600), "min_trays": (1, 65536), "max_requeues": (0, 1000)}
# Values of slurm.conf for no limit.
_NO_LIMIT = (0, 65534, 65535)

# Replaces a few modules of Python for the parts that every start runs, because their import takes longer than all the
# work of these parts: it has only what they use, and falls back to the module itself. Other parts import Python's own.
_LOADER = '''
import marshal
import os
import sys
import _collections
import _signal
import _socket


class Names(type(sys)):
    """A module of which some names exist at once, and others after its import."""

    def __init__(self, name, **names):
        type(sys).__init__(self, name)
        self.__dict__.update(names)

    def __getattr__(self, name):
        return getattr(__import__(self.__name__, None, None, ["*"]), name)


class Fields(type):
    """The metaclass that makes a class with annotations a named tuple."""

    def __new__(kind, name, bases, space):
        if not bases:
            return type.__new__(kind, name, (tuple,), space)
        fields = tuple(space["__annotations__"])
        defaults = {field: space.pop(field) for field in fields if field in space}

        def new(cls, *values, **named):
            values += tuple(named.pop(field) if field in named else defaults[field] for field in fields[len(values):])
            if named or len(values) != len(fields):
                raise TypeError("no such field")
            return tuple.__new__(cls, values)

        for number, field in enumerate(fields):
            space[field] = _collections._tuplegetter(number, field)
        return type.__new__(kind, name, bases, {**space, "_fields": fields, "__slots__": (), "__new__": new})


class NamedTuple(metaclass=Fields):
    __slots__ = ()

    def _asdict(self):
        return dict(zip(self._fields, self))

    def _replace(self, **named):
        return type(self)(**{**self._asdict(), **named})


class suppress:
    def __init__(self, *kinds):
        self.kinds = kinds

    def __enter__(self):
        pass

    def __exit__(self, kind, *_rest):
        return kind is not None and issubclass(kind, self.kinds)


class Pattern:
    """A regular expression that is compiled at its first use."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __getattr__(self, name):
        import re

        return getattr(re.compile(*self.arguments), name)


class Scan:
    """The settings that the C scanner of json reads from its caller."""

    strict, parse_float, parse_int, parse_constant = True, float, int, float
    object_hook = object_pairs_hook = None
    memo = {}


def loads(text):
    try:
        import _json

        value, end = _json.make_scanner(Scan)(text.strip(" \\t\\n\\r"), 0)
        if end == len(text.strip(" \\t\\n\\r")):
            return value
    except Exception:
        pass
    import json

    return json.loads(text)


def dumps(value, sort_keys=False, **how):
    try:
        import _json

        quote = _json.encode_basestring_ascii
        if not how:
            return "".join(_json.make_encoder(None, None, quote, None, ": ", ", ", sort_keys, False, True)(value, 0))
    except Exception:
        pass
    import json

    return json.dumps(value, sort_keys=sort_keys, **how)


LIGHT = {
    "__future__": Names("__future__", annotations=None),
    "collections.abc": Names("collections.abc", Mapping=None, Sequence=None, Iterable=None, Iterator=None),
    "contextlib": Names("contextlib", suppress=suppress),
    "functools": Names("functools", lru_cache=lambda **_size: lambda function: function),
    "json": Names("json", loads=loads, dumps=dumps),
    "re": Names("re", compile=Pattern),
    "signal": _signal,
    "socket": _socket,
    "typing": Names("typing", Any=None, Callable=None, NamedTuple=NamedTuple),
}


def light(name, *rest):
    return LIGHT[name] if name in LIGHT else __import__(name, *rest)


class Part(type(sys)):
    """A module that runs when one of its names is first used."""

    def __getattr__(self, name):
        if name.startswith("__") or self.__name__ not in NAMES:
            raise AttributeError(name)
        NAMES.remove(self.__name__)
        code = CODE.get(self.__name__)
        if code is not None:
            self.__builtins__ = {**vars(sys.modules["builtins"]), "__import__": light}
        exec(code or compile(source(self.__name__), self.__name__, "exec"), self.__dict__)
        return getattr(self, name)


def source(name):
    """The source of the part, from the comments at the end of this file."""
    with open(__file__, encoding="utf-8") as file:
        text = file.read().partition("\\n#@ %s\\n" % name)[2].partition("\\n#@")[0]
    return "".join(line[2:] + "\\n" for line in text.split("\\n"))


def compiled():
    """The code of the parts that every start runs, cached by the first start of this boot."""
    path = os.path.join(RUN, "code-%s-%s" % (DIGEST, sys.implementation.cache_tag))
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            # What another user could have written is not run.
            if status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022:
                return marshal.loads(file.read())
    except (OSError, EOFError, ValueError, TypeError):
        pass
    code = {name: compile(source(name), name, "exec", optimize=2) for name in FIRST}
    try:
        os.makedirs(RUN, mode=0o755, exist_ok=True)
        new = "%s.%d" % (path, os.getpid())
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(marshal.dumps(code))
        os.replace(new, path)
    except OSError:
        pass  # TaskProlog runs as the user, and can neither read nor write here
    return code


# slurmd may have none: then others could write to what this program creates.
os.umask(0o022)
CODE = compiled()
for name in NAMES:
    sys.modules[name] = Part(name)
for name in NAMES:
    parent = name.rpartition(".")[0]
    if parent not in sys.modules:
        sys.modules[parent] = type(sys)(parent)
        if parent.rpartition(".")[0] in sys.modules:
            setattr(sys.modules[parent.rpartition(".")[0]], parent.rpartition(".")[2], sys.modules[parent])
for name in NAMES:
    setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], sys.modules[name])
status = sys.modules[ENTRY].main(sys.argv[1:], dict(os.environ))
try:
    sys.stdout.flush()
finally:
    os._exit(status)  # skips the interpreter's cleanup
'''


@dataclass(frozen=True)
class DesiredState:
    """The desired state of IMEX per job on a tray, checked."""

    settings: job_state.Settings
    prolog_dir: str
    epilog_dir: str
    python: str


def desired_state(options: Mapping[str, Any], slurm: Mapping[str, Sequence[str]]) -> DesiredState:
    """The desired state by the options of imex_job and the settings of slurm.conf; ImexError for a wrong value."""
    for name, (low, high) in RANGES.items():
        if not low <= options[name] <= high:
            raise files.ImexError(f"option {name} is {options[name]}; use a number from {low} to {high}.")
    members = tuple((str(entry["node"]), str(entry["address"])) for entry in options["members"] or ())
    if any(not line.strip() for _node, line in members):
        raise files.ImexError("option members: a tray has no IMEX address; set its imex_address in the fabric file.")
    if members:
        files.render_nodes(line for _node, line in members)
        if not options["clique"]:
            raise files.ImexError("option clique is missing; name the clique of members.")
    if len({node for node, _line in members}) < len(members):
        raise files.ImexError("option members: a Slurm node is named twice; name each once.")
    channel0 = {"always": True, "never": False}.get(
        options["channel0"], _last(slurm, "switchtype").lower() != slurm_conf.CHANNEL_PLUGIN
    )
    settings = job_state.Settings(
        clique=options["clique"] or "",
        members=members,
        policy=options["policy"],
        scope=options["scope"],
        wait=float(options["wait"]),
        stop_wait=float(options["stop_wait"]),
        min_trays=options["min_trays"],
        max_requeues=options["max_requeues"],
        channel0=channel0,
        path=":".join(options["path"] or ()),
        proc_devices=options["proc_devices"],
    )
    return DesiredState(settings, options["prolog_dir"], options["epilog_dir"], options["python"])


def files_of(desired: DesiredState, parts: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """path -> (text, mode) of every file."""
    return {
        PROGRAM: (program(desired.python, parts), 0o755),
        job_state.SETTINGS_FILE: (render_settings(desired.settings), 0o644),
        DROP_IN: (_drop_in(desired.settings), 0o644),
        f"{desired.prolog_dir}/{NAME}": (_wrapper("prolog"), 0o755),
        f"{desired.epilog_dir}/{NAME}": (_wrapper("epilog"), 0o755),
    }


def render_settings(settings: job_state.Settings) -> str:
    """The settings file, which job_state.settings_of() reads. It has this tray's clique only: 18 trays of 10,368."""
    return json.dumps(settings._asdict(), indent=1, sort_keys=True) + "\n"


def _wrapper(entry: str) -> str:
    return f"#!/bin/sh\n{_MARK}exec {PROGRAM} {entry}\n"


def _drop_in(settings: job_state.Settings) -> str:
    return (
        f"{_MARK}[Unit]\n# Short jobs may start more often than systemd's limit allows.\n"
        "StartLimitIntervalSec=0\n\n"
        "[Service]\n# A restarted daemon cannot restore what the job lost with the old one.\nRestart=no\n"
        f"TimeoutStartSec={settings.wait:g}\nTimeoutStopSec={settings.stop_wait:g}\n"
    )


def program(python: str, parts: Mapping[str, str]) -> str:
    """The text of the program: the same for the same parts."""
    entry = job.__name__
    digest = hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:16]
    names = {
        "NAMES": sorted(parts),
        "FIRST": first(parts),
        "ENTRY": entry,
        "DIGEST": digest,
        "RUN": job_state.RUN,
    }
    # -I and -S: no Python files of a user or the site are imported, and it starts faster.
    head = f"#!{python} -IS\n{_MARK}" + "".join(f"{name} = {value!r}\n" for name, value in names.items())
    return head + _LOADER + "".join(f"#@ {name}\n{_commented(source)}" for name, source in sorted(parts.items()))


def _commented(source: str) -> str:
    return "".join(f"# {line}\n" if line else "#\n" for line in source.rstrip("\n").split("\n"))


def sources() -> dict[str, str]:
    """module -> source, of job.py and all that it imports of module_utils."""
    found: dict[str, str] = {}
    # Ansible sends to a tray only what the module imports.
    waiting = [job.__name__]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        source = own_source.read(name)
        if source is None:
            raise files.ImexError(f"the source of {name} cannot be read here; run the role without a module compiler.")
        found[name] = source
        waiting += _imported(ast.parse(source))
    return found


def first(parts: Mapping[str, str]) -> list[str]:
    """The parts imported at the start, not within functions."""
    found: list[str] = []
    waiting = [job.__name__]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            tree = ast.parse(parts[name])
            waiting += _imported(ast.Module([node for node in tree.body if isinstance(node, ast.ImportFrom)], []))
    return sorted(found)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and (node.module + ".").startswith(f"{PACKAGE}."):
            if node.module in (PACKAGE, f"{PACKAGE}.imex"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module


# --- slurm.conf.


def judge(
    desired: DesiredState, slurm: Mapping[str, Sequence[str]], path: str, calling: Collection[str] = ()
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(errors that block the installation, other findings), from the settings of the tray's slurm.conf.

    ``slurm``: key in lower case -> its values in order. ``calling``: Prolog or Epilog, where the site's own program
    calls the one of this collection.
    """
    errors, advice = [], []
    flags = {flag.strip().lower() for value in slurm.get("prologflags", ())[-1:] for flag in value.split(",")}
    # Contain, X11 and NoHold imply it.
    if not flags & {"alloc", "contain", "x11", "nohold", "deferbatch"}:
        errors.append(
            finding(
                "imex_job_prolog_flags",
                f"PrologFlags in {path} has no Alloc, so a tray's prolog would run at its first step only while"
                " the others wait for it; add PrologFlags=Alloc and run scontrol reconfigure.",
            )
        )
    for key in ("PrologEpilogTimeout", "PrologTimeout", "EpilogTimeout"):
        limit = _number(_last(slurm, key.lower()))
        needs = desired.settings.stop_wait + 30 if key == "EpilogTimeout" else desired.settings.wait + job_state.MARGIN
        if limit is not None and limit not in _NO_LIMIT and limit < needs:
            errors.append(
                finding(
                    "imex_job_wait_too_long",
                    f"{key}={limit} in {path} would end the program before it can report why IMEX is not ready, which"
                    f" may take {needs:g} s; raise that limit, or lower options wait and stop_wait.",
                )
            )
    missing = []
    for key, folder in (("Prolog", desired.prolog_dir), ("Epilog", desired.epilog_dir)):
        patterns = [pattern for value in slurm.get(key.lower(), ()) for pattern in value.split(",")]
        if key not in calling and not any(fnmatch.fnmatch(f"{folder}/{NAME}", pattern.strip()) for pattern in patterns):
            missing.append(f"{key}={folder}/*")
    if missing:
        advice.append(
            finding(
                "imex_job_prolog_unset",
                f"{path} does not run prolog and epilog of IMEX per job; add {' and '.join(missing)} (an existing"
                f" Prolog may call {PROGRAM} prolog instead), and run scontrol reconfigure.",
            )
        )
    if desired.settings.policy == "run" and not _last(slurm, "taskprolog"):
        advice.append(
            finding(
                "imex_job_task_prolog",
                f"A batch job that runs without IMEX has no line about that in its log without a TaskProlog; add"
                f" TaskProlog={PROGRAM} to {path}, or call {PROGRAM} task from the site's own TaskProlog.",
            )
        )
    return errors, advice


def _last(slurm: Mapping[str, Sequence[str]], key: str) -> str:
    return slurm[key][-1] if slurm.get(key) else ""


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
