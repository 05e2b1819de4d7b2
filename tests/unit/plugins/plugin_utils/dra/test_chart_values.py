# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the DRA driver's chart: shapes, merging, and one sentence for each fault that Helm accepts.

What the chart and the API server refuse: test_kubernetes_chart.py, test_dra_driver_role.py.
"""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import DraError, chart_rules, chart_values, versions
from hypothesis import given
from hypothesis import strategies as st

from .dra_cluster import CHART

NEW = versions.pinned("0.5.0")
BEFORE = versions.pinned("0.4.1")
# Shape 1, the values that no rule has anything against.
GOOD = chart_values.build("compute_domains", {}, "v1")


def check_values(own: Mapping[str, Any], shape: str = "compute_domains") -> list[dict[str, Any]]:
    return faults(chart_values.build(shape, own, "v1"))


def faults(made: Mapping[str, Any], version: Any = NEW) -> list[dict[str, Any]]:
    """As for a chart whose templates read no key that its values lack."""
    unread = [row["key"] for row in chart_rules.variants(made, CHART)[1:]]
    found = [*chart_rules.check_unread(unread, CHART, ""), *chart_rules.check_kinds(made, CHART)]
    return [*found, *chart_rules.check_start(made, version)]


def paths(tree: Mapping[str, Any], prefix: str = "") -> set[str]:
    """The dotted paths of a chart's values.yaml, none below a free mapping."""
    found = set()
    for name, item in tree.items():
        inner = paths(item, f"{prefix}{name}.") if isinstance(item, Mapping) else set()
        found |= inner if inner and name not in OBJECTS else {f"{prefix}{name}"}
    return found


OBJECTS = ("affinity", "securityContext", "strategy", "updateStrategy")


def nested(path: str, item: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        item = {part: item}
    return item


@pytest.mark.parametrize("shape", [name for name in chart_values.SHAPES if name != "gpu_cluster"])
def test_a_shape_alone_has_no_fault(shape: str) -> None:
    assert check_values({}, shape) == []


def test_own_values_win_over_the_shape_key_by_key() -> None:
    made = chart_values.build(
        "host_managed", {"featureGates": {"ConsumableShares": True}, "nvidiaDriverRoot": "/run"}, "v1"
    )
    assert made["featureGates"] == {"HostManagedIMEXDaemon": True, "ConsumableShares": True}
    assert made["nvidiaDriverRoot"] == "/run"
    assert made["resourceApiVersion"] == "resource.k8s.io/v1"


def test_the_paths_of_the_plugin_are_below_the_folder_of_the_kubelet() -> None:
    own = {"kubeletPlugin": {"priorityClassName": ""}}
    assert "kubeletPlugin" not in chart_values.build("compute_domains", {}, kubelet_root="/var/lib/kubelet/")
    assert chart_values.build("compute_domains", own, kubelet_root="/var/lib/k0s/kubelet")["kubeletPlugin"] == {
        "kubeletRegistrarDirectoryPath": "/var/lib/k0s/kubelet/plugins_registry",
        "kubeletPluginsDirectoryPath": "/var/lib/k0s/kubelet/plugins",
        "priorityClassName": "",
    }


@pytest.mark.parametrize(
    ("shape", "own", "words"),
    [
        ("compute_domain", {}, "shape: 'compute_domain' is none of"),
        ("compute_domains", ["x"], "values: ['x'] is not a mapping"),
        ("gpu_cluster", {"logVerbosity": "4"}, "write them into its GPUCluster"),
    ],
)
def test_a_wrong_shape_or_mapping_is_an_error(shape: str, own: Any, words: str) -> None:
    with pytest.raises(DraError) as error:
        chart_values.build(shape, own)
    assert words in str(error.value)


def variable(name: str, value: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value}, {"name": "KUBE_API_BURST", "value": "10"}]


