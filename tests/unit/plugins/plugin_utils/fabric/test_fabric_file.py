# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric file: read, checked, written, locked, proposed and accepted."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import ZERO_UUID
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    differences,
    fabric_file,
    gates,
    proposal,
    storage,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

NOW = "2026-11-21T05:00:00Z"
Document = dict[str, Any]


def document() -> Document:
    return json.loads(fabric_file.serialise(fabrics.fabric(racks=2, trays=2)))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "fabric.json")


# --- reading ---


def test_what_is_written_is_read_again_to_the_byte(path: str) -> None:
    data = fabric_file.serialise(fabrics.fabric())
    Path(path).write_bytes(data)
    assert fabric_file.serialise(fabric_file.load(path)) == data
    assert data.startswith(b'{\n "cliques": {\n')
    assert data.endswith(b"}\n")


def test_the_shipped_schema_is_valid_for_other_tools() -> None:
    schema = json.loads((Path(fabric_file.__file__).parent / "schema" / "fabric-1.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(document(), schema)


UUID = "00000002-1111-4222-8333-444444444444"
EMPTY_DOMAIN = {"cluster_uuid": UUID.replace("2", "3", 1), "chassis_serials": [], "expected_trays": 0}
EMPTY_CLIQUE = {"domain": "r02", "clique_id": 9, "block": {"name": "r09", "position": 9}}
TRAY = {
    **document()["trays"]["r01t01"],
    "gpu_uuids": [],
    "imex_address": None,
    "slurm_node": "a",
    "kubernetes_node": "a",
}
ALPHA = "clusters.slurm.alpha.blocks"


@pytest.mark.parametrize(
    ("where", "values", "sentence"),
    [
        ("", {"schema_version": 2}, "schema_version is 2, and this release of rackscale.nvlink reads 1; "),
        ("", {"schema_version": True}, "schema_version is True, and "),
        ("", {"schema_version": None}, "schema_version is missing, and "),
        ("", {"overrides": None}, "the top lacks overrides; add it"),
        ("", {"racks": {}}, "the top has the unknown key 'racks'; remove it"),
        ("", {"trays": []}, "trays must be of type object, not []; correct it"),
        ("trays", {"a\n": TRAY}, "trays has the name 'a\\n'; a name there may contain "),
        ("trays", {"::1": TRAY}, "trays has the name '::1'; a name there may contain "),
        ("trays", {"-a": TRAY}, "trays has the name '-a'; a name there may contain "),
        ("domains", {"a\n": EMPTY_DOMAIN}, "domains has the name 'a\\n'; a name there may contain "),
        ("cliques", {"a\n": EMPTY_CLIQUE}, "cliques has the name 'a\\n'; a name there may contain "),
        ("cliques", {"r-3": EMPTY_CLIQUE}, "cliques has the name 'r-3'; a name there may contain letters, digits and "),
        ("cliques.r02a", {"group": "a\n"}, "cliques.r02a.group must be the name of a level above the clique, "),
        ("trays.r01t01", {"clique": "r09"}, "trays.r01t01.clique names the unknown clique r09; add it to cliques"),
        ("trays.r01t01", {"colour": "red"}, "trays.r01t01 has the unknown key 'colour'; remove it"),
        ("trays.r01t01", {"tray_index": "3"}, 'trays.r01t01.tray_index must be of type integer or null, not "3"; '),
        ("trays.r01t01", {"tray_index": 1.5}, "contains 1.5, and every number must be an integer; correct it"),
        ("trays.r01t01", {"tray_index": -1}, "trays.r01t01.tray_index is -1, which violates minimum 0; correct it"),
        ("trays.r01t01", {"imex_address": "{{ x }}"}, "trays.r01t01.imex_address must be an IP address, not "),
        ("trays.r01t02", {"imex_address": "10.0.1.1"}, "trays.r01t02.imex_address is 10.0.1.1, the same as trays.r01"),
        ("trays.r01t01", {"slurm_node": "a[1-2]"}, "trays.r01t01.slurm_node must be one host name of letters, digits"),
        # An address of this form would be an option of ssh.
        ("trays.r01t01", {"ansible_host": "-Elog"}, "trays.r01t01.ansible_host must be a host name or an IP address,"),
        ("trays", {"localhost": TRAY}, "trays.localhost is the name of the controller or of a group"),
        ("trays", {"127.0.0.1": TRAY}, "trays.127.0.0.1 is the name of the controller or of a group"),
        ("trays", {"slurm_controller": TRAY}, "trays.slurm_controller is the name of the controller or of a group"),
        (
            "trays",
            {"vars": TRAY},
            "trays.vars is the name of the controller or of a group for Ansible; rename the tray",
        ),
        ("trays.r01t02", {"slurm_node": "r01t01"}, "trays.r01t02.slurm_node is r01t01, the same as trays.r01t01.slur"),
        ("trays.r01t02", {"kubernetes_node": "r01t01"}, "trays.r01t02.kubernetes_node is r01t01, the same as trays."),
        ("trays.r01t02", {"gpu_uuids": ["GPU-0001-0000-0"]}, "trays.r01t02.gpu_uuids is GPU-0001-0000-0, the same as"),
        ("trays.r01t01", {"gpu_uuids": ["0"]}, "trays.r01t01.gpu_uuids.0 must be a GPU UUID such as GPU-0a1b..., no"),
        ("cliques.r02a", {"domain": "r09"}, "cliques.r02a.domain names the unknown domain r09; add it to domains"),
        ("cliques.r02b", {"clique_id": 1}, "cliques.r02b.clique_id is 1, the same as cliques.r02a.clique_id; "),
        ("cliques.r02a.block", {"position": 0}, "cliques.r02a.block.position is 0, the same as cliques.r01.block."),
        ("cliques.r02a.block", {"name": "r01"}, "cliques.r02a.block.name is r01, the same as cliques.r01.block.name"),
        ("domains.r01", {"cluster_uuid": "X"}, "domains.r01.cluster_uuid must be a UUID in lower case with dashes"),
        ("domains.r01", {"cluster_uuid": UUID}, f"domains.r02.cluster_uuid is {UUID}, the same as domains.r01.clust"),
        ("domains.r01", {"cluster_uuid": ZERO_UUID}, "domains.r01.cluster_uuid is all zero, which identifies no do"),
        # Several Slurm and Kubernetes clusters.
        ("clusters", {"pbs": {}}, "clusters has the unknown key 'pbs'; remove it"),
        ("clusters.slurm", {"..": {"blocks": {}}}, "clusters.slurm has the name '..'; a name there may contain "),
        ("clusters.slurm", {"Alpha": {"blocks": {}}}, "clusters.slurm.Alpha is alpha, the same as clusters.slurm.al"),
        (f"{ALPHA}.r01", {"position": 1}, f"{ALPHA}.r02a.position is 1, the same as {ALPHA}.r01.position"),
        (f"{ALPHA}.r01", {"name": "r02a"}, f"{ALPHA}.r02a.name is r02a, the same as {ALPHA}.r01.name"),
        (ALPHA, {"r09": {"name": "r09", "position": 9}}, f"{ALPHA} names the unknown clique r09; add it to cliques"),
        (ALPHA, {"r02a": None}, f"{ALPHA} has no block for r02a, the clique of its tray r02t01; add one"),
        ("trays.r01t01", {"slurm_cluster": "c"}, "trays.r01t01.slurm_cluster names the unknown cluster c; add it to"),
        ("", {"clusters": None}, "trays.r01t01.slurm_cluster names the unknown cluster alpha; add it to clusters"),
    ],
)
def test_each_mistake_is_one_sentence_with_file_and_field(where: str, values: Document, sentence: str) -> None:
    """Keys of an object of the file that get other values; None removes one."""
    wrong = document()
    blocks = {name: copy.deepcopy(row["block"]) for name, row in wrong["cliques"].items()}
    wrong["clusters"] = {"slurm": {"alpha": {"blocks": blocks}}}
    for tray in wrong["trays"].values():
        tray["slurm_cluster"] = "alpha"
    node = wrong
    for key in filter(None, where.split(".")):
        node = node[key]
    node.update(values)
    for key in [key for key, value in values.items() if value is None]:
        del node[key]
    with pytest.raises(FabricFileError) as caught:
        fabric_file.parse(json.dumps(wrong).encode(), "/srv/fabric.json")
    message = str(caught.value)
    assert message.startswith(f"/srv/fabric.json: {sentence}")
    assert "\n" not in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is not JSON at line 1 column 1 "),
        (b'{\n "trays": }', "is not JSON at line 2 column 11 "),
        (b"[" * 100_000, "is not JSON (it is nested too deeply); "),
        (b'{"b": %s, "a": 1, "a": 2}' % (b"[" * 3000 + b"]" * 3000), "is not JSON (it is nested too deeply); "),
        (b'{"b": {"a": 1, "a": 2}, "c": %s' % (b"[" * 100_000), "is not JSON (it is nested too deeply); "),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON (Exceeds the limit"),
        (
            b'{"domains": {"r01": {"chassis_serials": ["1", "\\ud800"]}}}',
            'domains.r01.chassis_serials has "\\ud800", half ',
        ),
        (
            b'{"trays": {"r01\\udfff": {}}}',
            'a name in trays has "\\udfff", half of a surrogate pair and no character; ',
        ),
        (b'{"a": "\xed\xa0\x80"}', "is not JSON ('utf-8' codec"),
        (b"$ANSIBLE_VAULT;1.1;AES256\n6162\n", "is encrypted with ansible-vault; run ansible-vault decrypt "),
        (b"[]", "must be a JSON object; "),
        (b'{"a": NaN}', "contains NaN, and every number must be an integer; "),
        (b'{"trays": {"r01t01": {"clique": "a", "clique": "b"}}}', "trays.r01t01.clique is defined twice; "),
    ],
)
def test_an_error_of_invalid_json_has_its_position(data: bytes, sentence: str) -> None:
    with pytest.raises(FabricFileError) as caught:
        fabric_file.parse(data, "/srv/fabric.json")
    assert str(caught.value).startswith(f"/srv/fabric.json: {sentence}")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("name", "sentence"), [("none.json", "does not exist; run discover"), ("", "cannot be read (")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(FabricFileError, match=re.escape(f"{tmp_path / name}: {sentence}")):
        fabric_file.load(str(tmp_path / name))


@pytest.mark.parametrize("suffix", ["json", "state.json", "proposed.json"])
def test_no_reader_waits_for_a_pipe_or_reads_without_end(tmp_path: Path, path: str, suffix: str) -> None:
    readers = {"json": fabric_file.load, "state.json": fabric_file.load_state, "proposed.json": proposal.load_proposal}
    file = tmp_path / f"fabric.{suffix}"
    given = str(file) if suffix == "proposed.json" else path
    os.mkfifo(file)
    with pytest.raises(FabricFileError, match=rf"^{file}: cannot be read \(it is not a regular file\); name a"):
        readers[suffix](given)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(FabricFileError, match=r"cannot be read \(it is not a regular file\)"):
        readers[suffix](given)
    file.unlink()
    with open(file, "wb") as sparse:
        sparse.truncate(10 << 30)
    with pytest.raises(FabricFileError, match=rf"^{file}: cannot be read \(it is larger than 268435456 bytes\)"):
        readers[suffix](given)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "{site}/fabric.json"),
        ({"ansible_inventory_sources": ["{site}/hosts.yml", "{site}/cluster.nvlink.yml"]}, ""),
        # Its folder may have the inventories of other sites.
        ({"ansible_inventory_sources": ["{site}"]}, ""),
        ({"ansible_inventory_sources": ["r01t01,"]}, ""),
        ({"ansible_inventory_sources": None}, ""),
        ({"nvlink_fabric_file": "/a.json"}, "/a.json"),
        ({"nvlink_fabric_file": "/a.json", "fabric_file": "b.json"}, "b.json"),
        ({"fabric_file": "b.json", "imex_fabric_file": "/c.json"}, "/c.json"),
        # Emptied by a person.
        ({"fabric_file": ""}, ""),
    ],
)
def test_the_path_is_a_variable_or_beside_the_only_inventory(
    variables: dict[str, Any], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts.yml").touch()
    site = {"ansible_inventory_sources": ["{site}/hosts.yml"], **variables}
    sources = site["ansible_inventory_sources"]
    site["ansible_inventory_sources"] = sources and [source.format(site=tmp_path) for source in sources]

    def path() -> str:
        return fabric_file.path_from(site.get, "imex_fabric_file")

    assert path() == expected.format(site=tmp_path)
    monkeypatch.setenv("AWX_ISOLATED_DATA_DIR", "/runner/artifacts/1")
    assert path() == ("" if "{" in expected else expected)


# --- writing ---


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], stdout=subprocess.PIPE, text=True
    )


