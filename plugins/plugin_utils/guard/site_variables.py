# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the variables that a site sets: names that nothing reads, and values of a wrong type. Pure functions.

A name that is misspelled has no effect otherwise, and a wrong value is reported by each host that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible.module_utils.common import validation
from ansible.module_utils.parsing.convert_bool import BOOLEANS_FALSE, BOOLEANS_TRUE
from ansible.parsing.vault import EncryptedString
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.specifications import LOOKUPS, PLAYBOOKS, ROLES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.trust import OWN_FACTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.variables import VARIABLES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import nearest, shown

OWN_PREFIXES = (
    "dra_driver_",
    "fabric_",
    "imex_",
    "k8s_topology_",
    "nvlink_",
    "rollout_",
    "slurm_tiers_",
    "slurm_topology_",
)
"""No one else's variables begin with these, as they may with site_, slurm_, report_, render_, verify_, edit_, drain_,
resume_ and spares_."""

MAX_EDITS = 2
# In a short name edits change too much of it: temp_dir is no demo_dir, and vendor_dir no render_dir, by two.
MIN_LENGTH = 5
MAX_SHORT = 10

KNOWN = VARIABLES | OWN_FACTS
EVERY_SPECIFICATION: dict[str, Mapping[str, Any]] = {
    name: spec
    for known in (*(playbook["variables"] for playbook in PLAYBOOKS.values()), LOOKUPS, *ROLES.values())
    for name, spec in known.items()
}
"""Variable -> specification of all that a person sets; others in KNOWN are results and constants of the collection."""

MAX_SENTENCES = 5
Value = tuple[str, Any]
"""Where a variable is set, and its value, not templated."""

_CONVERSIONS = {
    "bool": (validation.check_type_bool, "true or false"),
    "dict": (validation.check_type_dict, "key: value lines under it"),
    "float": (validation.check_type_float, "a number"),
    "int": (validation.check_type_int, "an integer"),
    "list": (validation.check_type_list, "a list"),
}
_LARGE = frozenset({"ansible_facts", "groups"})
_SECRET = re.compile(r"password|passwd|secret|token|credential|private", re.IGNORECASE)


def _letters(name: str) -> int:
    """The letters of a name as bits."""
    bits = 0
    for letter in name:
        bits |= 1 << ord(letter) % 64
    return bits


_LETTERS_OF = {known: _letters(known) for known in EVERY_SPECIFICATION}


def unknown(names: Collection[str], more: Collection[str] = ()) -> dict[str, str]:
    """Names that nothing reads and that look like ours -> the variable that was meant, or an empty text.

    more: further names that are known.
    """
    found = {}
    for name in names:
        if name in KNOWN or name in more or name.startswith(("ansible_", "_")) or len(name) < MIN_LENGTH:
            continue
        close = [
            (number, known)
            for known in _candidates(name)
            if (number := edits(name, known)) < MAX_EDITS
            or (number == MAX_EDITS and (len(name) > MAX_SHORT or known.startswith(OWN_PREFIXES)))
        ]
        if close:
            found[name] = min(close)[1]
        elif name.startswith(OWN_PREFIXES):
            found[name] = ""
    return found


def _candidates(name: str) -> Iterator[str]:
    """The variables that may be within MAX_EDITS of a name: an edit changes one letter, and to count edits is slow."""
    letters = _letters(name)
    for known, others in _LETTERS_OF.items():
        if (
            abs(len(known) - len(name))
            <= MAX_EDITS
            >= max((letters & ~others).bit_count(), (others & ~letters).bit_count())
        ):
            yield known