@pytest.mark.parametrize(
    ("path", "item", "words"),
    [
        ("resources.computeDomain", {"enabled": True}, "write resources.computeDomains"),
        ("nvidiaDriverroot", "/", "write nvidiaDriverRoot"),
        ("featureGates.IMEXDaemonWithDNSNames", False, "write IMEXDaemonsWithDNSNames"),
        ("featureGates.DynamicMIG", "true", "true or false"),
        ("kubeletPlugin.metrics.gpuHttpEndpoint", ":70000", "is not an address with a port, such as :8080"),
        ("featureGates.DeviceMetadata", True, "needs PassthroughSupport"),
        ("resources.gpus.enabled", "false", "true or false"),
        ("controller", "all", "is not a mapping"),
        ("controller", None, "controller: is null, which removes the chart's default; remove it"),
        ("controller.replicas", "2", "is not an integer"),
        ("serviceAccount.annotations", "a=b", "a mapping"),
        ("logVerbosity", "loud", "an integer"),
        ("nvidiaDriverRoot", "run/nvidia/driver", "absolute path"),
        ("kubeletPlugin.kubeletPluginsDirectoryPath", "/var/lib\nkubelet", "absolute path"),
        ("imagePullSecrets", {"name": "x"}, "is not a list"),
        ("consumableShares", 1_000_000, "from 1 on"),
        ("image.tag", 1.5, "is not a string"),
        ("image.tag", None, "remove it"),
        ("image.tag", "~", "'~' is not a string"),
        ("kubeletPlugin.priorityClassName", "null", "'null' is not a string"),
        (
            "controller.containers.computeDomain.env",
            variable("MAX_NODES_PER_IMEX_DOMAIN", "1e3"),
            "DOMAIN: '1e3' is not an",
        ),
        ("kubeletPlugin.containers.gpus.env", variable("KUBE_API_QPS", "x"), "KUBE_API_QPS: 'x' is not a number"),
    ],
)
def test_each_fault_is_one_sentence_with_its_remedy(path: str, item: Any, words: str) -> None:
    (found,) = check_values(nested(path, item))
    assert (found["code"], found["key"]) == ("dra_value_refused", path)
    assert words in found["message"]
    assert found["message"].endswith(".")
    assert "\n" not in found["message"]


GATES_OF_SHARES = {"AllAlpha": True, "DynamicMIG": False, "NVMLDeviceHealthCheck": False, "PassthroughSupport": True}


@pytest.mark.parametrize(
    ("own", "keys"),
    [
        ({"consumableShares": "memory"}, ["consumableShares"]),
        ({"consumableShares": 4, "featureGates": {"ConsumableShares": False}}, ["consumableShares"]),
        ({"consumableShares": 4, "featureGates": {"ConsumableShares": True}}, []),
        # All alpha gates together exclude each other.
        (
            {"featureGates": {"AllAlpha": True}},
            ["featureGates.DynamicMIG"] * 3 + ["featureGates.PassthroughSupport"] * 2,
        ),
        ({"consumableShares": "unlimited", "featureGates": GATES_OF_SHARES}, []),
        ({"featureGates": {"DynamicMIG": True, "MPSSupport": True}}, ["featureGates.DynamicMIG"]),
        ({"featureGates": {"IMEXDaemonsWithDNSNames": False}}, ["featureGates.ComputeDomainCliques"]),
        ({"featureGates": {"AllBeta": False, "ComputeDomainCliques": True}}, ["featureGates.ComputeDomainCliques"]),
    ],
)
def test_the_gpu_plugins_own_rules(own: dict[str, Any], keys: list[str]) -> None:
    """Rules with which the GPU plugin exits at its start."""
    assert [row["key"] for row in check_values(own, "all_dra")] == keys


def ports(**more: Any) -> dict[str, Any]:
    return {"kubeletPlugin": more}


@pytest.mark.parametrize(
    ("own", "key"),
    [
        (ports(containers={"gpus": {"healthcheckPort": 51515}}), "containers.gpus.healthcheckPort"),
        (ports(containers={"computeDomains": {"healthcheckPort": 8081}}), "metrics.computeDomainHttpEndpoint"),
        (ports(containers={"gpus": {"healthcheckPort": -1}, "computeDomains": {"healthcheckPort": -1}}), None),
        (ports(metrics={"gpuHttpEndpoint": "", "computeDomainHttpEndpoint": ""}), None),
        (ports(metrics={"gpuHttpEndpoint": ":8081", "enabled": False}), None),
        ({**ports(metrics={"gpuHttpEndpoint": ":8081"}), "resources": {"computeDomains": {"enabled": False}}}, None),
        # The controller is a pod of its own.
        ({"controller": {"metrics": {"httpEndpoint": ":8081"}}}, None),
    ],
)
def test_both_plugins_listen_on_ports_of_their_own(own: dict[str, Any], key: str | None) -> None:
    """They are in one pod, and exit where they cannot listen (startHealthcheck, RunPrometheusMetricsServer)."""
    found = check_values(own, "all_dra")
    assert [row["key"] for row in found] == ([f"kubeletPlugin.{key}"] if key else [])
    assert all("are in one pod; set another port." in row["message"] for row in found)