HOLDER = """
    import sys, time
    from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
    with storage.locked(sys.argv[1], "2026-11-21T05:00:00Z"):
        print("held", flush=True)
        time.sleep(60)
"""


def test_the_second_writer_gets_the_holder_of_the_lock_and_a_dead_process_holds_none(path: str) -> None:
    holder = python(HOLDER, path)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    try:
        sentence = rf"^{path}: another run is writing it \(pid {holder.pid} on \S+ since {NOW}\); wait for it to end$"
        with pytest.raises(FabricFileError, match=sentence), storage.locked(path, NOW):
            pass
    finally:
        holder.kill()
        holder.wait(30)
    assert os.path.exists(f"{path}.lock")
    with storage.locked(path, NOW):
        pass
    assert not os.path.exists(f"{path}.lock")


def test_many_writers_never_hold_the_lock_together(path: str) -> None:
    code = """
        import os, sys, time
        from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            try:
                with storage.locked(sys.argv[1], "now"):
                    os.close(os.open(sys.argv[1] + ".alone", os.O_CREAT | os.O_EXCL))
                    os.unlink(sys.argv[1] + ".alone")
            except fabric_file.FabricFileError:
                pass
    """
    writers = [python(code, path) for _writer in range(4)]
    assert [writer.wait(30) for writer in writers] == [0, 0, 0, 0]


