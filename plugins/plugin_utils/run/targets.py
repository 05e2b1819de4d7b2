# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person names for a run and does not exist: tags, hosts of --limit, patterns, trays, files.

Ansible ends with exit status 0 where a play has no host, and runs nothing for a tag that no task has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible.errors import AnsibleUndefinedVariable
from ansible.inventory.manager import split_host_pattern
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import (
    CHECKS,
    PATTERNS,
    VARIABLES,
    RunCheck,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import like_group, nearest, shown, similar

SWITCHES = "nvlink_switches"
"""The group of NVLink switches, which are read over HTTPS: Ansible never connects to them, and none is a tray."""

TAGS = {name: check.tags for name, check in CHECKS.items() if check.tags}
"""The tags of each playbook that has any."""

_EMPTY_GROUP = {
    "nvlink": "add an inventory source that reads the fabric file, such as -i cluster.nvlink.yml, or name the trays"
    " with -e {name}=PATTERN",
    "slurm_controller": "put the host of slurmctld into it, or name its group with -e {name}=GROUP",
    "trays": "put the trays into it, or use -e {name}=PATTERN",
}
"""Default group of a play -> what to do where it has no host."""

_CHECK = "; check the name"
_OF_ANSIBLE = ("all", "always", "untagged")
_COLLECTION = "rackscale.nvlink."


@dataclass(frozen=True)
class Run:
    """The inventory and the limit of a run.

    groups: group -> its hosts. selected: the hosts that --limit leaves, or all. limit: the text of --limit, empty
    without one. match: the hosts of the inventory for a pattern. unread: returns why an inventory source with a fabric
    file was not read, empty if none is known. value: name of a variable -> its value for the play or localhost, None
    where it is not set.
    """

    groups: Mapping[str, Sequence[str]]
    selected: Collection[str]
    limit: str
    match: Callable[[str], Sequence[str]]
    unread: Callable[[], str] = str
    value: Callable[[str], Any] = lambda _name: None

    def matched(self, names: Iterable[str]) -> list[str]:
        """The hosts of the inventory that match the patterns in these variables."""
        return [host for name in names for host in self.match(pattern_of(name, self.value(name)))]

    @property
    def hosts(self) -> list[str]:
        apart = {"localhost", *self.groups.get(SWITCHES, ())}
        return [name for name in self.groups.get("all", ()) if name not in apart]


def own_playbooks(arguments: Sequence[str], folder: str) -> list[str] | None:
    """The names of this collection's playbooks on the command line; None if any is not of this collection.

    folder: the folder of this collection's playbooks.
    """
    names = []
    for argument in arguments:
        if argument.startswith(_COLLECTION):
            names.append(argument.removeprefix(_COLLECTION))
        elif os.path.realpath(os.path.dirname(argument) or ".") == os.path.realpath(folder):
            names.append(os.path.splitext(os.path.basename(argument))[0])
        else:
            return None
    return names or None


def wrong_tags(playbooks: Sequence[str] | None, given: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """One sentence for each tag that no task of the run has. given: option (--tags, --skip-tags) -> tags.

    playbooks: those of this collection, None for a playbook of the site: its tags are unknown, so only a tag that is
    similar to one of this collection is named.
    """
    known = list(dict.fromkeys(tag for name in playbooks or TAGS for tag in TAGS.get(name, ())))
    allowed = {*known, *_OF_ANSIBLE, *(("tagged",) if known else ())}
    for option, tags in given.items():
        for tag in tags:
            if tag in allowed or (option == "--skip-tags" and tag in ("never", "tagged")):
                continue
            if playbooks is None:
                if hint := similar(tag, known):
                    yield f"{option}: {shown(tag)} is no tag of rackscale.nvlink{hint}"
            elif known:
                named = f"the playbook {' and '.join(playbooks)}{nearest(tag, known)}"
                yield f"{option}: {shown(tag)} is no tag of {named}"
            else:
                yield f"{option}: the playbook {' and '.join(playbooks)} has no tags; leave {option} out"


def wrong_parts(
    playbooks: Sequence[str] | None, given: Mapping[str, Sequence[str]], extra: Collection[str]
) -> Iterator[str]:
    """One sentence for each part that other tags leave out, and for each variable that the chosen part does not read.

    playbooks, given: as of wrong_tags. extra: the names of the extra variables.
    """
    chosen = given["--tags"]
    for part in sorted(tag for check in CHECKS.values() for tag in check.alone):
        if part in chosen and (len(chosen) > 1 or given["--skip-tags"]):
            yield f"--tags: {part} runs alone; leave the other tags and --skip-tags out"
        if part in chosen:
            # Otherwise a run that was to drain a tray would end without a drain, and without an error.
            owners = [CHECKS[name] for name in playbooks or () if part in TAGS.get(name, ())]
            names = sorted({name for check in owners for name in check.required if name in extra})
            yield from (f"{name}: --tags {part} does not read it; leave the tag or {name} out" for name in names)
        if part not in chosen and any(part in TAGS.get(name, ()) for name in playbooks or ()):
            names = sorted(name for name in extra if name.startswith(f"{part}_"))
            yield from (f"{name}: only --tags {part} reads it; add the tag or leave {name} out" for name in names)


def problems(
    check: RunCheck, run: Run, on_host: Callable[[str, str], Any], extra: Collection[str], check_mode: bool
) -> Iterator[str]:
    """One sentence for each thing that a run names and that does not exist, in the order of importance.

    FabricFileError for the fabric file itself.

    on_host: (host, name of a variable) -> its value there. extra: the names of the extra variables.
    """
    yield from (row for name, row in missing_files(check, run) if name in extra)
    trays_of = run.value("nvlink_fabric_file") or "the source of the trays in the inventory"
    yield from named_like_groups(run, str(trays_of))
    if check.whole and run.limit:
        yield f"--limit {run.limit}: this playbook needs all controllers and trays of its domains; leave --limit out"
    yield from wrong_limit(run, split_host_pattern(run.limit) if run.limit else [], check.localhost)
    yield from (missing(name, run, on_host) for name in check.required)
    for name in check.renames:
        yield wrong_pairs(name, run.value(name))
    # The plan names the variable of site, and a run of Slurm alone needs no tray.
    for name in () if check.plan else check.patterns:
        yield wrong_pattern(run, name, run.value(name), in_run=True)
    for name in (*check.inventory_patterns, *filter(run.value, check.optional_patterns)):
        yield wrong_pattern(run, name, run.value(name), in_run=False)
    if check.fabric_variable:
        # As the Slurm controller has it, whose group may set the file.
        host = next(iter(run.matched((*check.patterns, *check.inventory_patterns))), "localhost")
        path = fabric_file.path_from(lambda name: on_host(host, name), check.fabric_variable)
        fabric_file.load(absolute(fabric_file.required(path)))
    # A discovery in check mode places new trays in no file.
    names = {name: name in check.placed and not check_mode for name in (*check.trays, *check.placed) if run.value(name)}
    given = absolute(fabric_file.required(fabric_file.path_from(run.value))) if names else ""
    # Before the first file exists, the first trays are named by the inventory.
    fabric = fabric_file.load(given) if os.path.exists(given) else Fabric()
    for name, placed in names.items():
        yield wrong_trays(run, fabric, name, run.value(name), placed)


def missing(name: str, run: Run, on_host: Callable[[str, str], Any]) -> str:
    """One sentence about a variable that must be set; empty if it is. on_host: as of problems()."""
    try:
        value = fabric_file.path_from(run.value) if name == "fabric_file" else run.value(name)
    except AnsibleUndefinedVariable as error:
        # Ansible names what a template asks for, and not the variable that has the template.
        return f"{name}: {str(error).splitlines()[0]}; define that, or correct the template"
    if value not in (None, "", [], {}):
        return ""
    example = VARIABLES[name]["example"]
    given = f"""'{{"{name}": {example}}}'""" if VARIABLES[name].get("type") == "dict" else f"{name}={example}"
    host = next((hosts[0] for hosts in run.groups.values() if hosts and on_host(hosts[0], name)), "")
    moved = f", or move it from {host} to the group all, since localhost reads it" if host else ""
    return f"{name}: is not set; add -e {given}{moved}"


def missing_files(check: RunCheck, run: Run) -> Iterator[tuple[str, str]]:
    """(variable, sentence) for each that names no file."""
    for name in check.files:
        path = run.value(name)
        # Of a kubeconfig there may be several. A file may have a colon in its name.
        if path and not any(map(os.path.isfile, map(absolute, (path, *str(path).split(os.pathsep))))):
            yield name, f"{name}: {path} is not a file; correct the path, or run the playbook that writes it first"


def named_like_groups(run: Run, where: str) -> Iterator[str]:
    """One sentence for each tray with the name of a group, also of a source that is read after it.

    Where a play names the group, Ansible takes the host. where: the fabric file, or what else has the trays.
    """
    ours = {*run.groups.get("nvlink", ()), *run.groups.get("nvlink_unplaced", ())}
    for name in sorted(run.groups.keys() & set(run.groups.get("all", ()))):
        if name in ours or name.startswith("nvlink"):
            yield like_group(where, name)


def wrong_limit(run: Run, parts: Sequence[str], localhost: bool) -> Iterator[str]:
    """One sentence for each part of --limit that selects no host, and one where it leaves out localhost.

    parts: the limit, split as Ansible does. localhost: whether the run needs it. An empty group is left to the
    patterns: no tray may be unhealthy just now.
    """
    for part in parts:
        if part[:1] in "!&@" or part in run.groups or part == "localhost" or run.match(part):
            continue
        hint = similar(part, (*run.groups, *run.hosts), _CHECK)
        yield f"--limit: {shown(part)} matches no host of the inventory{hint}"
    if localhost and parts and "localhost" not in run.selected:
        yield f"This playbook runs on localhost too: use --limit {run.limit},localhost"


def pattern_of(name: str, value: object) -> str:
    """The pattern that a variable holds, or its default."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value or PATTERNS[name])


def wrong_pattern(run: Run, name: str, value: object, in_run: bool) -> str:
    """One sentence about a pattern that matches no host, or none of this run; empty if it matches.

    value: what the variable `name` holds, None where it is not set. in_run: whether a host of this run must match.
    """
    pattern = pattern_of(name, value)
    matched = run.match(pattern)
    if switches := sorted(set(matched).intersection(run.groups.get(SWITCHES, ()))):
        what = f"has {switches[0]} of the group {SWITCHES}, to which Ansible does not connect"
        return f"{name}: {shown(pattern)} {what}; write {pattern}:!{SWITCHES}"
    if matched and (not in_run or set(matched) & set(run.selected)):
        return ""
    if matched:
        where = pattern if pattern == PATTERNS[name] else f"{name} ({pattern})"
        return f"--limit {run.limit}: leaves no host of {where}; add one: --limit {run.limit},{matched[0]}"
    if value:
        hint = similar(pattern, (*run.groups, *run.hosts), "; set it to a group or a host that the inventory has")
        return f"{name}: {shown(pattern)} matches no host of the inventory{hint}"
    group = pattern if pattern in _EMPTY_GROUP else "trays"
    if group == "trays" and not run.hosts:
        return "inventory: it has no host; name its file with -i, such as -i hosts.yml"
    unread = run.unread() if group == "nvlink" else ""
    remedy = f", since {unread}" if unread else f"; {_EMPTY_GROUP[group].format(name=name)}"
    return f"group {group}: the inventory has no host in it{remedy}"


def wrong_trays(run: Run, fabric: Fabric, name: str, value: object, placed: bool) -> str:
    """One sentence about the first name of a hostlist that is no tray, clique or domain; empty if all are.

    placed: whether the fabric file must have it; else a host of the inventory does too, such as a new tray.
    """
    if value is None or value == "":
        return ""
    try:
        names = expand(_text(value))
    except NvlinkError as error:
        return f"{name}: {str(error).rstrip('.')}"
    if not names:
        return f"{name}: {shown(value)} names no tray; write such as r01t04 or r01t[01-04]"
    own = {*fabric.trays, *fabric.cliques, *fabric.domains}
    known = own if placed else own.union(run.hosts)
    for tray in names:
        if tray not in known:
            ordered = (*fabric.domains, *fabric.cliques, *fabric.trays, *(() if placed else run.hosts))
            where = "of the fabric file" if placed else "of the fabric file, and no host of the inventory"
            hint = similar(tray, ordered, _CHECK)
            return f"{name}: {shown(tray)} is no tray, clique or domain {where}{hint}"
    return ""


def wrong_pairs(name: str, value: object) -> str:
    """One sentence about the first of the pairs OLD:NEW that is none, or that names a tray again; empty if all are."""
    names: set[str] = set()
    for pair in filter(None, map(str.strip, _text(value or "").split(","))):
        old, colon, new = pair.partition(":")
        if not (old and colon and new) or ":" in new:
            return f"{name}: {shown(pair)} is not OLD:NEW; write such as {name}=r01t03:tray3"
        if old in names:
            return f"{name}: {shown(old)} is renamed twice; name it once"
        names.add(old)
    return ""


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