@pytest.mark.parametrize(
    "own",
    [
        {"consumableShares": "memory"},  # Without the GPU plugin its rules do not count.
        {"featureGates": None},
        {"image": {"pullPolicy": "", "tag": "123"}, "serviceAccount": {"name": 7}},
        {"kubeletPlugin": {"kubeletPluginsDirectoryPath": '/var/"odd"'}},
        {"kubeletPlugin": {"affinity": {"podAffinity": {}}, "updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}},
        {"kubeletPlugin": {"affinity": None, "tolerations": None}},
    ],
)
def test_what_the_chart_accepts_is_no_fault(own: dict[str, Any]) -> None:
    assert check_values(own) == []


def test_gates_are_those_of_the_chart_and_of_a_later_one_unknown() -> None:
    host_managed, later = chart_values.build("host_managed", {}, "v1"), {"featureGates": {"NewGate": True}}
    for made, version, keys in (
        (host_managed, BEFORE, ["featureGates.HostManagedIMEXDaemon"]),
        (GOOD, BEFORE, []),
        (later, versions.pinned("0.5.0"), ["featureGates.NewGate"]),
    ):
        assert [row["key"] for row in chart_rules.check_start(made, version)] == keys
    # A release that was not read may have more.
    for text in ("0.5.1", "0.6.0-rc.1"):
        (row,) = chart_rules.check_start(later, versions.pinned(text))
        assert (row["key"], row["severity"]) == ("featureGates.NewGate", "warning")


def test_the_chart_is_asked_about_each_key_that_its_values_lack() -> None:
    own = {"kubeletPlugin": {"newKey": 1, "priorityClassName": ""}, "maskNvidiaDriverParams": {"deep": {"x": 1}}}
    rows = chart_rules.variants(own, CHART)
    assert rows == [
        {"key": "", "values": own},
        {"key": "kubeletPlugin.newKey", "values": {**own, "kubeletPlugin": {"priorityClassName": ""}}},
        {"key": "maskNvidiaDriverParams", "values": {"kubeletPlugin": own["kubeletPlugin"]}},
    ]


def test_a_key_without_effect_is_a_warning_where_the_templates_name_it() -> None:
    """They may read it only behind an option that is off, or with this value as their fallback."""
    text = "{{ if .Values.image.enabled }}{{ .Values.image.siteKey }}{{ end }}"
    found = list(chart_rules.check_unread(["image.siteKey", "image.site"], CHART, text))
    assert [(row["key"], row["severity"]) for row in found] == [("image.siteKey", "warning"), ("image.site", "error")]
    assert {row["message"].partition(": ")[2] for row in found} == {
        "changes nothing that the chart renders; remove it."
    }


def test_templates_are_read_in_a_folder_and_in_an_archive(tmp_path: Path) -> None:
    folder = tmp_path / "dra"
    for name in ("templates/a.yaml", "templates/tests/b.yaml", "charts/sub/templates/c.yaml", "README.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"of {Path(name).stem}")
    with tarfile.open(tmp_path / "dra.tgz", "w:gz") as archive:
        archive.add(folder, "dra")
    for chart in (folder, tmp_path / "dra.tgz"):
        assert sorted(chart_rules.templates(str(chart)).split("\n")) == ["of a", "of b", "of c"]
    with pytest.raises(DraError, match="none cannot be read; write its absolute path"):
        chart_rules.templates(str(tmp_path / "none"))


def test_a_key_that_is_no_text_is_one_that_the_chart_lacks() -> None:
    """As YAML's 1: and on: are."""
    found = check_values({1: "x", "controller": {True: "x"}, "featureGates": {2: True}})  # type: ignore[dict-item]
    assert [row["key"] for row in found] == ["1", "controller.True", "featureGates.2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("25.12.0", "are newer although their numbers are lower"),
        (">=0.4", "no exact version"),
        (0.5, "no exact version"),
        ("0.3.9", "write 0.4.0 or later"),
    ],
)
def test_only_an_exact_version_from_0_4_on_is_accepted(text: Any, words: str) -> None:
    with pytest.raises(DraError) as error:
        versions.pinned(text)
    assert words in str(error.value)


def test_versions_sort_by_age() -> None:
    order = ["25.3.0-rc.1", "25.3.0", "25.8.1", "25.12.0", "0.4.0-dev", "0.4.0", "0.5.0-dev", "v0.5.0", "0.10.0"]
    read = [versions.parse(text) for text in order]
    assert None not in read
    assert read == sorted(read, key=lambda version: version or ())
    assert [version.is_old_chart for version in read if version] == [True] * 4 + [False] * 5


@given(st.sampled_from(sorted(paths(CHART))), st.data())
def test_a_key_that_lost_a_letter_is_never_accepted(path: str, data: st.DataObject) -> None:
    parent, dot, name = path.rpartition(".")
    at = data.draw(st.integers(0, len(name) - 1))
    typo = parent + dot + name[:at] + name[at + 1 :]
    assert [row["key"] for row in chart_rules.variants(nested(typo, {}), CHART)] == ["", typo]
    assert [row["key"] for row in chart_rules.variants(nested(path, {}), CHART)] == [""]


def test_the_charts_own_defaults_are_no_fault() -> None:
    assert [*chart_rules.check_kinds(CHART, CHART), *chart_rules.check_start(CHART, NEW)] == []
    assert len(chart_rules.variants(CHART, CHART)) == 1
    assert set(chart_rules.FORMS) <= paths(CHART)
