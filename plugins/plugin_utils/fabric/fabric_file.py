# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read, check and serialise the fabric file and its state file.

A person reviews and may edit the fabric file, so each error is one sentence: file, field, remedy.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import ZERO_UUID
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import MAX_FLEET_FILE, absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import signature
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import SCHEMA_VERSION, Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import RESERVED, is_address
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import missing_library

_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")

# The value of a key that is defined twice.
_TWICE = object()
# ansible-runner, of AWX and ansible-navigator too, sets it in each run.
_OF_RUNNER = "AWX_ISOLATED_DATA_DIR"
_SCHEMAS = os.path.join(os.path.dirname(__file__), "schema")


class FabricFileError(NvlinkError):
    """The fabric file, its state file or its proposal is invalid or cannot be used."""


# Files that discover writes next to the fabric file, which are easily named instead of it: a key of each -> its name.
_OTHER_FILES = {"base_sha256": "a proposal", "written_at": "a state file"}


def path_from(value: Callable[[str], Any], *first: str) -> str:
    """The path that a site's variables give: the first that is set, or fabric.json beside the only inventory source.

    value: name of a variable -> its value, None where it is not set. first: variables before fabric_file and
    nvlink_fabric_file. Empty where the run has several inventory sources, or one that is no file, since its folder may
    serve other sites too; and in a run of ansible-runner, which copies the inventory.
    """
    for name in (*first, "fabric_file", "nvlink_fabric_file"):
        given = value(name)
        if given is not None:
            return str(given)
    if _OF_RUNNER in os.environ:
        return ""
    sources: Sequence[str] = value("ansible_inventory_sources") or ()
    file = sources[0] if len(sources) == 1 else ""
    return os.path.join(os.path.dirname(file), "fabric.json") if os.path.isfile(file) else ""


def is_found(path: str, value: Callable[[str], Any], extra: Collection[str]) -> bool:
    """Whether the next run with the same inventory finds this fabric file without an extra variable.

    path: an absolute one. value: as for path_from. extra: names of the extra variables of this run.
    """
    given = path_from(value)
    return "fabric_file" not in extra and bool(given) and absolute(given) == path


def companion(path: str, suffix: str, folder: str | None = None) -> str:
    """fabric.json -> fabric.<suffix>, in the folder of the file itself where fabric.json is a symbolic link.

    folder: where the site keeps state, proposal and lock (state_dir), instead of that folder.
    """
    file = f"{os.path.realpath(path).removesuffix('.json')}.{suffix}"
    if not folder:
        return file
    if not os.path.isdir(folder):
        raise FabricFileError(f"state_dir: {folder} is not a directory; create it, or name another one")
    return os.path.join(os.path.realpath(folder), os.path.basename(file))


def state_path(path: str, folder: str | None = None) -> str:
    """The path of the state file; folder: see companion()."""
    return companion(path, "state.json", folder)


NOT_SET = "No fabric file is set: add -e fabric_file=PATH, the file that the playbook discover writes"


def required(path: Any) -> str:
    """The path that an option or a variable has; FabricFileError where it has none."""
    if not path:
        raise FabricFileError(NOT_SET)
    return str(path)


def missing(path: str, so: str = "") -> str:
    """The sentence on a path without a file, as on a new site; so: what follows from it."""
    return f"{path}: does not exist yet{so and f', so {so}'}; run discover and accept first"


def not_yet(path: str, what: str) -> str:
    """The warning of check mode where no file was accepted; empty where there is one."""
    return "" if os.path.exists(path) else f"{missing(path, what)}."


def load(path: str) -> Fabric:
    """Read and check a fabric file; FabricFileError if it is invalid, or not signed where the site requires it."""
    return parse(read_signed(path), path)


def load_state(path: str, folder: str | None = None) -> State | None:
    """Read the state file of the fabric file at path; None where there is none yet. folder: see companion()."""
    file = state_path(path, folder)
    if not os.path.exists(file):
        return None
    document = decode(read(file), file)
    check_version(document, file)
    check_schema(document, "state-1", file)
    return State.from_dict(document)