# --- proposals ---


def proposed(path: str, base: bytes | None = None) -> proposal.Proposal:
    planned = proposal.propose(base, fabrics.fabric(), [], NOW)
    Path(fabric_file.companion(path, "proposed.json")).write_bytes(planned.encode())
    return planned


def accept(path: str, sha256: str, base: bytes | None) -> proposal.Proposal:
    return proposal.accept(path, sha256, base, fabric_file.companion(path, "proposed.json"))


def test_a_proposal_is_accepted_by_its_own_sha256_or_that_of_the_file_to_write(path: str) -> None:
    planned, file = proposed(path), fabric_file.companion(path, "proposed.json")
    assert proposal.load_proposal(file) == planned
    assert planned.sha256 == fabric_file.digest(fabric_file.serialise(fabrics.fabric()))
    for sha256 in (planned.sha256, fabric_file.digest(Path(file).read_bytes())):
        assert accept(path, sha256, None).data == planned.data


def test_a_proposal_from_another_fabric_file_is_rejected(path: str) -> None:
    planned = proposed(path, base=b"what it was")
    assert accept(path, planned.sha256, b"what it was")
    for base in (b"what it is", None):
        with pytest.raises(FabricFileError, match=rf"^{path}: has changed since the proposal was made; "):
            accept(path, planned.sha256, base)


