# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluate the variables that a site sets: names that nothing reads, and values of a wrong type. Pure functions.

A name that is misspelled has no effect otherwise, and a wrong value is reported by each host that reads it.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.errors import ArgumentTypeError
from ansible.parsing.vault import EncryptedString
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.formats import KEYS, SENSITIVE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import (
    OWN_FACTS,
    OWN_PREFIXES,
    OWNERS,
    PATTERNS,
    VARIABLES,
    words,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

REMOVED = frozenset(
    {
        "benchmark_conf_dir",
        "capture_hosts",
        "dra_driver_extra_keys",
        "dra_driver_waves",
        "fabric_conflict_policy",
        "imex_job_scope",
        "imex_version",
        "k8s_topology_allow_recreate",
        "k8s_topology_topograph",
        "k8s_topology_tray_cliques",
        "rehearsal_file",
        "rollout_slurm_conf_dir",
        "site_phases",
        "slurm_tiers_conf_dir",
        "slurm_tiers_rehearsal_file",
        "slurm_topology_aggregate_blocks",
        "slurm_topology_conf_dir",
        "slurm_topology_format",
        "slurm_topology_live_update",
        "slurm_topology_rehearsal_file",
        "slurm_topology_segments",
        "verify_slurm_conf_dir",
        # One for each key of config.cfg, but those of credentials and the one that the service decides.
        *(f"imex_{key.removeprefix('IMEX_').lower()}" for key in KEYS.keys() - {*SENSITIVE, "DAEMONIZE"}),
    }
)
"""Variables that were removed; each has an anchor in docs/upgrading.md."""

LIKENESS = 0.87
"""Of difflib: a name of 8 letters with one other letter has it. Others' vendor_dir is no render_dir, slurm_user no
slurm_cluster."""

MAX_SENTENCES = 5
Value = tuple[str, Any]
"""Where a variable is set, and its value, not templated."""

_EXPECTED = {
    "bool": "true or false",
    "dict": "key: value lines under it",
    "float": "a number",
    "int": "an integer",
    "list": "a list",
}
QUOTES = 'write it in quotes, such as "4:00:00": without them YAML reads 4:00:00 as 14400, 010 as 8 and on as true'
_SLURM_KEYS = re.compile(
    "(allow|deny)?(accounts|groups|qos)|alternate|(cluster|partition)?name|features?|nodes|topology|preemptmode"
    "|(default|max|preemptexempt)time|maxquerytimerange|priority(calcperiod|decayhalflife|maxage)",
    re.IGNORECASE,
)
"""Names, and what Slurm reads by time_str2mins() and time_str2secs() or has a word off (its read_config.c), among the
settings of its files, most of which are numbers and booleans."""
_LARGE = frozenset({"ansible_facts", "groups"})
_UNQUOTED = (bool, int, float, datetime.date)
_SECRET = re.compile(r"password|passwd|secret|token|credential|private", re.IGNORECASE)


def unknown(names: Collection[str], read: Collection[str] | None = None) -> dict[str, str]:
    """Names that nothing reads and that look like ours -> the variable that was meant, or an empty text.

    read: the variables that the playbook reads, where nobody else may read one of names: an option of a module without
    the name of its role means those, else the others that end with it.
    """
    import difflib  # only needed for a name that may be wrong

    found = {}
    others = words() | OWN_FACTS | REMOVED
    for name in names - VARIABLES.keys():
        ends = [known for known in VARIABLES if known.endswith(f"_{name}") and known[: -len(name) - 1] in OWNERS]
        if read is not None and ends:
            found[name] = " or ".join([known for known in ends if known in read] or ends)
        elif name not in others and not name.startswith(("ansible_", "_")):
            word = name.replace("-", "_")
            close = difflib.get_close_matches(word, VARIABLES, 1, LIKENESS)
            if close or word.startswith(OWN_PREFIXES):
                found[name] = "".join(close)
    return found


def mentioned(values: Iterable[tuple[str, Value]]) -> set[str]:
    """The words in values: a site's own variable is read where another one has it in a template, or names it.

    As in ``imex_network: "{{ fabric_net_of_mine }}"``, or by its name.
    """
    # Ansible's own, such as groups, are large.
    distinct = {id(value): value for name, (_where, value) in values if name not in _LARGE}
    return {word for value in distinct.values() for word in re.findall(r"\w+", repr(value))}


def unknown_sentences(
    values: Mapping[str, Value], others: Sequence[tuple[str, Value]] = (), read: Collection[str] | None = None
) -> list[str]:
    """A sentence for each unknown name. others: further values, which may mention it. read: as of unknown()."""
    found = unknown(values.keys(), read)
    read = mentioned((*values.items(), *others)) if found else set()
    return [
        f"{name} ({values[name][0]}) is a variable that nothing reads"
        + (f"; did you mean {found[name]}?" if found[name] else "; correct its name or remove it.")
        for name in values
        if name in found and name not in read
    ]


def wrong_sentences(values: Collection[tuple[str, Value]], known: Mapping[str, Specification]) -> list[str]:
    """A sentence for each wrong part of the values of known variables; of the hosts of a group, the first."""
    found: dict[tuple[str, str], str] = {}
    evaluated = set()
    for name, (where, value) in values:
        # Hosts share most values.
        if name in known and (name, id(value)) not in evaluated:
            evaluated.add((name, id(value)))
            for place, what in problems(name, value, known[name]):
                found.setdefault((place, what), f"{place} ({where}) {what}{'' if what.endswith('?') else '.'}")
    return list(found.values())


def removed_sentences(values: Iterable[tuple[str, Value]]) -> list[str]:
    """A sentence for each variable that was removed."""
    found = {name: where for name, (where, _value) in values if name in REMOVED}
    return [f"{name} ({found[name]}): removed, see upgrading#{name}." for name in sorted(found)]


def pattern_sentences(values: Iterable[tuple[str, Value]], known: Collection[str]) -> list[str]:
    """A sentence for each pattern of hosts that the inventory sets; known: the variables that the playbook reads.

    Ansible reads the hosts of a play before it has a host, so without variables of the inventory.
    """
    found = {name: where for name, (where, value) in values if name in PATTERNS and name in known and value}
    return [
        f"{name} ({found[name]}) is set in the inventory, where Ansible does not read the hosts of a play; put these"
        f" hosts into the group {PATTERNS[name].partition(':')[0]}, or use -e {name}=PATTERN."
        for name in sorted(found)
    ]


def joined(sentences: Sequence[str]) -> str:
    """All sentences as one message, of which the first ones are said."""
    more = len(sentences) - MAX_SENTENCES
    return " ".join([*sentences[:MAX_SENTENCES], *([f"There are {more} more of these."] if more > 0 else [])])


def problems(place: str, value: Any, spec: Specification) -> Iterator[tuple[str, str]]:
    """(place, what is wrong) of each wrong part of a value: ``("slurm_tiers[0].all", "is 3, write true or false")``.

    A template is evaluated by the task that evaluates it, and a value that is null is the same as one that is left out.
    Ansible evaluates each part alone, since its own message about a whole names neither the entry nor the key.

    YAML 1.1 reads texts without quotes as numbers, dates and booleans: 14400 and 4:00:00, or 60 and 1:00, are one
    number, so no number is a time.
    """
    if value is None or isinstance(value, EncryptedString) or (isinstance(value, str) and re.search("{{|{%", value)):
        return
    kind = spec.get("type", "str")
    # Those of a list are of its elements.
    choices = None if kind == "list" else spec.get("choices")
    # A dictionary may contain a secret.
    nested = "dictionary" if isinstance(value, Mapping) else "list" if isinstance(value, list) else ""
    date = str(value) if isinstance(value, datetime.date) else value
    what = f"is a {nested}" if nested else f"is {shown(date)}"
    if spec.get("no_log") or _SECRET.search(place):
        what = "has a wrong value, which is not shown"
    if kind in ("str", "path") and not choices and isinstance(value, _UNQUOTED):
        yield place, f"{what}, {QUOTES}"
        return
    if kind in ("int", "float") and isinstance(value, bool):
        yield place, f"{what}, write {_EXPECTED[kind]}"
        return
    if nested and (kind == "path" or choices):
        yield place, f"{what}, write a text"
        return
    try:
        result = ArgumentSpecValidator({place: {"type": kind, "choices": choices}}).validate({place: value})
    except OverflowError:  # Ansible's own, for an infinite number, also as a text
        yield place, f"{what}, write {_EXPECTED[kind]}"
        return
    if result.error_messages:
        if not isinstance(result.errors[0], ArgumentTypeError):
            yield place, what + nearest(value, filter(None, map(str, choices or ())))
        elif kind == "dict" and "example" in spec:
            yield place, f"""is not a dictionary, write such as -e '{{"{place}": {spec["example"]}}}'"""
        else:
            yield place, f"{'is not a dictionary' if kind == 'dict' else what}, write {_EXPECTED[kind]}"
        return
    given, value = value, result.validated_parameters[place]
    if kind in ("int", "float") and not 0 <= value < math.inf:
        yield place, f"{what}, write a number from 0"
    elif kind == "list":
        inner = {**spec, "type": spec.get("elements", "raw")}
        # Of a text, which may be several between commas, or of one number, which is that entry alone.
        for number, entry in enumerate([given] if isinstance(given, _UNQUOTED) else value):
            yield from problems(f"{place}[{number}]", entry, inner)
    elif kind == "dict" and (options := spec.get("options")):
        yield from _keys(place, value, options)
    elif kind == "dict" and place.startswith(("slurm_", "tiers[")):
        for key in filter(_SLURM_KEYS.fullmatch, map(str, value)):
            yield from problems(f"{place}.{key}", value.get(key), {"type": "str"})


def _keys(place: str, value: Mapping[str, Any], options: Mapping[str, Specification]) -> Iterator[tuple[str, str]]:
    unknown_keys = [key for key in value if key not in options]
    for key in unknown_keys:
        yield place, f"has the unknown key {shown(key)}{nearest(key, options)}"
    for key, option in options.items():
        if value.get(key) is not None:
            yield from problems(f"{place}.{key}", value[key], option)
        # A misspelled key is said once.
        elif option.get("required") and not unknown_keys:
            yield place, f"has no {key}, add it"