def named_in(value: Any) -> Iterator[str]:
    """The texts in a value that may name a variable, as leaf_variable of slurm_topology_other_topologies does."""
    if isinstance(value, Mapping):
        for entry in value.values():
            yield from named_in(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from named_in(entry)
    elif isinstance(value, str) and value.isidentifier():
        yield value


def in_templates(names: Collection[str], values: Iterable[tuple[str, Value]]) -> set[str]:
    """Those of the names that a template in the values has, as in ``imex_network: "{{ fabric_net_of_mine }}"``."""
    found: set[str] = set()
    if not names:
        return found
    words = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    # Hosts share most values, and Ansible's own, such as groups, are large and no templates.
    waiting = list({id(value): value for name, (_where, value) in values if name not in _LARGE}.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif _is_template(value):
            found.update(words.findall(value))
    return found


def unknown_sentences(values: Mapping[str, Value], others: Sequence[tuple[str, Value]] = ()) -> list[str]:
    """A sentence for each unknown name. others: further values, whose templates may read it."""
    named = {name for known in values.keys() & EVERY_SPECIFICATION.keys() for name in named_in(values[known][1])}
    found = unknown(values, named)
    read = in_templates(found, (*values.items(), *others))
    return [
        f"{name} ({values[name][0]}) is a variable that nothing reads"
        + (f"; did you mean {meant}?" if meant else "; correct its name or remove it.")
        for name, meant in found.items()
        if name not in read
    ]


def wrong_sentences(values: Iterable[tuple[str, Value]], known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each wrong part of the values of known variables; of the hosts of a group, the first."""
    found: dict[tuple[str, str], str] = {}
    for name, (where, value) in values:
        if name in known:
            for place, what in problems(name, value, known[name]):
                found.setdefault((place, what), f"{place} ({where}) {what}{'' if what.endswith('?') else '.'}")
    return list(found.values())


def joined(sentences: Sequence[str]) -> str:
    """All sentences as one message, of which the first ones are said."""
    more = len(sentences) - MAX_SENTENCES
    return " ".join([*sentences[:MAX_SENTENCES], *([f"There are {more} more of these."] if more > 0 else [])])


def edits(one: str, other: str, limit: int = MAX_EDITS) -> int:
    """How many letters to insert, delete, replace or swap to make one text of the other; at most limit + 1."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > limit and min(before) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def specifications(playbook: str) -> dict[str, Mapping[str, Any]]:
    """Variable -> specification of what a playbook reads, with its roles and the playbooks that it imports."""
    own = PLAYBOOKS.get(playbook, {"imports": [], "roles": [], "variables": {}})
    found: dict[str, Mapping[str, Any]] = dict(LOOKUPS)
    for imported in own["imports"]:
        found.update(specifications(imported))
    found.update(own["variables"])
    for role in own["roles"]:
        found.update(ROLES[role])
    return found


def problems(place: str, value: Any, spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(place, what is wrong) of each wrong part of a value: ``("slurm_tiers[0].all", "is 3, write true or false")``.

    A template is judged by the task that evaluates it, and a value that is null is the same as one that is left out.
    """
    if value is None or isinstance(value, EncryptedString) or _is_template(value):
        return
    kind = spec.get("type", "str")
    if "names" in spec and kind == "dict" and isinstance(value, str) and "=" not in value:
        value = {value: None}
    if kind in _CONVERSIONS:
        convert, expected = _CONVERSIONS[kind]
        try:
            value = convert(value)
        except (TypeError, ValueError):
            # A dictionary may contain a secret.
            what = "is not a dictionary" if kind == "dict" else _is(place, value, spec)
            yield place, f"{what}, write {expected}"
            return
    if kind == "list":
        inner = {
            "type": spec.get("elements", "raw"),
            **{key: spec[key] for key in ("choices", "options", "names") if key in spec},
        }
        for number, entry in enumerate(value):
            yield from problems(f"{place}[{number}]", entry, inner)
    elif kind == "dict":
        yield from _keys(place, value, spec["options"]) if "options" in spec else ()
    elif isinstance(value, (Mapping, list)) and (kind == "path" or "choices" in spec):
        yield place, f"is a {'dictionary' if isinstance(value, Mapping) else 'list'}, write a text"
    elif "choices" in spec and not _is_choice(value, spec["choices"]):
        yield place, f"{_is(place, value, spec)}{nearest(value, filter(None, map(str, spec['choices'])))}"


def _keys(place: str, value: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    unknown_keys = [key for key in value if key not in options]
    for key in unknown_keys:
        yield place, f"has the unknown key {shown(key)}{nearest(key, options)}"
    for key, option in options.items():
        if value.get(key) is not None:
            yield from problems(f"{place}.{key}", value[key], option)
        # A misspelled key is said once.
        elif option.get("required") and not unknown_keys:
            yield place, f"has no {key}, add it"


def _is_choice(value: Any, choices: Sequence[Any]) -> bool:
    """Whether it is one of the choices. YAML makes a boolean of off and yes, of which Ansible makes the word again."""
    word = str(value)
    words = {"True": BOOLEANS_TRUE, "False": BOOLEANS_FALSE}.get(word, ())
    return any(str(choice) == word or choice in words for choice in choices)


def _is(place: str, value: Any, spec: Mapping[str, Any]) -> str:
    """What the value is, without a secret."""
    if spec.get("no_log") or _SECRET.search(place):
        return "has a wrong value, which is not shown"
    return f"is {shown(value)}"


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and ("{{" in value or "{%" in value)
