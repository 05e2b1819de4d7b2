# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What test programs print, in the formats of published runs, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import benchmark
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import benchmarks, tools
from hypothesis import given
from hypothesis import strategies as st

NVBANDWIDTH = """\
nvbandwidth Version: v0.8
Driver Version: 580.82.07

Process 0 (worker-0): device 0: HGX GB200 (00000008:01:00)
Process 1 (worker-1): device 0: HGX GB200 (00000008:01:00)

Running multinode_device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0       N/A    798.02    798.25
 1    612.10       N/A    797.80
 2    797.95    797.95       N/A

SUM multinode_device_to_device_memcpy_read_ce 4602.07
"""
NCCL = """\
# nThread 1 nGpus 1 minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  8589934592    2147483648     float     sum      -1    17001  505.26  842.10      0    17010  504.99  841.65      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 841.875
#
"""
DCGM_3 = """\
{"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
  {"name": "Denylist", "results": [{"gpu_ids": "0,1,2,3", "status": "PASS"}]},
  null,
  {"name": "Memory", "results": [{"gpu_ids": "2", "status": "FAIL", "warnings": ["Xid 94 seen"]}]}]}]}}
"""
DCGM_4 = """\
WARNING: something on the way
{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [
  {"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings": [{"error_id": 7, "warning": "row remap"}]},
  {"entity_group": "GPU", "entity_id": 2, "status": "Skip"}], "test_summary": {"status": "Fail"}}]}]}}
"""
# As DCGM 4.3's dcgmi/MnDiag.cpp writes it, the name of the run in the place of a head included.
MNDIAG = """\
{"DCGM Diagnostic": "DCGM Multi-Node Diagnostic", "metadata": {"num_entities": 2, "num_hosts": 2}, "hosts": [
  {"host_id": 0, "hostname": "r01t01", "dcgm_version": "4.3.1", "driver_version": "580.82.07", "num_entities": 1,
   "entities": [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "device_id": "2941"}]},
  {"host_id": 1, "hostname": "r01t02", "dcgm_version": "4.3.1", "driver_version": "580.82.07", "num_entities": 1,
   "entities": [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 3, "device_id": "2941"}]}],
 "test_categories": [{"category": "Multi-Node Tests", "tests": [{"name": "MNUBERGEMM", "status": "Fail",
  "test_summary": {"status": "Fail"}, "results": [
   {"host_id": 0, "entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"},
   {"host_id": 1, "entity_group": "GPU", "entity_group_id": 1, "entity_id": 3, "status": "Fail", "warnings": [
    {"warning": "T:8 NVLINK error", "error_id": 85, "error_category": 2, "error_severity": 2}]}]}]}]}
"""
# Without an error of a GPU the reason stands apart, and no results are there.
MNDIAG_MPI = """\
{"DCGM Diagnostic": "DCGM Multi-Node Diagnostic", "metadata": {"num_entities": 0, "num_hosts": 0}, "test_categories": [
 {"category": "Multi-Node Tests", "tests": [{"name": "MNUBERGEMM", "status": "Fail", "test_summary": {"status": "Fail"},
  "mpi_error": {"error_category": "MPI", "warning": "Error: mpirun was unable to launch"}}]}]}
"""
MNDIAG_NEVER = """\
{"DCGM Diagnostic": "DCGM Multi-Node Diagnostic", "metadata": {"num_entities": 0, "num_hosts": 0},
 "runtime_error": "Error: Unable to complete multi-node diagnostic on host localhost. Return: (...) -52"}
"""
TRAY_OF = {"n1": "r01t01", "n2": "r01t02", "n3": "r01t03"}
PROGRAMS = [
    {"name": "bw", "kind": "nvbandwidth", "min_bandwidth": 700},
    {"name": "diag", "kind": "dcgmi_diag", "min_bandwidth": None},
]


def test_the_smallest_entry_of_a_matrix_counts() -> None:
    assert tools.nvbandwidth(NVBANDWIDTH) == tools.Result(612.10)
    cut = NVBANDWIDTH.partition("SUM")[0]
    with pytest.raises(tools.ToolError):
        tools.nvbandwidth(cut)
    begun = NVBANDWIDTH + "Running device_to_device_memcpy_write_sm.\n"
    assert tools.nvbandwidth(begun).failed == ("device_to_device_memcpy_write_sm did not end",)


def test_a_collective_has_its_average_and_its_wrong_values() -> None:
    assert tools.nccl_tests(NCCL) == tools.Result(841.875)
    assert tools.nccl_tests(NCCL.replace(": 0 OK", ": 3 FAILED")).wrong == 3
    assert tools.nccl_tests(NCCL.replace("841.875", "9.1e+02")).min_bandwidth == 910
    with pytest.raises(tools.ToolError):
        tools.nccl_tests("NCCL failure: unhandled system error")


@pytest.mark.parametrize(("text", "failed"), [(DCGM_3, "Memory (Xid 94 seen)"), (DCGM_4, "memory (row remap)")])
def test_failed_tests_are_read_from_every_dcgmi_version(text: str, failed: str) -> None:
    assert tools.dcgmi_diag(text).failed == (failed,)
    assert tools.dcgmi_diag(text.replace("FAIL", "PASS").replace('"Fail"', '"Pass"')).failed == ()


