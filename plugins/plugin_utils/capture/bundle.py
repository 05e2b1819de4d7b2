# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a support bundle, made of what hosts answered to the module doctor. Pure.

`bundle.json` names the hosts, `trays/NAME` and `slurm/NAME` have the answers of each. Every name, path and text is
anonymised; settings of Slurm that are not known to be harmless, and names of processes, are removed. At the end all
files are searched for what was replaced or removed, and a bundle with any of it is not made.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.nvidia_smi import without_process_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import status
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture.anonymise import (
    COMMON,
    Anonymiser,
    CaptureError,
    Table,
    leftovers,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped

FORMAT = 1
REMOVED = "(removed)"
_FILE = re.compile(r"[a-z][a-z-]{0,30}\.(xml|txt|json)")
# Where the cluster UUID stands in each version of NVML's fabric struct (nvml.h of CUDA 13.5): offset in bytes.
_UUID_AT = {4: 0, 3: 4, 2: 4}

# Settings of `scontrol show config` that say how slurmctld places jobs, and hold no name, path or secret of a site.
KEPT_SETTINGS = frozenset(
    {
        "AccountingStorageEnforce",
        "AccountingStorageType",
        "CommunicationParameters",
        "GresTypes",
        "JobCompType",
        "LaunchParameters",
        "MpiDefault",
        "NodeFeaturesPlugins",
        "PreemptMode",
        "PreemptType",
        "PriorityType",
        "ProctrackType",
        "PrologFlags",
        "ReconfigFlags",
        "SchedulerParameters",
        "SchedulerType",
        "SelectType",
        "SelectTypeParameters",
        "SLURM_VERSION",
        "SlurmctldDebug",
        "SlurmctldParameters",
        "SlurmdDebug",
        "SlurmdParameters",
        "SwitchParameters",
        "SwitchType",
        "TaskPlugin",
        "TaskPluginParam",
        "TopologyParam",
        "TopologyPlugin",
    }
)
# The values in the list of a kept setting that are no numbers: fm_url=https://fabric.example.com.
_OPTION = re.compile(r"=(?![0-9.+-]+[A-Za-z%]?(?:,|\Z))[^,]*")
# The lines of `scontrol show config` without a setting.
_PLAIN_LINE = re.compile(
    r"(?m)^(?![ \t]*[A-Za-z][\w-]*(?:\[[0-9]+\])?[ \t]*=|Configuration data as of |Slurmctld\(\w+\) at \S+ is \w+$"
    r"|[A-Z][\w /-]* Configuration:$).*\S.*$"
)
_SETTING = re.compile(r"(?m)^([ \t]*)([A-Za-z][\w-]*(?:\[[0-9]+\])?)([ \t]*=[ \t]*)(.*)$")
_HARMLESS = re.compile(r"[0-9.]{1,12}( ?[A-Za-z%/]{1,9})?|yes|no|none|\(null\)|n/a|infinite|unlimited|", re.IGNORECASE)
_SECRET = re.compile(r"pass|key|secret|token|auth|cred|user", re.IGNORECASE)
_OF_NAMES = re.compile(r"host|addr|domain|machine|controller|cluster_?name", re.IGNORECASE)
# Values of secret settings that are those of every installation.
_USUAL = frozenset({"slurm", "root", "nobody", "munge", "auth/munge", "cred/munge", "auth/slurm", "cred/slurm", "none"})
# Shorter values, such as yes, stand in any text.
_MIN_SECRET = 4
_SERIAL = re.compile(r"<[A-Za-z_]*(?:serial|guid)[A-Za-z_]*>(?!\s*0x)([^<]+)<")
_XML_VALUE = re.compile(r'(?<=>)[^<]*\S[^<]*|"[^"]*"')
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[0-9,-]+\][A-Za-z0-9._-]*)*")
# Hosts of one hostlist that are looked for one by one; of one host, its names and the entries of its IMEX list.
_MAX_NAMES = 100_000
_MAX_OWN_NAMES = 1000
_MAX_NAME = 253


