# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hostlists compared with the output of `scontrol show hostnames` (24.11.5, 26.05.5) and with ClusterShell."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand, fold
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a1 b2", ["a1", "b2"]),
        ("a[1-2],,b", ["a1", "a2", "b"]),
        ("a[9-11]", ["a9", "a10", "a11"]),
        ("a[09-11,009]", ["a09", "a10", "a11", "a009"]),
        ("a[01-1]", ["a01"]),
        ("a[1-2][3-4]", ["a13", "a14", "a23", "a24"]),
        ("[1-2]", ["1", "2"]),
        ("a[1-2]]", ["a1]", "a2]"]),
    ],
)
def test_hostlists_expand_as_in_slurm(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a[1-2", "not closed"),
        ("a[[1-2]]", "inside another"),
        ("a[]", "the range ''"),
        ("a[1-3/2]", "the range '1-3/2'"),
        ("a[3-1]", "is descending"),
        ("a[1-100000]", "more than 65536"),
        ("a[1-300][1-300]", "more than 65536"),
        ("a[1-" + "9" * 5000 + "]", "the range"),
        ("a[" + "1-60000," * 3 + "1]", "more than 65536"),
        ("a[\u0661-\u0663]", "the range"),
        ("a" + "[1]" * 9, "more than 8 brackets in a name"),
        ("a" * 256, "a name of more than 255 characters"),
    ],
)
def test_an_invalid_hostlist_raises_one_sentence(text: str, why: str) -> None:
    with pytest.raises(HostlistError, match=why) as caught:
        expand(text)
    assert isinstance(caught.value, NvlinkError)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("'a[1-65536]' + '[1]' * 200_000", "more than 8 brackets in a name"),
        ("'x' * 100_000 + '[1-65536]'", "a name of more than 255 characters"),
        ("'a[1-65536]' + 'x' * 100_000", "a name of more than 255 characters"),
        ("'a[1],' + 'b,' * 5_000_000", "more than 4194304 characters"),
    ],
)
def test_a_hostile_hostlist_costs_neither_memory_nor_time(text: str, why: str) -> None:
    program = f"""
import resource
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
expand({text})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert why in done.stderr.splitlines()[-1]


numbers = st.integers(0, 300).flatmap(lambda number: st.sampled_from([str(number), f"{number:02d}", f"{number:04d}"]))
names = st.builds(
    "".join, st.tuples(st.sampled_from(["r", "gpu-", "n1x"]), numbers, st.sampled_from(["", "t"]), numbers)
)


@given(st.lists(names, min_size=1, max_size=20, unique=True))
def test_clustershell_hostlists_expand_as_in_clustershell(nodes: list[str]) -> None:
    folded = NodeSet.fromlist(nodes, resolver=RESOLVER_NOGROUP)
    assert sorted(expand(str(folded))) == sorted(folded)


@given(st.lists(st.one_of(names, st.from_regex(r"[a-z]{0,3}[0-9]{0,12}", fullmatch=True)), unique=True, max_size=40))
def test_any_names_fold_and_expand(nodes: list[str]) -> None:
    nodes = [node for node in nodes if node]
    assert sorted(expand(hostlist.fold(nodes))) == sorted(nodes)


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([], ""),
        (["n9", "n10", "n011"], "n[9-10],n011"),
        ([f"r{rack:02d}t{tray:02d}" for rack in (1, 2) for tray in range(1, 19)], "r[01-02]t[01-18]"),
        ([f"r{r}t{t}" for r in (1, 2) for t in (1, 2)], "r[1-2]t[1-2]"),
        (["a1", "a3", "b"], "a[1,3],b"),
        # Left to the linter: not folded.
        (["n1", "n1"], "n1,n1"),
        (["n1", "n[2]"], "n1,n[2]"),
        (["n1", "@all"], "n1,@all"),
        (["n1", ""], "n1,"),
    ],
)
def test_consecutive_names_are_folded(nodes: list[str], text: str) -> None:
    assert fold(nodes) == text