@pytest.mark.parametrize("sha256", ["", "f00", "G" * 64, "0" * 63 + "\n", "0" * 64])
def test_another_sha256_is_rejected(path: str, sha256: str) -> None:
    proposed(path)
    with pytest.raises(FabricFileError, match="sha256"):
        accept(path, sha256, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda doc: doc["fabric"]["trays"]["r01t01"].update(clique="r02a"),
        lambda doc: doc["fabric"]["domains"]["r01"].update(chassis_serials=["\ud800"]),
        lambda doc: doc.pop("objections"),
        lambda doc: doc.update(schema_version=9),
    ],
)
def test_a_modified_proposal_is_rejected(path: str, change: Callable[[Document], object]) -> None:
    planned = proposed(path)
    sibling = Path(fabric_file.companion(path, "proposed.json"))
    content = json.loads(sibling.read_text())
    change(content)
    sibling.write_text(json.dumps(content))
    with pytest.raises(FabricFileError, match=rf"^{sibling}: "):
        accept(path, planned.sha256, None)


@pytest.mark.parametrize(
    "change",
    [
        *(lambda doc, key=key: doc.pop(key) for key in ("fabric", "proposed_at", "base_sha256", "objections")),
        *(lambda doc, rows=rows: doc.update(objections=rows) for rows in ("all", [1], [{"code": "moved_percent"}])),
    ],
)
def test_a_proposal_of_another_shape_is_rejected_although_its_sha256_fits(
    path: str, change: Callable[[Document], object]
) -> None:
    """Whoever can write the file, as in a pull request, can write that too."""
    sibling = Path(fabric_file.companion(path, "proposed.json"))
    content = json.loads(proposal.propose(None, fabrics.fabric(), [], NOW).encode())
    del content["contents_sha256"]
    change(content)
    content["contents_sha256"] = fabric_file.digest(fabric_file.encode(content))
    sibling.write_bytes(fabric_file.encode(content))
    with pytest.raises(FabricFileError, match=rf"^{sibling}: is not as discover wrote it; discover again"):
        accept(path, None, None)