@pytest.mark.parametrize("text", ["", "Error: unable to connect to host engine.", "{", '{"DCGM GPU Diagnostic": {}}'])
def test_output_without_a_diagnosis_does_not_pass(text: str) -> None:
    with pytest.raises(tools.ToolError):
        tools.dcgmi_diag(text)


def test_a_diagnosis_of_several_nodes_names_host_and_gpu_or_the_reason_it_did_not_run() -> None:
    assert tools.dcgmi_mndiag(MNDIAG).failed == ("MNUBERGEMM, GPU 3 of r01t02 (T:8 NVLINK error)",)
    assert tools.dcgmi_mndiag(MNDIAG.replace('"Fail"', '"Pass"')) == tools.Result()
    assert tools.dcgmi_mndiag(MNDIAG_MPI).failed == ("MNUBERGEMM: Fail (Error: mpirun was unable to launch)",)
    assert tools.dcgmi_mndiag(MNDIAG_MPI.replace('"Fail"', '"Skip"')).failed != ()
    assert tools.dcgmi_mndiag(MNDIAG_NEVER).failed[0].startswith("Error: Unable to complete multi-node diagnostic")
    for text in ("", "PARSE ERROR: Argument: --hostList", '{"DCGM Diagnostic": "DCGM Multi-Node Diagnostic"}'):
        with pytest.raises(tools.ToolError):
            tools.dcgmi_mndiag(text)


def job(tasks: dict[str, str], code: int | None = 0, **more: Any) -> dict[str, Any]:
    return {"rc": code, "tasks": tasks, "stderr": "", **more}


def place(node: str, block: str = "r01", channels: str = "channel0,") -> str:
    return f"node={node} address={block}.{node} channels={channels}\n"


def row(**more: Any) -> dict[str, Any]:
    halves = [job({"0": place("n1"), "1": place("n2")}), job({"0": place("n3", channels="channel1,")})]
    return {"block": "r01", "refused_reason": "", "placement": halves, "programs": [], **more}


def evaluated(given: dict[str, Any], isolated: bool | None = True) -> list[tuple[str, str | None, list[str]]]:
    found = benchmarks.evaluate(given, "r01", TRAY_OF, PROGRAMS, isolated)
    return [(failure["code"], failure["tray"], failure["trays"]) for failure in found]


def test_where_and_with_which_channels_jobs_ran() -> None:
    assert evaluated(row()) == []
    assert evaluated(row(refused_reason="Requested nodes are busy")) == [
        ("slurm_jobs_unanswered", None, list(TRAY_OF.values()))
    ]
    other = row()
    other["placement"][1]["tasks"]["0"] = place("n3", "r02", "channel1,")
    assert evaluated(other) == [("benchmark_failed", "r01t03", ["r01t03"])]
    unblocked = row()
    unblocked["placement"][1]["tasks"]["0"] = "node=n3 address=n3 channels=channel1,\n"
    (found,) = benchmarks.evaluate(unblocked, "r01", TRAY_OF, PROGRAMS, True)
    assert found["message"] == "A job for block r01 ran on n3, which is in no block."
    short = row()
    del short["placement"][0]["tasks"]["1"]
    assert evaluated(short) == [("benchmark_failed", None, ["r01t02"])]
    bare = row()
    bare["placement"][1]["tasks"]["0"] = place("n3", channels="")
    assert evaluated(bare) == [("benchmark_failed", "r01t03", ["r01t03"])]
    assert evaluated(bare, None) == []
    shared = row()
    shared["placement"][1]["tasks"]["0"] = place("n3")
    assert evaluated(shared) == [("benchmark_failed", None, list(TRAY_OF.values()))]
    assert evaluated(shared, False) == []


def test_a_result_is_attributed_to_the_clique_or_the_tray() -> None:
    slow = row(programs=[job({"0": NVBANDWIDTH, "1": ""}, name="bw")])
    assert evaluated(slow) == [("benchmark_failed", None, [])]
    late = row(programs=[job({}, None, name="bw")])
    assert evaluated(late) == [("benchmark_failed", None, [])]
    healthy = DCGM_4.replace('"Fail"', '"Pass"')
    sick = row(programs=[job({"0": healthy, "1": DCGM_4}, name="diag")])
    assert evaluated(sick) == [("benchmark_failed", "r01t02", ["r01t02"]), ("benchmark_failed", "r01t03", ["r01t03"])]


@given(st.dictionaries(st.integers(0, 99).map(str), st.lists(st.text("ab: 1", min_size=1), min_size=1)))
def test_labelled_output_is_split_by_task(by_task: dict[str, list[str]]) -> None:
    text = "".join(f"{task:>2}: {line}\n" for task, lines in by_task.items() for line in lines)
    assert benchmark.tasks_of(text) == {task: "".join(f"{line}\n" for line in lines) for task, lines in by_task.items()}
