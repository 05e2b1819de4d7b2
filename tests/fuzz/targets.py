# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fuzz targets: each reader of something that others wrote, its inputs, and the errors that it may raise.

A target calls a reader and then what is done with its result first, so that a reader is not praised for returning what
its caller fails on. Only the errors of its area may escape; anything else is a defect, and so is a call that takes
longer than LIMIT seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import tempfile
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.rackscale.nvlink.plugins.action import slurm_tiers
from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist, interfaces
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvidia_smi
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import DriverError
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, status
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats as imex_files
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.formats import ImexError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster, nodes
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf as slurm_conf
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol as slurm_files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import CONF, YAML, Block, SlurmError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    differences,
    fabric_file,
    gates,
    inventory_vars,
    overlay,
    policy,
    proposal,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.plain_yaml import YamlError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm_files as rendered_slurm
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file, waves
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import (
    info,
    observed,
    planning,
    steps,
    tier_plan,
    tiers,
    topology_files,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import (
    expressions,
    fields,
    kubernetes,
    probe,
    rest,
    simulation,
    topograph,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import tools
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.sources import test_kubernetes, test_rest
from hypothesis import strategies as st

from . import samples
from .inputs import data, encoded, texts

NOW = "2026-11-21T05:00:00Z"
LIMIT = 10.0


class Target(NamedTuple):
    """A reader with its inputs; `errors` are the classes that may escape."""

    read: Callable[[Any], Any]
    inputs: st.SearchStrategy[Any]
    errors: tuple[type[Exception], ...]


TARGETS: dict[str, Target] = {}


def target(inputs: st.SearchStrategy[Any], *errors: type[Exception]) -> Callable[[Callable[[Any], Any]], None]:
    """Decorate the reader of these inputs."""

    def register(read: Callable[[Any], Any]) -> None:
        TARGETS[read.__name__] = Target(read, inputs, errors)

    return register


FABRIC, STATE = overlay.provisional(simulation.discover({"racks": 2, "trays_per_rack": 2}, NOW).observations, NOW)
FACTS = next(iter(fleets.fleet(racks=1, trays_per_rack=1, gpus_per_tray=2, observed_at=NOW).values()))
_FABRIC = FABRIC.as_dict()
_CLUSTERED = {
    **_FABRIC,
    "trays": {name: {**row, "slurm_cluster": "alpha"} for name, row in _FABRIC["trays"].items()},
    "clusters": {
        "slurm": {"alpha": {"blocks": {name: row["block"] for name, row in _FABRIC["cliques"].items()}}},
        "kubernetes": {"k1": {}},
    },
}
_PROPOSED = json.loads(proposal.propose(None, FABRIC, [], NOW).encode())
SCHEMA = tray_report.SCHEMA
_SCRATCH = tempfile.TemporaryDirectory(prefix="nvlink-fuzz-")
FOLDER = Path(_SCRATCH.name)


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _file(name: str, content: bytes | str) -> str:
    path = FOLDER / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


# ------------------------------------------------------------------------------------------------- files of the site


@target(encoded(data(_FABRIC, _CLUSTERED)), FabricFileError)
def read_fabric(content: bytes) -> None:
    fabric = fabric_file.parse(content, "fabric.json")
    inventory_vars.plan(fabric, None)
    rendered_slurm.render(fabric, State())
    for name, tray in fabric.trays.items():
        blocks = [cluster for cluster in fabric.slurm_clusters for row in fabric.blocks(cluster) if name in row.trays]
        assert blocks == ([tray["slurm_cluster"]] if "slurm_cluster" in tray else [])
    assert fabric_file.parse(fabric_file.serialise(fabric), "again") == fabric


@target(encoded(data(STATE.as_dict())), FabricFileError)
def read_state(content: bytes) -> None:
    _file("s.state.json", content)
    state = fabric_file.load_state(str(FOLDER / "s.json"))
    assert state is not None
    inventory_vars.plan(FABRIC, state)
    fabric_file.serialise(state)


def _signed(document: Any) -> Any:
    """A proposal whose sha256 fits its contents, as whoever can write the file can make it."""
    with contextlib.suppress(LookupError, TypeError, ValueError, RecursionError, AttributeError):
        document.pop("contents_sha256", None)
        document["contents_sha256"] = fabric_file.digest(fabric_file.encode(document))
    return document


@target(encoded(data(_PROPOSED).map(_signed)), FabricFileError)
def read_proposal(content: bytes) -> None:
    _file("p.proposed.json", content)
    path = str(FOLDER / "p.json")
    file = str(FOLDER / "p.proposed.json")
    accepted = proposal.accept(path, proposal.load_proposal(file).sha256, None, file)
    changes = differences.tray_changes(FABRIC, accepted.fabric)
    differences.diff_text(FABRIC, accepted.fabric)
    gates.check(gates.Step(FABRIC, accepted.fabric, changes, NOW), policy.Policy())
    accepted.encode()


@target(encoded(data(samples.PROGRESS)), waves.RolloutError)
def read_progress(content: bytes) -> None:
    path = _file("progress.json", content)
    progress_file.summary(progress_file.read(path), path, "imex")


@target(data(samples.KUBECONFIG), login.LoginError)
def read_kubeconfig(document: Any) -> None:
    """What login.py checks itself of a mapping; the client reads the file, and would start the plugins of one."""
    if isinstance(document, dict):
        _cluster, user, who = login.chosen(document, None)
        assert " by " in who or not user.get("exec")


# ------------------------------------------------------------------------------------------------ what trays answer


def _placed(observation: Observation) -> None:
    """What is done with an observation: it is placed next to a good tray, and the result is written as JSON."""
    others = simulation.discover({"racks": 1, "trays_per_rack": 2}, NOW).observations
    fabric, state = overlay.provisional([*others, observation], NOW)
    fabric_file.parse(fabric_file.serialise(fabric), "fabric.json")
    fabric_file.check_schema(fabric_file.decode(fabric_file.serialise(state), "state"), "state-1", "state")


@target(data({"changed": False, "ansible_facts": {"nvlink_fabric": FACTS}, "findings": []}))
def read_answer(result: Any) -> None:
    """A module's result: through the edge of the action plugin, then as the observation of its tray."""
    if isinstance(result, dict):
        accepted = trust.accepted("t1", result, SCHEMA)
        json.dumps(accepted).encode()
        _placed(tray_report.read("t1", accepted).observation("ansible_facts"))
    _placed(tray_report.read("t1", result).observation("ansible_facts"))


def _probe_output(facts: Any, before: bytes, after: bytes) -> bytes:
    answer = {"ansible_facts": {"nvlink_fabric": facts}}
    return before + probe.BEGIN.encode() + json.dumps(answer).encode() + probe.END.encode() + after


@target(st.binary(max_size=200) | st.builds(_probe_output, data(FACTS), st.binary(max_size=9), st.binary(max_size=9)))
def read_probe(output: bytes) -> None:
    answer = probe.answer_in(output)
    if answer is not None:
        _placed(tray_report.read("t1", trust.answered("t1", answer, SCHEMA)).observation("ssh"))


_SMI = [trays.smi(name, gpus=1) for name in ("vr200", "v12_a100", *trays.CHANGES)]
_ELEMENTS = ('<gpu id="x">', "</gpu>", "<fabric>", "<uuid>", '<!DOCTYPE x [<!ENTITY a "b">]>', "&a;")


@target(texts(*_SMI, words=_ELEMENTS), DriverError)
def read_smi(text: str) -> None:
    nvidia_smi.parse_xml(text)


@target(encoded(data(samples.IP)).map(_decoded))
def read_ip(text: str) -> None:
    interfaces.parse(text)


@target(data({"a": samples.IMEX_RECORD, "b": samples.IMEX_RECORD}))
def read_boot(rows: Any) -> None:
    own = {"clique": "r01", "generation": 3, "sha256": "a" * 64}
    answers = {str(name): row for name, row in rows.items() if isinstance(row, dict)} if isinstance(rows, dict) else {}
    boot.decide(own, answers, 3)


@target(encoded(data(samples.IMEX_RECORD)))
def read_imex_record(content: bytes) -> None:
    boot.read_record(_file("record", content))


@target(texts(*samples.IMEX_TABLES) | encoded(data(samples.IMEX_DOMAIN)).map(_decoded), status.StatusError)
def read_imex_domain(text: str) -> None:
    status.parse_state(text)
    status.parse_domain(text, 0)


@target(texts(samples.IMEX_CONFIG), ImexError)
def read_imex_config(text: str) -> None:
    imex_files.Config(text).settings()


@target(texts("198.51.100.1\n198.51.100.2\nr01t03\n"))
def read_imex_nodes(text: str) -> None:
    parsed = imex_files.parse_nodes(text)
    imex_files.own_id(parsed.entries, ["198.51.100.1"], ["r01t01"])
    if not parsed.wrong:
        assert imex_files.parse_nodes(imex_files.render_nodes(parsed.entries)).entries == parsed.entries


# -------------------------------------------------------------------------------------------------- Slurm's own files


@target(texts("r[01-02]t[01-18],cpu1", "a[1-65536][1][1]", "n1 n2,n[3,5-7]"), hostlist.HostlistError)
def read_hosts(text: str) -> None:
    names = hostlist.expand(text)
    assert sorted(hostlist.expand(hostlist.fold(names))) == sorted(names)


@target(texts(samples.SLURM_CONF, words=("include ", "NodeName=", "Topology=")), SlurmError)
def read_slurm_conf(text: str) -> None:
    _file("slurm.conf", text)
    slurm_conf.read_slurm_conf(str(FOLDER))
    cluster.settings(text)
    cluster.partitions(text)
    cluster.included(text)


@target(texts(samples.TOPOLOGY_YAML, words=("- ", "blocks:", "|", ">")), SlurmError)
def read_topology_yaml(text: str) -> None:
    topologies = [
        dataclasses.replace(topology, cluster_default=not topology.cluster_default)
        for topology in topology_files.parse(text, YAML)
    ]
    again = topology_files.parse(topology_files.render(topologies, YAML, old=text), YAML) if topologies else []
    assert [known.fingerprint() for known in again] == [known.fingerprint() for known in topologies]
    topology_files.own_topologies(text)


@target(texts(samples.TOPOLOGY_CONF, words=("BlockName=", "BlockSizes=", "Nodes=")), SlurmError)
def read_topology_conf(text: str) -> None:
    for topology in topology_files.parse(text, CONF):
        assert topology.fingerprint


@target(texts(samples.SCONTROL, words=("BlockName=", "BlockIndex=")), SlurmError, hostlist.HostlistError)
def read_scontrol(text: str) -> None:
    slurm_files.parse_show_topology(text)
    slurm_files.parse_records(text)
    slurm_files.parse_config(text)
    slurm_files.parse_topoconf(text)


@target(texts(samples.SCONTROL_NODES), SlurmError)
def read_scontrol_nodes(text: str) -> None:
    nodes.parse(text)


_TIERS = (
    ArgumentSpecValidator({"tiers": slurm_tiers.OPTIONS["tiers"]})
    .validate({"tiers": samples.TIERS})
    .validated_parameters["tiers"]
)


@target(data(samples.SLURM_SURVEY), NvlinkError)
def read_survey(survey: Any) -> None:
    """A survey through the edge of the action plugin, then planned: blocks and tiers, and their removal."""
    answer = trust.accepted("ctl", {"changed": False, "survey": survey}, steps.SCHEMA_OF_HOST)
    blocks = [Block("r01", ("r01t01", "r01t02"), "r01t[01-02]"), Block("r02", ("r02t01",), "r02t01")]
    with observed.bounded():
        with contextlib.suppress(SlurmError):
            planning.plan_removal(answer.get("survey"), "/etc/slurm/topology.yaml", "nvlink")
        seen = observed.Observed.of(answer.get("survey"))
        info.report(seen, "nvlink", "collection")
        planned = planning.plan(seen, planning.DesiredState(tuple(blocks), manage_conf=True))
        planned.result(bool(planned.stopped_by()))
        desired = tiers.build(_TIERS, blocks, {"r01": ["r01"], "r02": ["r02"]}, seen.version)
        of_tiers = tier_plan.plan(seen, desired, blocks, tier_plan.Policy(True, True, True))
        for plan in (of_tiers, tier_plan.plan_removal(seen)):
            plan.result(bool(plan.stopped_by()))
            plan.change("")


@target(texts(*samples.BENCHMARKS))
def read_bandwidth(text: str) -> None:
    for reader in (tools.nvbandwidth, tools.nccl_tests, tools.dcgmi_diag, tools.dcgmi_mndiag):
        with contextlib.suppress(tools.ToolError):
            reader(text)


# ------------------------------------------------------------------------------------------------- what servers answer

_FIELDS = {"name": "name", "cluster_uuid": "uuid", "clique_id": "id", "problem": "problem", **test_rest.FIELDS}
_REST = {"trays": [test_rest.FULL, {"name": "r01t02", "uuid": test_rest.UUID, "id": 32766, "addresses": "10.0.1.3"}]}


@target(data(_REST), NvlinkError)
def read_rest(document: Any) -> None:
    path = _file("rest.json", json.dumps(document))
    for row in rest.discover({"file": path, "trays": "trays[]", "fields": _FIELDS}, NOW).observations:
        _placed(row)


@target(data(test_kubernetes.node("r01t01")))
def read_node(node: Any) -> None:
    kubernetes._has_gpus(mapped(node))
    for name in (kubernetes._name, expressions.Expression("metadata.name", "kubernetes: tray_name")):
        found = kubernetes._observation(mapped(node), kubernetes._fields(name, None), NOW)
        if found is not None:
            _placed(found)


_LABELS = {topograph.DOMAIN: "9f3c1234-1111-4222-8333-444444444444.32766"}
_GRAPH = json.dumps({"instances": [{"id": "r01t01", "network_layers": ["leaf1"], "labels": _LABELS}, {"id": "r01t02"}]})
_UNREADABLE = (YamlError, hostlist.HostlistError, ValueError, RecursionError)


@target(texts(samples.TOPOLOGY_YAML, samples.TOPOLOGY_CONF, _GRAPH, words=("# block1=", "- ", "{")), *_UNREADABLE)
def read_topograph(text: str) -> None:
    mapping = {"name": itemgetter("node"), "clique": itemgetter("domain")}
    for row in itertools.islice(topograph.read(text), 100):
        found = fields.observation("topograph", row, mapping, NOW)
        if found is not None:
            _placed(found)
