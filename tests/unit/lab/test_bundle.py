# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A support bundle made here, and each of tests/bundles, through both backends and placement; and what is no bundle."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import capture, subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts, nvidia_smi, nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import status
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import bundle as anonymised
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets, standin_text
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.trays import library, script
from nvlab import bundle
from nvlab.errors import LabError

BUNDLES = sorted((Path(__file__).resolve().parents[2] / "bundles").glob("*.tar.gz"))
NOW = "2026-11-23T18:00:00Z"
IMEX = {"host": "198.51.100.11", "status": "READY", "version": "580.95.05", "connections": {}}


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the stand-in, which NVML answers from."""
    monkeypatch.setattr(nvml, "LIBRARY", str(library()))
    monkeypatch.setenv("NVLINK_STANDIN_GPUS", str(tmp_path / "gpus"))
    return tmp_path / "gpus"


def made(gpus: Path) -> bundle.Files:
    """A bundle of three trays in two cliques: the second has lost a GPU, a fourth has not answered."""
    imex = json.dumps({"status": "UP", "timestamp": "5/12/2025 06:08:10.580", "nodes": {"0": IMEX}})
    ctl = script(gpus.parent / "ctl", f"case \"$*\" in *-j) echo '{imex}';; *) echo READY;; esac")
    smi = script(gpus.parent / "smi", f"exec cat {gpus}.xml")
    hosts = [anonymised.Host("r01t04", None, "unreachable")]
    for name, tray in fleets.fleet(trays_per_rack=3, split={1: 2}).items():
        lost = (1,) if name == "r01t02" else ()
        gpus.write_text(standin_text.standin_text(tray, lost=lost))
        gpus.with_suffix(".xml").write_text(standin_text.smi_text(tray, lost))
        hosts.append(anonymised.Host(name, capture.of_tray(subsets.Options(nvidia_smi=smi, imex_ctl=ctl))))
    return bundle.load(
        archive(gpus.parent, {f"s/{path}": text for path, text in anonymised.make(hosts, []).files.items()})
    )


@pytest.mark.parametrize("path", [None, *BUNDLES])
def test_a_bundle_is_read_alike_by_both_backends_and_placed(path: Path | None, gpus: Path) -> None:
    files = bundle.load(path) if path else made(gpus)
    observed, expected = [], {}
    for name, texts in bundle.answers(files).items():
        if not texts:
            observed.append(Observation(name, "ansible_facts", reachable=False, problem="unreachable"))
            continue
        gpus.write_text(bundle.standin_text(texts))
        xml = texts.get("nvidia-smi.xml")
        called = None if json.loads(texts["nvml.json"])["problem"] else nvml.read(20.0)
        printed = nvidia_smi.parse_xml(xml) if xml else None
        # A GPU that is lost, or a backend that did not answer, cannot be compared.
        for one, other in zip(called.gpus if called else (), printed.gpus if printed else ()):
            if one["uuid"] and other["uuid"]:
                assert (one["uuid"], one["platform"]) == (other["uuid"], other["platform"])
                for key in ("state", "status", "cluster_uuid", "clique_id"):
                    assert one["fabric"][key] == other["fabric"][key], (name, key)
        read = facts.assemble(called or printed, backend="nvml", observed_at=NOW, hostname=name, addresses=[])
        observed.append(from_facts(name, read))
        if read["attached"]:
            expected[name] = (read["cluster_uuid"], read["clique_id"])
        for text in bundle.imex_answers(texts).values():
            if text.lstrip().startswith("{"):
                assert all(status.parse_domain(text, int(number)).own for number in json.loads(text)["nodes"])
    fabric = place(None, None, observed, NOW, Policy()).fabric
    fabric_file.check(fabric.as_dict(), "fabric.json")
    cliques = {name: row["clique"] for name, row in fabric.trays.items()}
    assert set(cliques) == set(expected)
    for one in expected:
        for other in expected:
            assert (cliques[one] == cliques[other]) == (expected[one] == expected[other])
    if path is None:
        assert (len(expected), len(set(expected.values())), len(bundle.silent(files))) == (2, 2, 1)


def archive(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "site.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


INDEX = '{"format": 1, "trays": {"a01": {"problem": null}}, "slurm": {}}'


def test_paths_that_leave_the_bundle_are_ignored(tmp_path: Path) -> None:
    path = archive(
        tmp_path, {"s/bundle.json": INDEX, "s/trays/../../x.txt": "x", "s/trays/a01/q.txt": "q", "/etc/x.txt": "x"}
    )
    assert set(bundle.load(path)) == {"bundle.json", "trays/a01/q.txt"}


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({"s/bundle.json": "{"}, "no support bundle of the playbook doctor"),
        ({"s/bundle.json": '{"format": 2, "trays": {}}'}, "no support bundle of the playbook doctor"),
        ({"s/bundle.json": INDEX, "s/trays/a01/nvml.json": '{"gpus": [7]}'}, r"trays/a01/nvml\.json is malformed"),
        ({"s/bundle.json": "[" * 200_000}, "no support bundle of the playbook doctor"),
        ({"s/bundle.json": INDEX, "s/trays/a01/nvml.json": "[" * 200_000}, r"trays/a01/nvml\.json is malformed"),
        ({"s/bundle.json": INDEX, "s/trays/a01/nvml.json": '{"gpus": [{"index": 1e999}]}'}, r"nvml\.json is malformed"),
        (
            {"s/bundle.json": INDEX, "s/trays/a01/nvml.json": '{"driver_version": "\\ud800"}'},
            r"nvml\.json is malformed",
        ),
        ({"s/bundle.json": INDEX, "s/trays/a01/a.txt": " " * (bundle.MAX_FILE + 1)}, r"a\.txt has more than \d+ bytes"),
    ],
)
def test_what_is_no_bundle_or_cannot_be_replayed_is_one_sentence(
    tmp_path: Path, files: dict[str, str], part: str
) -> None:
    with pytest.raises(LabError, match=part):
        bundle.load(archive(tmp_path, files))


def test_a_header_that_claims_more_memory_than_there_is_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "site.tar.gz"
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 60
    path.write_bytes(gzip.compress(header.tobuf() + bytes(1024)))
    with pytest.raises(LabError, match="no support bundle of the playbook doctor"):
        bundle.load(path)


def test_a_bundle_beyond_the_limit_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_BYTES", 4096)
    path = archive(tmp_path, {"s/bundle.json": INDEX, "s/trays/a01/q.txt": "q" * 4096})
    with pytest.raises(LabError, match="more than 4096 bytes"):
        bundle.load(path)


def test_a_folder_which_can_hold_links_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text(INDEX)
    with pytest.raises(LabError, match="no support bundle of the playbook doctor"):
        bundle.load(tmp_path)


def test_an_answer_adds_no_line_to_the_stand_in() -> None:
    place = {"chassis_serial": "1\nfault crash"}
    gpu = {"index": 0, "pdi": "0x1\nfault crash", "platform": place, "uuid": "a\nfault b"}
    assert bundle.standin_text({"nvml.json": json.dumps({"gpus": [gpu]})}).count("\nfault") == 0