def read(path: str) -> bytes:
    """Read a file; FabricFileError names the file and why it cannot be read."""
    try:
        return atomic.bounded(path, MAX_FLEET_FILE)
    except FileNotFoundError:
        why = "does not exist; run discover and accept first, with -i hosts.yml alone, or correct the path"
        raise FabricFileError(f"{path}: {why}") from None
    except OSError as error:
        raise FabricFileError(
            f"{path}: cannot be read ({error.strerror}); name a fabric file that discover wrote"
        ) from None


def read_signed(path: str) -> bytes:
    """Read a fabric file; FabricFileError as in read(), and if a required signature does not hold."""
    data = read(path)
    problem = signature.problem(path, data)
    if problem:
        raise FabricFileError(problem)
    return data


def parse(data: bytes, path: str) -> Fabric:
    """Parse the bytes of a fabric file; path is for error messages only."""
    document = decode(data, path)
    other = next((name for key, name in _OTHER_FILES.items() if isinstance(document, dict) and key in document), None)
    if other:
        raise FabricFileError(
            f"{path}: is {other} and no fabric file; name the fabric file, such as fabric.json, and a proposal by "
            "fabric_proposal_file"
        )
    check(document, path)
    return Fabric.from_dict(document)


def serialise(document: Fabric | State) -> bytes:
    """Serialise a fabric or state; equal content gives equal bytes."""
    return encode(document.as_dict())