def test_a_proposal_with_changed_fabric_and_sha256_must_still_be_valid(path: str) -> None:
    wrong = fabrics.fabric()
    wrong.trays["r01t01"]["clique"] = "r99"
    planned = proposal.propose(None, wrong, [], NOW)
    Path(fabric_file.companion(path, "proposed.json")).write_bytes(planned.encode())
    with pytest.raises(FabricFileError, match=r"trays\.r01t01\.clique names the unknown clique r99"):
        accept(path, planned.sha256, None)


def test_the_same_on_another_day_is_the_same_proposal() -> None:
    today, tomorrow = fabrics.fabric(), fabrics.fabric()
    tomorrow.trays["r01t01"]["why"] = today.trays["r01t01"]["why"].replace("2026-11-21", "2026-11-22")
    first = proposal.propose(None, today, [], NOW)
    assert proposal.propose(None, tomorrow, [], "2026-11-22T05:00:00Z").repeats(first)
    other = copy.deepcopy(tomorrow)
    other.trays["r01t01"]["tray_index"] = 40
    assert not proposal.propose(None, other, [], NOW).repeats(first)
    assert not proposal.propose(b"", today, [], NOW).repeats(first)


def test_a_proposal_of_release_1_0_whose_summary_of_changes_is_not_read_is_accepted(path: str) -> None:
    content = json.loads(proposed(path).encode())
    content.update(changes=[{"tray": "r01t01", "from": None, "to": "r09", "kind": "placed", "why": "a lie"}])
    del content["contents_sha256"]
    content["contents_sha256"] = fabric_file.digest(fabric_file.encode(content))
    Path(fabric_file.companion(path, "proposed.json")).write_bytes(fabric_file.encode(content))
    assert accept(path, content["sha256"], None).fabric == fabrics.fabric()


def test_the_diff_shows_trays_then_domains_and_cliques() -> None:
    before, after = fabrics.fabric(racks=1, trays=2, split=()), fabrics.fabric(racks=2, trays=2)
    after.domains["r01"]["expected_trays"] = 18
    after.trays["r01t01"]["tray_index"] = 2
    after.trays["r02t01"]["ansible_host"] = "192.0.2.7"
    del after.trays["r02t02"], after.cliques["r02b"]
    assert differences.diff_text(before, after) == [
        "r01t01: r01 (tray_index 0 -> 2)",
        f"r02t01: none -> r02a ({after.trays['r02t01']['why']})",
        "domain r01: expected_trays 2 -> 18",
        "domain r02: new, chassis_serials 1820925000002, cluster_uuid 00000002-1111-4222-8333-444444444444, "
        "expected_trays 2",
        "clique r02a: new, block name r02a position 1, clique_id 1, domain r02",
        "tray r02t01: ansible_host none -> 192.0.2.7",
    ]
    assert "domain r02: removed" in differences.diff_text(after, before)
    assert "r02t01: r02a -> none (removed)" in differences.diff_text(after, before)


def values(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value of a document, and of each row."""
    for key in sorted(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield (*at, key)
        yield from values(node[key], (*at, key))


EVERY_KEY = json.loads((Path(__file__).parents[3] / "fixtures" / "fabric" / "1-every-key.json").read_text())


@pytest.mark.parametrize("at", [at for at in values(EVERY_KEY) if at[0] != "schema_version"], ids=str)
def test_each_edited_or_removed_value_is_in_the_difference_and_stops_no_gate(at: tuple[Any, ...]) -> None:
    before = Fabric.from_dict(EVERY_KEY)
    for edit in ("remove", "change"):
        document = copy.deepcopy(EVERY_KEY)
        node = document
        for key in at[:-1]:
            node = node[key]
        value = node[at[-1]]
        if edit == "remove":
            del node[at[-1]]
        elif not isinstance(value, (dict, list)):
            node[at[-1]] = (
                value + 1 if isinstance(value, int) else "10.9.9.9" if at[-1] == "imex_address" else f"{value}0"
            )
        if document == EVERY_KEY:
            continue
        # What the schema refuses is never compared, and what contradicts another value neither.
        with contextlib.suppress(FabricFileError):
            fabric_file.check(document, "fabric.json")
            after = Fabric.from_dict(document)
            lines = differences.diff_text(before, after)
            assert lines, edit
            if edit == "change" and "gpu_uuids" not in at:
                assert any(str(node[at[-1]]) in row for row in lines)
            gates.check(gates.Step(before, after, differences.tray_changes(before, after), NOW), Policy())
