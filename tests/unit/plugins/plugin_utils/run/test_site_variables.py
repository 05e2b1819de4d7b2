# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Misspelled names and wrong values are found, and names of other people's variables pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import site_variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import VARIABLES, words
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("imex_onwer", "imex_owner"),
        ("drain_tray", "drain_trays"),
        ("render_dri", "render_dir"),
        ("sites_accept", "site_accept"),
        ("slurm_teirs", "slurm_tiers"),
        *(("slurm-conf-dir", "slurm_conf_dir"), ("dra-driver-image-pull", "")),
        ("fabric_colour", ""),
    ],
)
def test_a_name_that_nothing_reads_is_found(name: str, meant: str) -> None:
    assert site_variables.unknown({name}) == {name: meant}


@pytest.mark.parametrize(
    "name",
    [
        *("site_name", "slurm_version", "report_title", "render_engine", "verify_ssl", "edit_mode", "drain_time"),
        *("resume_after", "spares_shelf", "ansible_user", "_slurm_own", "awx_job_id", "tower_user_name"),
        *("kube_version", "x", "dir", "host", "imex", "ntp_servers", "vendor_dir", "temp_dir", "slurm_user"),
        # Known: an option, a registered variable, one of the inventory plugin, a fact of a module.
        *("imex_owner", "fabric_observed", "nvlink_clique_name", "nvlink_fabric", "demo_dir", "run_plan"),
    ],
)
def test_a_name_of_someone_else_or_a_known_one_passes(name: str) -> None:
    assert site_variables.unknown({name}) == {}


def test_a_removed_variable_and_a_pattern_of_the_inventory_have_a_remedy() -> None:
    given = [(name, ("-e", "x")) for name in (*sorted(site_variables.REMOVED), "imex_hosts")]
    page = (Path(__file__).parents[5] / "docs" / "upgrading.md").read_text("utf-8")
    for sentence in site_variables.removed_sentences(given):
        assert f'<a id="{sentence.rpartition("#")[2].rstrip(".")}"></a>' in page
    assert not site_variables.pattern_sentences(given, set())
    assert "put these hosts into the group nvlink, or" in site_variables.pattern_sentences(given, {"imex_hosts"})[0]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("fabric_moved_percent", "abc", "fabric_moved_percent (-e) is 'abc', write a number."),
        ("imex_list_port", "5e4x", "imex_list_port (-e) is '5e4x', write an integer."),
        ("imex_list_port", float("inf"), "imex_list_port (-e) is inf, write an integer."),
        ("imex_list_port", "inf", "imex_list_port (-e) is 'inf', write an integer."),
        ("drain_wait", "-1", "drain_wait (-e) is '-1', write a number from 0."),
        ("drain_wait", ".", "drain_wait (-e) is '.', write a number."),
        ("spares_active", "1.5", "spares_active (-e) is '1.5', write an integer."),
        ("imex_allow_jobs", "maybe", "imex_allow_jobs (-e) is 'maybe', write true or false."),
        ("imex_channels", [0, "x"], "imex_channels[1] (-e) is 'x', write an integer."),
        ("imex_config_extra", "x", "imex_config_extra (-e) is not a dictionary, write key: value lines under it."),
        ("render_dir", ["/x"], "render_dir (-e) is a list, write a text."),
        ("slurm_topology_rehearse", "allways", "slurm_topology_rehearse (-e) is 'allways'; did you mean always?"),
        ("fabric_renderers", "slurm,imx", "fabric_renderers[1] (-e) is 'imx'; did you mean imex?"),
        ("fabric_sources", {"rest": {"token": "s3cret"}}, "fabric_sources (-e) is a dictionary, write a list."),
        ("slurm_tiers", [{"all": True}], "slurm_tiers[0] (-e) has no name, add it."),
        (
            "slurm_tiers",
            [{"name": "a", "qos": {"priority": "high"}}],
            "slurm_tiers[0].qos.priority (-e) is 'high', write an integer.",
        ),
        *(
            (name, yaml.safe_load(text), f"{place} (-e) is {shown}, {site_variables.QUOTES}.")
            for name, text, place, shown in (
                # Ten days, where the person means four hours.
                ("slurm_tiers", "[{name: a, max_time: 4:00:00}]", "slurm_tiers[0].max_time", 14400),
                ("slurm_tiers", "[{name: a, default_time: 60}]", "slurm_tiers[0].default_time", 60),
                ("slurm_tiers", "[{name: a, qos: {max_wall: 1:00:00}}]", "slurm_tiers[0].qos.max_wall", 3600),
                ("slurm_tiers", "[{name: a, qos: {grp_wall: 30}}]", "slurm_tiers[0].qos.grp_wall", 30),
                ("slurm_tiers", "[{name: a, qos: {flags: [no]}}]", "slurm_tiers[0].qos.flags[0]", False),
                ("slurm_tiers", "[{name: 2026-11-21}]", "slurm_tiers[0].name", "'2026-11-21'"),
                ("slurm_tiers", "[{name: a, blocks: 0123}]", "slurm_tiers[0].blocks[0]", 83),
                ("slurm_tiers", "[{name: a, options: {QOS: off}}]", "slurm_tiers[0].options.QOS", False),
                ("slurm_partitions", "[{name: a, MaxTime: 4:00:00}]", "slurm_partitions[0].MaxTime", 14400),
                ("slurm_partitions", "[{name: on}]", "slurm_partitions[0].name", True),
                ("slurm_settings", "{PriorityMaxAge: 7:00:00}", "slurm_settings.PriorityMaxAge", 25200),
                ("slurm_settings", "{preemptmode: off}", "slurm_settings.preemptmode", False),
                ("fabric_driver_version", "570.10", "fabric_driver_version", 570.1),
            )
        ),
        ("slurm_tiers", [{"name": "a", "max_nodes": True}], "slurm_tiers[0].max_nodes (-e) is True, write an integer."),
        ("drain_wait", True, "drain_wait (-e) is True, write a number."),
    ],
)
def test_a_wrong_value_is_one_sentence(name: str, value: Any, sentence: str) -> None:
    assert site_variables.wrong_sentences([(name, ("-e", value))], VARIABLES) == [sentence]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fabric_moved_percent", "12.5"),
        ("fabric_moved_percent", None),
        ("fabric_moved_percent", "{{ site_percent }}"),
        ("imex_list_port", "50000"),
        # YAML's off.
        ("imex_tls", False),
        ("imex_tls", "off"),
        ("imex_allow_outdated", "r01t01,r01t02"),
        ("fabric_sources", [{"ssh": {"user": "x"}}, "ansible_facts"]),
        ("slurm_tiers", [{"name": "{{ x }}", "all": "{{ y }}", "qos": {"priority": "5"}}]),
        ("imex_config_extra", '{"A": "b"}'),
        ("slurm_tiers", [{"name": "a", "max_time": "4:00:00", "options": {"GraceTime": 300, "Hidden": True}}]),
        ("slurm_settings", {"KillWait": 30, "EnforcePartLimits": False, "MaxTime": None}),
        ("dra_driver_values", {"name": 1}),
        ("slurm_serial", 5),
        # A survey of AWX that was left empty.
        ("dra_driver_shape", ""),
    ],
)
def test_a_right_value_passes(name: str, value: Any) -> None:
    assert site_variables.wrong_sentences([(name, ("-e", value))], VARIABLES) == []