@dataclass(frozen=True)
class Host:
    """One host and what it answered; None where it did not, and ``problem`` says why in a word.

    names: other names and addresses by which the inventory knows it.
    """

    name: str
    names: tuple[str, ...]
    answer: Mapping[str, Any] | None
    problem: str = ""


@dataclass(frozen=True)
class Bundle:
    """files: path -> text. table: what stands for what, which stays at the site. removed: settings of Slurm."""

    files: dict[str, str]
    table: Table
    removed: int

    @property
    def counts(self) -> dict[str, int]:
        """Kind of identifier -> how many were replaced."""
        return {kind: len(rows) for kind, rows in self.table.items() if rows}


def make(trays: Sequence[Host], controllers: Sequence[Host]) -> Bundle:
    """The bundle of these hosts; CaptureError where an identifier is left in it."""
    hosts = (*trays, *controllers)
    for host in hosts:
        if not re.search("[A-Za-z:.]", host.name):
            raise CaptureError(
                f"the inventory name {host.name} has no letter, which looks like a number; rename that host"
            )
    outputs = {host.name: dict(_outputs(host)) for host in hosts}
    names = {*_names(hosts, outputs)}
    settings = [row for texts in outputs.values() for row in _SETTING.findall(texts.get("config.txt", ""))]
    anonymiser = Anonymiser(_texts(hosts, outputs), names, _serials(trays, outputs))
    files: dict[str, str] = {}
    index: dict[str, Any] = {"format": FORMAT}
    for folder, members in (("trays", trays), ("slurm", controllers)):
        index[folder] = {}
        for host in members:
            name = anonymiser.rewrite(host.name)
            if name in index[folder]:
                raise CaptureError(f"two hosts have the name of {host.name} but for case; give one another name")
            index[folder][name] = _index_row(host, anonymiser.rewrite)
            files.update((f"{folder}/{name}/{file}", text) for file, text in _files(host, outputs, anonymiser))
    files["bundle.json"] = _json(index)
    found = leftovers(files, [*_originals(anonymiser.table, names), *_secrets(settings)])
    if found:
        path, original = found[0]
        raise CaptureError(
            f"{path} would still hold {original!r} after anonymising ({len(found)} such places), so no bundle is"
            " written; report it as a bug, and leave out the hosts that hold it until then"
        )
    removed = sum(not _is_kept(key, value.strip()) for _indent, key, _sign, value in settings)
    return Bundle(files, anonymiser.table, removed)


def archive(files: Mapping[str, str], folder: str) -> bytes:
    """The files as .tar.gz below one folder; the same files give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, text in sorted(files.items()):
            data = text.encode()
            member = tarfile.TarInfo(f"{folder}/{path}")
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


# --------------------------------------------------------------------------------------------- what identifies the site


def _outputs(host: Host) -> Iterator[tuple[str, str]]:
    """(file, text) of the outputs of a host."""
    for row in _rows(host):
        name = str(row.get("name") or "")
        if _FILE.fullmatch(name):
            yield name, "".join(str(part) for part in as_list(row.get("parts")))


def _rows(host: Host) -> list[Mapping[str, Any]]:
    return [mapped(row) for row in as_list(mapped(host.answer).get("outputs"))]


def _names(hosts: Iterable[Host], outputs: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The names of hosts, domains, clusters and blocks, those in hostlists one by one."""
    for host in hosts:
        own = map(str, as_list(mapped(host.answer).get("names"))[:_MAX_OWN_NAMES])
        yield from (host.name, *host.names, *(name for name in own if len(name) <= _MAX_NAME))
        texts = outputs[host.name]
        for name in ("imex-table.txt", "imex.json"):
            yield from _of_imex(texts.get(name, ""))
        for _key, value in re.findall(r"([A-Za-z]+)=(\S+)", texts.get("topology.txt", "")):
            yield from _of_hostlists(value)
        for _indent, key, _sign, value in _SETTING.findall(texts.get("config.txt", "")):
            if _OF_NAMES.search(key) and not _HARMLESS.fullmatch(value.strip()):
                yield from _of_hostlists(value)