def encode(document: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Encode JSON as in every file of this collection: sorted keys, indent 1, a newline at the end."""
    return json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False).encode() + b"\n"


def digest(data: bytes) -> str:
    """The sha256 of a fabric file's content, by which a proposal is accepted."""
    return hashlib.sha256(data).hexdigest()


def check(document: Any, path: str) -> None:
    """Raise FabricFileError if a document is not a valid fabric."""
    check_version(document, path)
    check_schema(document, "fabric-1", path)
    contradiction = next(_contradictions(document), None)
    if contradiction:
        raise FabricFileError(f"{path}: {contradiction}")


def decode(data: bytes, path: str) -> Any:
    """Decode JSON; FabricFileError for invalid JSON, a duplicate key, a fraction and a text that is no Unicode."""
    if data.lstrip()[:14] == b"$ANSIBLE_VAULT":
        raise FabricFileError(
            f"{path}: is encrypted with ansible-vault; run ansible-vault decrypt {path}: it holds names and places "
            "and no secret, and it is reviewed as text"
        )
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            [(name, _number)] = Counter(name for name, _value in pairs).most_common(1)
            twice.append(name)
            found[name] = _TWICE
        return found

    def no_fraction(number: str) -> NoReturn:
        raise FabricFileError(f"{path}: contains {_brief(number)}, and every number must be an integer; correct it")

    try:
        # Not left to json, which accepts encoded halves of surrogate pairs.
        text = data.decode("utf-8-sig")
        document = json.loads(text, object_pairs_hook=unique, parse_float=no_fraction, parse_constant=no_fraction)
        problem = next(_problems(document), None) if twice or "\\u" in text else None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise FabricFileError(f"{path}: is not JSON at {at} ({error.msg}); correct it there") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else _brief(str(error))
        raise FabricFileError(f"{path}: is not JSON ({reason}); restore it from version control") from None
    if problem:
        raise FabricFileError(f"{path}: {problem}")
    return document


def _problems(node: Any, field: str = "") -> Iterator[str]:
    """Yield what is wrong with keys and texts: a key defined twice, a text that cannot be encoded."""
    if node is _TWICE:
        yield f"{field} is defined twice; remove one of the two"
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _problems(name, f"a name in {field or 'the top'}")
            yield from _problems(value, f"{field}.{_brief(name)}" if field else _brief(name))
    elif isinstance(node, list):
        for value in node:
            yield from _problems(value, field)
    elif isinstance(node, str) and (half := _HALF_OF_A_PAIR.search(node)):
        yield f"{field} has {json.dumps(half[0])}, half of a surrogate pair and no character; correct it"


def check_version(document: Any, path: str) -> None:
    """Reject a schema version that this release does not read."""
    if not isinstance(document, dict):
        raise FabricFileError(f"{path}: must be a JSON object; name a file that discover wrote")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        found = f"is {_brief(repr(version))}" if "schema_version" in document else "is missing"
        raise FabricFileError(
            f"{path}: schema_version {found}, and this release of rackscale.nvlink reads {SCHEMA_VERSION}; "
            "use the release that wrote the file or discover again into a new one"
        )


def check_schema(document: Any, schema: str, path: str) -> None:
    """Raise FabricFileError for the first violation of schema/<schema>.json."""
    try:
        import fastjsonschema
    except ImportError:
        raise FabricFileError(f"{path}: {missing_library('fastjsonschema')}") from None
    try:
        _validator(schema)(document)
    except fastjsonschema.JsonSchemaValueException as error:
        where = _brief(".".join(error.path[1:])) or "the top"
        raise FabricFileError(f"{path}: {where} {_violation(error.rule, error.definition, error.value)}") from None


@functools.cache
def _validator(schema: str) -> Callable[[Any], Any]:
    """The compiled schema: 25 times faster than jsonschema."""
    import fastjsonschema

    with open(os.path.join(_SCHEMAS, f"{schema}.json"), encoding="utf-8") as file:
        return fastjsonschema.compile(json.load(file))


def _violation(rule: str | None, definition: Mapping[str, Any], value: Any) -> str:
    """Describe a violated rule of a schema: what is wrong with the value and what to do."""
    limit: Any = definition[rule] if rule else None
    if rule == "required":
        return f"lacks {next(name for name in definition['required'] if name not in value)}; add it"
    if rule == "additionalProperties":
        unknown = next(name for name in value if name not in definition["properties"])
        return f"has the unknown key {_brief(repr(unknown))}; remove it"
    if rule == "propertyNames":
        illegal = next(name for name in value if not re.fullmatch(limit["pattern"], name))
        return f"has the name {_brief(repr(illegal))}; a name there may contain {limit['description']} only"
    if rule == "type":
        names: list[str] = limit if isinstance(limit, list) else [limit]
        return f"must be of type {' or '.join(names)}, not {_brief(json.dumps(value))}; correct it"
    if rule == "pattern":
        return f"must be {definition['description']}, not {_brief(json.dumps(value))}; correct it"
    return f"is {_brief(json.dumps(value))}, which violates {rule} {_brief(json.dumps(limit))}; correct it"


def _contradictions(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a schema cannot express: fields that contradict each other. Each text starts with the field."""
    domains, cliques, trays = document["domains"], document["cliques"], document["trays"]
    for name, domain in domains.items():
        if domain["cluster_uuid"] == ZERO_UUID:
            yield f"domains.{name}.cluster_uuid is all zero, which identifies no domain; set the real UUID"
    for name, clique in cliques.items():
        if clique["domain"] not in domains:
            yield f"cliques.{name}.domain names the unknown domain {_brief(clique['domain'])}; add it to domains"
    for name, tray in trays.items():
        if name in RESERVED:
            yield f"trays.{name} is the name of the controller or of a group for Ansible; rename the tray"
        if tray["clique"] not in cliques:
            yield f"trays.{name}.clique names the unknown clique {_brief(tray['clique'])}; add it to cliques"
        elif tray.get("block", "") not in ("", *cliques[tray["clique"]].get("split_blocks", ())):
            yield f"trays.{name}.block is {_brief(tray['block'])}, which its clique's split_blocks lack; correct it"
        address = tray["imex_address"]
        if address is not None and not is_address(address):
            yield f"trays.{name}.imex_address is {_brief(address)}, which is not an IP address; correct it"
    yield from _repeated("domains.{}.cluster_uuid", domains, [row["cluster_uuid"] for row in domains.values()])
    clique_ids = [(row["domain"], row["clique_id"]) for row in cliques.values()]
    yield from _repeated("cliques.{}.clique_id", cliques, clique_ids)
    own = {f"cliques.{name}.block": row["block"] for name, row in cliques.items()}
    yield from _repeated_blocks({**own, **_split(cliques)}, "reserved_blocks", document)
    # Nodes of different clusters may have the same name.
    for kind in ("slurm", "kubernetes"):
        cluster, node = f"{kind}_cluster", f"{kind}_node"
        yield from _repeated(f"trays.{{}}.{node}", trays, [(row.get(cluster), row[node]) for row in trays.values()])
    uuids = [uuid for row in trays.values() for uuid in row["gpu_uuids"]]
    yield from _repeated(
        "trays.{}.gpu_uuids", (name for name, row in trays.items() for _uuid in row["gpu_uuids"]), uuids
    )
    # Racks may use the same private range, so an address is unique only within its clique.
    addressed = {name: row for name, row in trays.items() if row["imex_address"]}
    addresses = [(row["clique"], row["imex_address"]) for row in addressed.values()]
    yield from _repeated("trays.{}.imex_address", addressed, addresses)
    yield from _wrong_clusters(document)


def _wrong_clusters(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the contradictions between clusters, trays and cliques."""
    clusters, cliques = document.get("clusters", {}), document["cliques"]
    for kind, of_kind in clusters.items():
        # Slurm ignores the case of a ClusterName, and an Ansible group name has neither dots nor dashes.
        yield from _repeated(f"clusters.{kind}.{{}}", of_kind, [group_word(name).lower() for name in of_kind])
    slurm = clusters.get("slurm", {})
    for cluster, row in slurm.items():
        where, blocks = f"clusters.slurm.{cluster}.blocks", row["blocks"]
        for clique in blocks:
            if clique not in cliques:
                yield f"{where} names the unknown clique {_brief(clique)}; add it to cliques"
        own = {f"{where}.{clique}": block for clique, block in blocks.items()}
        split = _split({clique: cliques[clique] for clique in cliques.keys() & blocks.keys()})
        yield from _repeated_blocks({**own, **split}, f"clusters.slurm.{cluster}.reserved_blocks", row)
    of_trays = [(f"{kind}_cluster", clusters.get(kind, {})) for kind in ("slurm", "kubernetes")]
    for name, tray in document["trays"].items():
        if "slurm_cluster" not in tray and "kubernetes_cluster" not in tray:
            continue
        for key, known in of_trays:
            cluster = tray.get(key)
            if cluster is not None and cluster not in known:
                yield f"trays.{name}.{key} names the unknown cluster {_brief(cluster)}; add it to clusters"
        in_slurm = slurm.get(tray.get("slurm_cluster"))
        if in_slurm and tray["clique"] not in in_slurm["blocks"]:
            where = f"clusters.slurm.{tray['slurm_cluster']}.blocks"
            yield f"{where} has no block for {tray['clique']}, the clique of its tray {name}; add one"


def _split(cliques: Mapping[str, Any]) -> dict[str, Any]:
    """Field -> block, of the split blocks of cliques."""
    return {
        f"cliques.{clique}.split_blocks.{name}": {"name": name, "position": position}
        for clique, row in cliques.items()
        for name, position in row.get("split_blocks", {}).items()
    }


def _repeated_blocks(blocks: Mapping[str, Any], reserved_at: str, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield blocks of one Slurm with the same name or position; blocks: field -> block."""
    reserved = row.get("reserved_blocks", {})
    kept = {f"{reserved_at}.{name}": {"name": name, "position": position} for name, position in reserved.items()}
    both = {**blocks, **kept}
    for key in ("position", "name"):
        yield from _repeated(f"{{}}.{key}", both, [block[key] for block in both.values()])


def group_word(name: str) -> str:
    """Convert a cluster name to a part of an Ansible group name."""
    return re.sub("[^A-Za-z0-9_]", "_", name)


def _repeated(field: str, names: Iterable[str], values: Collection[Any]) -> Iterator[str]:
    """Yield duplicate values, each with both fields; the message shows the last part of a tuple."""
    if len(set(values)) == len(values):
        return
    first: dict[Any, str] = {}
    for name, value in zip(names, values, strict=True):
        if value in first:
            shown = value[-1] if isinstance(value, tuple) else value
            where, before = field.format(name), field.format(first[value])
            yield f"{where} is {_brief(str(shown))}, the same as {before}; change one of them"
        first[value] = name


def _brief(text: str) -> str:
    """Shorten a value for a message: one line, at most 80 characters."""
    line = text if text.isprintable() else repr(text)
    return line if len(line) <= 80 else f"{line[:77]}..."