def test_a_secret_is_not_shown() -> None:
    spec = {"type": "int"}
    given = [("a", ("-e", "s3cret")), ("the_password", ("-e", "s3cret"))]
    sentences = site_variables.wrong_sentences(given, {"a": {**spec, "no_log": True}, "the_password": spec})
    assert len(sentences) == 2
    assert "s3cret" not in " ".join(sentences)


def test_many_sentences_are_counted() -> None:
    assert site_variables.joined([f"{n}." for n in range(6)]) == "0. 1. 2. 3. 4. There are 1 more of these."
    assert site_variables.joined(["0.", "1."]) == "0. 1."


def test_a_group_of_hosts_is_named_once() -> None:
    rows = [("imex_list_port", (f"variable of {host}", "abc")) for host in ("r01t01", "r01t02")]
    assert site_variables.wrong_sentences(rows, VARIABLES) == [
        "imex_list_port (variable of r01t01) is 'abc', write an integer."
    ]


def test_a_variable_that_another_one_names_or_has_in_a_template_is_read() -> None:
    named = ("imex_networks", "fabric_net", "fabric_ne", "nvlink_leaf_switch")
    values = dict.fromkeys(named, ("-e", "10.0.0.0/8"))
    others = [
        ("slurm_topology_other_topologies", ("x", [{"kind": "tree", "leaf_variable": "nvlink_leaf_switch"}])),
        ("imex_network", ("x", ["{{ imex_networks }}"])),
        ("imex_config_extra", ("x", {"A": "{% if fabric_net %}a{% endif %}"})),
        ("site_text", ("x", "fabric_nets")),
        # Of all hosts, and no variable of the site.
        ("groups", ("x", {"all": ["{{ fabric_ne }}"]})),
    ]
    assert site_variables.unknown_sentences(values, others) == [
        "fabric_ne (-e) is a variable that nothing reads; correct its name or remove it."
    ]


@given(st.sampled_from(sorted(VARIABLES)), st.data())
def test_no_name_with_one_wrong_letter_is_passed_over(known: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(known) - 1))
    new = data.draw(st.text("abcxyz_", max_size=2))
    name = known[:place] + (new if len(new) < 2 else new[:1] + known[place]) + known[place + 1 :]
    if name not in VARIABLES and name not in words() and not name.startswith("_"):
        assert site_variables.unknown({name})[name] in VARIABLES