def _of_hostlists(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if word.replace(".", "").isdecimal():
            continue
        try:
            yield from expand(word)[:_MAX_NAMES]
        except HostlistError:
            yield word


def _of_imex(text: str) -> Iterator[str]:
    try:
        nodes = status.parse_domain(text).nodes.values()
    except status.StatusError:
        return
    yield from (name for node in nodes for name in (node.host, node.host_name) if name and re.search("[A-Za-z]", name))


def _serials(trays: Iterable[Host], outputs: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for tray in trays:
        yield from _SERIAL.findall(outputs[tray.name].get("nvidia-smi.xml", ""))
        for gpu in _gpus(tray):
            yield str(mapped(gpu.get("platform")).get("chassis_serial") or "")


def _texts(hosts: Iterable[Host], outputs: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Every text of a bundle, and the cluster UUIDs of structs as texts."""
    for host in hosts:
        yield from outputs[host.name].values()
        yield from (str(row.get("problem") or "") for row in _rows(host))
        answer = {key: value for key, value in mapped(host.answer).items() if key != "outputs"}
        yield json.dumps(answer)
        for gpu in _gpus(host):
            for row in map(mapped, as_list(gpu.get("structs"))):
                _before, uuid, _after = _split_struct(row)
                text = uuid.hex()
                yield "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])) if uuid else ""


def _gpus(host: Host) -> list[Mapping[str, Any]]:
    return [mapped(gpu) for gpu in as_list(mapped(mapped(host.answer).get("nvml")).get("gpus"))]


def _split_struct(row: Mapping[str, Any]) -> tuple[bytes, bytes, bytes]:
    """The bytes of a fabric struct before, of and after the cluster UUID; empty ones where it has none."""
    try:
        data = bytes.fromhex(str(row.get("bytes") or ""))
    except ValueError:
        return b"", b"", b""
    at = _UUID_AT.get(row.get("version") or 0)
    if at is None or len(data) < at + 16:
        return b"", b"", b""
    return data[:at], data[at : at + 16], data[at + 16 :]


def _originals(table: Table, names: Iterable[str]) -> Iterator[str]:
    """What must be in no file: what was replaced, and names with their domains."""
    for kind, rows in table.items():
        for original in rows:
            yield original
            if kind == "GUIDs":
                yield original[2:]
            elif kind == "UUIDs":
                yield original.replace("-", "")
    for name in names:
        parts = name.strip(".").split(".")
        if not re.search("[A-Za-z]", name) or name.lower() in COMMON:
            continue
        yield name
        if len(parts) > 1 and not name.replace(".", "").isdecimal():
            words = (parts[0], ".".join(parts[1:]) if len(parts) > 2 else name)
            yield from (word for word in words if word.lower() not in COMMON)


def _secrets(settings: Iterable[tuple[str, str, str, str]]) -> Iterator[str]:
    """The values of settings that hold users, keys and passwords."""
    for _indent, key, _sign, given in settings:
        value = re.sub(r"\([0-9]+\)$", "", given.strip())
        is_usual = value.lower() in _USUAL | COMMON or len(value) < _MIN_SECRET
        if _SECRET.search(key) and not _is_kept(key, given.strip()) and not is_usual:
            yield value


# ------------------------------------------------------------------------------------------------------------ the files


def _index_row(host: Host, rewrite: Callable[[str], str]) -> dict[str, Any]:
    commands = {
        str(row["name"]): {
            "command": row.get("command"),
            "problem": rewrite(str(row["problem"])) if row.get("problem") else None,
        }
        for row in _rows(host)
        if _FILE.fullmatch(str(row.get("name") or ""))
    }
    return {"problem": host.problem or None, "outputs": commands}


def _files(host: Host, outputs: Mapping[str, Mapping[str, str]], anonymiser: Anonymiser) -> Iterator[tuple[str, str]]:
    if host.answer is None:
        return
    for name, text in outputs[host.name].items():
        if text:
            yield name, _rewritten(name, text, anonymiser.rewrite)
    if "nvml" in host.answer:
        yield "nvml.json", _json(_nvml(host, anonymiser))
    facts = {"versions": mapped(host.answer.get("versions")), "findings": as_list(host.answer.get("findings"))}
    yield "facts.json", _json(_values(facts, anonymiser.rewrite))


def _rewritten(name: str, text: str, rewrite: Callable[[str], str]) -> str:
    """A text of its kind: names of elements, keys and settings stay."""
    if name == "config.txt":
        return rewrite(_SETTING.sub(_kept_setting, _PLAIN_LINE.sub(REMOVED, text)))
    # One that failed prints a plain text.
    if name.endswith(".xml") and text.lstrip("\ufeff \t\r\n").startswith("<"):
        return _XML_VALUE.sub(lambda value: rewrite(value[0]), without_process_names(text))
    if name.endswith(".json"):
        try:
            return json.dumps(_values(json.loads(text), rewrite)) + "\n"
        except (ValueError, RecursionError):
            return rewrite(text)
    return rewrite(text)


def _is_kept(key: str, value: str) -> bool:
    return key in KEPT_SETTINGS or (not _SECRET.search(key) and bool(_HARMLESS.fullmatch(value)))


def _kept_setting(row: re.Match[str]) -> str:
    value = _OPTION.sub(f"={REMOVED}", row[4]) if _is_kept(row[2], row[4].strip()) else REMOVED
    return f"{row[1]}{row[2]}{row[3]}{value}"


def _nvml(host: Host, anonymiser: Anonymiser) -> dict[str, Any]:
    nvml = dict(mapped(mapped(host.answer).get("nvml")))
    gpus = []
    for gpu in _gpus(host):
        row = dict(gpu)
        structs = []
        for struct in map(mapped, as_list(row.pop("structs", None))):
            before, uuid, after = _split_struct(struct)
            data = (before + (anonymiser.uuid(uuid) if any(uuid) else uuid) + after).hex()
            structs.append({"version": struct.get("version"), "code": struct.get("code"), "bytes": data})
        gpus.append({**_values(row, anonymiser.rewrite), "structs": structs})
    nvml.pop("gpus", None)
    return {**_values(nvml, anonymiser.rewrite), "gpus": gpus}


def _values(data: Any, rewrite: Callable[[str], str]) -> Any:
    """Plain data with every text rewritten, but no key."""
    if isinstance(data, str):
        return rewrite(str(data))
    if isinstance(data, Mapping):
        return {str(key): _values(value, rewrite) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_values(value, rewrite) for value in data]
    return data


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def summary(bundle: Bundle, missing: Sequence[str]) -> list[str]:
    """What a person reads before a bundle leaves the site."""
    sizes = [len(text) for text in bundle.files.values()]
    replaced = ", ".join(f"{kind} ({number})" for kind, number in bundle.counts.items()) or "nothing"
    kinds: dict[str, int] = {}
    for path in bundle.files:
        kinds[path.rpartition("/")[2]] = kinds.get(path.rpartition("/")[2], 0) + 1
    listed = ", ".join(f"{number} {name}" for name, number in sorted(kinds.items()))
    lines = [
        f"{len(sizes)} files, {sum(sizes)} bytes: {listed}.",
        f"Replaced: {replaced}; {bundle.removed} settings of Slurm and the names of all processes were removed.",
    ]
    if missing:
        lines.append(f"Without an answer: {summarize(missing)}; the bundle names them.")
    return lines
