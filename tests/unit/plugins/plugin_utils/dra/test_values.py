# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the DRA driver's chart: shapes, merging, and one sentence for each fault before Helm runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import DraError, linter, values, versions
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[5]
SAMPLES = ROOT.parent / "shared" / "samples" / "dra-chart"
NEW = versions.pinned("0.5.0")
BEFORE = versions.pinned("0.4.1")
NAMESPACE = "dra-driver-nvidia-gpu"
# Shape 1, the values that no rule has anything against.
GOOD = values.build("compute_domains", {}, "v1")

shared = pytest.mark.skipif(not SAMPLES.is_dir(), reason="shared/samples is not next to the checkout")


def check_values(own: Mapping[str, Any], shape: str = "compute_domains", **more: Any) -> list[dict[str, Any]]:
    made = values.build(shape, own, "v1")
    return linter.check_values(made, more.pop("version", NEW), more.pop("namespace", NAMESPACE), **more)


def nested(path: str, item: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        item = {part: item}
    return item


def paths(tree: Mapping[str, Any], prefix: str = "") -> set[str]:
    """The dotted paths of a chart's values.yaml, none below a free map."""
    found = set()
    for name, item in tree.items():
        path = f"{prefix}{name}"
        known = linter.KEYS.get(path)
        if isinstance(item, Mapping) and not (known and known.kind == linter.MAP):
            found |= paths(item, f"{path}.")
        else:
            found.add(path)
    return found


@pytest.mark.parametrize("shape", [name for name in values.SHAPES if name != "gpu_cluster"])
def test_a_shape_alone_has_no_fault(shape: str) -> None:
    assert check_values({}, shape) == []


def test_the_shapes_differ_as_they_should() -> None:
    assert values.value(values.build("all_dra", None), "gpuResourcesEnabledOverride") is True
    assert values.value(values.build("upgrade", None), "nameOverride") == "nvidia-dra-driver-gpu"
    host = values.build("host_managed", None)
    assert values.value(host, "resources.computeDomains.imex.mode") == "hostManaged"
    assert values.value(host, "featureGates.HostManagedIMEXDaemon") is True


def test_own_values_win_over_the_shape_key_by_key() -> None:
    made = values.build("host_managed", {"featureGates": {"ConsumableShares": True}, "nvidiaDriverRoot": "/run"}, "v1")
    assert made["featureGates"] == {"HostManagedIMEXDaemon": True, "ConsumableShares": True}
    assert made["nvidiaDriverRoot"] == "/run"
    assert made["resourceApiVersion"] == "resource.k8s.io/v1"


@pytest.mark.parametrize(
    ("shape", "own", "words"),
    [
        ("compute_domain", {}, "shape: 'compute_domain' is none of"),
        ("compute_domains", ["x"], "values: ['x'] is not a mapping"),
    ],
)
def test_a_wrong_shape_or_mapping_is_an_error(shape: str, own: Any, words: str) -> None:
    with pytest.raises(DraError) as error:
        values.build(shape, own)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("own", "code", "key", "words"),
    [
        ({"resources": {"computeDomain": {"enabled": True}}}, "dra_value_refused", "resources.computeDomain",
         "write resources.computeDomains"),
        ({"nvidiaDriverroot": "/"}, "dra_value_refused", "nvidiaDriverroot", "write nvidiaDriverRoot"),
        ({"featureGates": {"IMEXDaemonWithDNSNames": False}}, "dra_value_refused",
         "featureGates.IMEXDaemonWithDNSNames", "write IMEXDaemonsWithDNSNames"),
        ({"featureGates": {"DynamicMIG": "true"}}, "dra_value_refused", "featureGates.DynamicMIG", "true or false"),
        ({"featureGates": {"IMEXDaemonsWithDNSNames": False}}, "dra_value_refused", "featureGates.ComputeDomainCliques",
         "needs IMEXDaemonsWithDNSNames"),
        ({"featureGates": {"DynamicMIG": True, "MPSSupport": True}}, "dra_value_refused", "featureGates.DynamicMIG",
         "together with MPSSupport"),
        ({"featureGates": {"DeviceMetadata": True}}, "dra_value_refused", "featureGates.DeviceMetadata",
         "needs PassthroughSupport"),
        ({"resources": {"gpus": {"enabled": True}}}, "dra_value_refused", "resources.gpus.enabled",
         "gpuResourcesEnabledOverride: true"),
        ({"resources": {"gpus": {"enabled": "false"}}}, "dra_value_refused", "resources.gpus.enabled", "true or false"),
        ({"resources": {"computeDomains": {"enabled": False}}}, "dra_value_refused", "resources", "neither"),
        ({"controller": "all"}, "dra_value_refused", "controller", "no mapping"),
        ({"controller": {"metrics": {"httpEndpoint": ":70000"}}}, "dra_value_refused",
         "controller.metrics.httpEndpoint", "is not an address with a port, such as :8080"),
        ({"namespace": "x"}, "dra_value_refused", "namespace", "namespace: the chart rejects"),
        ({"nvidiaCtkPath": "/usr/bin/nvidia-ctk"}, "dra_value_refused", "nvidiaCtkPath", "remove it"),
        ({"resources": {"computeDomains": {"imex": {"mode": "hostManaged"}}}}, "dra_value_refused",
         "resources.computeDomains.imex.mode", "featureGates.HostManagedIMEXDaemon: true"),
        ({"resources": {"computeDomains": {"imex": {"isolation": "channel"}}}}, "dra_value_refused",
         "resources.computeDomains.imex.isolation", "write domain"),
        ({"webhook": {"enabled": True, "tls": {"mode": "x"}}}, "dra_value_refused", "webhook.tls.mode",
         "cert-manager or secret"),
        ({"webhook": {"enabled": True, "tls": {"mode": "secret", "secret": {"caBundle": "eA=="}}}},
         "dra_value_refused", "webhook.tls.secret.name", "name the Secret"),
        ({"webhook": {"enabled": True, "tls": {"mode": "secret", "secret": {"name": "x"}}}}, "dra_value_refused",
         "webhook.tls.secret.caBundle", "base64"),
        ({"webhook": {"enabled": True, "tls": {"certManager": {"issuerType": "issuer"}}}}, "dra_value_refused",
         "webhook.tls.certManager.issuerName", "name the issuer"),
        ({"resourceApiVersion": "v1"}, "dra_value_refused", "resourceApiVersion", "resource.k8s.io/v1,"),
        ({"logVerbosity": "loud"}, "dra_value_refused", "logVerbosity", "an integer"),
        ({"nvidiaDriverRoot": "run/nvidia/driver"}, "dra_value_refused", "nvidiaDriverRoot", "absolute path"),
        (
            {"kubeletPlugin": {"kubeletPluginsDirectoryPath": "/var/lib\nkubelet"}},
            "dra_value_refused",
            "kubeletPlugin.kubeletPluginsDirectoryPath",
            "absolute path",
        ),
        ({"imagePullSecrets": ["ngc"]}, "dra_value_refused", "imagePullSecrets", "list of mappings with a name"),
        ({"kubeletPlugin": {"tolerations": ["all"]}}, "dra_value_refused", "kubeletPlugin.tolerations", "of mappings"),
        ({"controller": {"leaderElection": {"leaseDuration": "15"}}}, "dra_value_refused",
         "controller.leaderElection.leaseDuration", "a duration such as 15s"),
        ({"consumableShares": 1_000_000}, "dra_value_refused", "consumableShares", "from 1 on"),
        ({"nvidiaDriverRoot": '/run/"driver'}, "dra_value_refused", "nvidiaDriverRoot", "or breaks it"),
        ({"nvidiaDriverRoot": "/run #driver"}, "dra_value_refused", "nvidiaDriverRoot", "another value in the YAML"),
        ({"image": {"tag": "v1\nx: y"}}, "dra_value_refused", "image.tag", "special characters"),
        ({"nameOverride": "on"}, "dra_value_refused", "nameOverride", "another name"),
        ({"image": {"tag": None}}, "dra_value_refused", "image.tag", "remove it"),
    ],
)  # fmt: skip
def test_each_fault_is_one_sentence_with_its_remedy(own: dict[str, Any], code: str, key: str, words: str) -> None:
    found = check_values(own)
    assert [(row["code"], row["key"]) for row in found] == [(code, key)]
    assert words in found[0]["message"]
    assert found[0]["message"].endswith(".")
    assert "\n" not in found[0]["message"]


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
        (
            {
                "consumableShares": "unlimited",
                "featureGates": {
                    "AllAlpha": True,
                    "DynamicMIG": False,
                    "NVMLDeviceHealthCheck": False,
                    "PassthroughSupport": True,
                },
            },
            [],
        ),
        ({"featureGates": {"AllBeta": False, "ComputeDomainCliques": True}}, ["featureGates.ComputeDomainCliques"]),
    ],
)
def test_the_gpu_plugins_own_rules(own: dict[str, Any], keys: list[str]) -> None:
    """Rules with which the GPU plugin exits at its start."""
    found = check_values(own, "all_dra")
    assert [row["key"] for row in found] == keys
    assert {row["code"] for row in found} <= {"dra_value_refused"}


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ({"kubeletPlugin": {"containers": {"gpus": {"healthcheckPort": 51515}}}}, "containers.gpus.healthcheckPort"),
        (
            {"kubeletPlugin": {"containers": {"computeDomains": {"healthcheckPort": 8081}}}},
            "metrics.computeDomainHttpEndpoint",
        ),
    ],
)
def test_both_plugins_listen_on_ports_of_their_own(own: dict[str, Any], key: str) -> None:
    """They are in one pod, and exit where they cannot listen (startHealthcheck, RunPrometheusMetricsServer)."""
    (found,) = check_values(own, "all_dra")
    assert found["key"] == f"kubeletPlugin.{key}"
    assert "are in one pod; set another port." in found["message"]


@pytest.mark.parametrize(
    "own",
    [
        {"kubeletPlugin": {"containers": {"gpus": {"healthcheckPort": -1}, "computeDomains": {"healthcheckPort": -1}}}},
        {"kubeletPlugin": {"metrics": {"gpuHttpEndpoint": "", "computeDomainHttpEndpoint": ""}}},
        {"kubeletPlugin": {"metrics": {"gpuHttpEndpoint": ":8081", "enabled": False}}},
        {
            "kubeletPlugin": {"metrics": {"gpuHttpEndpoint": ":8081"}},
            "resources": {"computeDomains": {"enabled": False}},
        },
        # The controller is a pod of its own.
        {"controller": {"metrics": {"httpEndpoint": ":8081"}}},
    ],
)
def test_ports_that_no_other_program_of_the_pod_has(own: dict[str, Any]) -> None:
    assert check_values(own, "all_dra") == []


@pytest.mark.parametrize(
    ("own", "keys"),
    [
        ({"leaseDuration": "10s"}, ["leaseDuration"]),
        ({"retryPeriod": "9s"}, ["renewDeadline"]),
        ({"retryPeriod": "0s"}, ["retryPeriod"]),
        ({"leaseDuration": "1s", "renewDeadline": "900ms", "retryPeriod": "100ms"}, []),
        ({}, []),
    ],
)
def test_the_controllers_leader_election(own: dict[str, Any], keys: list[str]) -> None:
    """Durations with which client-go's NewLeaderElector, and so the controller, fails."""
    found = check_values({"controller": {"replicas": 2, "leaderElection": {"enabled": True, **own}}})
    assert [row["key"] for row in found] == [f"controller.leaderElection.{key}" for key in keys]
    assert check_values({"controller": {"leaderElection": own}}) == []


@pytest.mark.parametrize(
    "own",
    [
        {"nvidiaCtkPath": ""},
        {"consumableShares": "memory"},  # Without the GPU plugin its rules do not count.
        {"featureGates": None},
        {"namespaceOverride": "default"},
        {"resources": {"computeDomains": {"imex": {"isolation": ""}}}},
        {"webhook": {"enabled": True, "failurePolicy": "", "serviceAccount": {"annotations": {"a/b": "c"}}}},
        {"image": {"pullPolicy": "", "tag": "123"}, "serviceAccount": {"name": "7"}},
        {"kubeletPlugin": {"metrics": {"gpuHttpEndpoint": "[::]:8080", "metricsPath": "/a b"}}},
        {"kubeletPlugin": {"kubeletPluginsDirectoryPath": '/var/"odd"'}},
        {"webhook": {"tls": {"secret": {"caBundle": "a+/="}}}},
    ],
)
def test_what_the_chart_accepts_is_no_fault(own: dict[str, Any]) -> None:
    assert check_values(own) == []


def test_the_default_namespace_is_allowed_only_by_name() -> None:
    assert [row["key"] for row in check_values({}, namespace="default")] == ["namespace"]
    assert check_values({"allowDefaultNamespace": True}, namespace="default") == []
    assert check_values({"namespaceOverride": "gpu"}, namespace="default") == []


def test_keys_of_0_5_are_unknown_before() -> None:
    found = linter.check_values(values.build("host_managed", {"consumableShares": "memory"}, "v1"), BEFORE, NAMESPACE)
    unknown = [row["key"] for row in found if row["code"] == "dra_value_refused"]
    assert unknown == [
        "consumableShares",
        "featureGates.HostManagedIMEXDaemon",
        "resources.computeDomains.imex.hostSocketPath",
        "resources.computeDomains.imex.mode",
    ]
    assert linter.check_values(GOOD, BEFORE, NAMESPACE) == []


def test_extra_keys_of_a_newer_chart_are_accepted() -> None:
    own = {"kubeletPlugin": {"newKey": 1}, "brandNew": {"deep": {"x": 1}}}
    assert {row["key"] for row in check_values(own)} == {"kubeletPlugin.newKey", "brandNew"}
    assert check_values(own, extra_keys=["kubeletPlugin.newKey", "brandNew.deep"]) == []


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
    order = [
        "25.3.0-rc.1",
        "25.3.0",
        "25.8.1",
        "25.12.0",
        "0.4.0-dev",
        "0.4.0",
        "0.4.1",
        "0.5.0-dev",
        "v0.5.0",
        "0.10.0",
    ]
    read = [versions.parse(text) for text in order]
    assert None not in read
    assert read == sorted(read, key=lambda version: version or ())
    assert [version.is_old_chart for version in read if version] == [True] * 4 + [False] * 6


keys = st.text("abcDEF.-", min_size=0, max_size=8) | st.sampled_from([*linter.KEYS, *linter.GATES])
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(keys, below, max_size=4),
    max_leaves=12,
)


@pytest.mark.long
@given(st.dictionaries(keys, trees, max_size=4), st.dictionaries(keys, trees, max_size=4))
def test_values_merge_as_in_helm(base: dict[str, Any], over: dict[str, Any]) -> None:
    both = values.merged(base, over)
    assert set(both) == {*base, *over}
    assert values.merged(both, over) == both
    for key, item in over.items():
        if not isinstance(item, dict):
            assert both[key] == item


@given(st.sampled_from(sorted(linter.KEYS)), st.data())
def test_a_key_that_lost_a_letter_is_never_accepted(path: str, data: st.DataObject) -> None:
    parent, dot, name = path.rpartition(".")
    at = data.draw(st.integers(0, len(name) - 1))
    typo = parent + dot + name[:at] + name[at + 1 :]
    found = linter.check_values(nested(typo, {}), NEW, NAMESPACE)
    # The chart refuses its own default too.
    assert {row["key"] for row in found} - {"resources.gpus.enabled"} == {typo}


@shared
def test_the_known_keys_are_those_of_the_real_chart() -> None:
    real = paths(yaml.safe_load((SAMPLES / "values.yaml").read_text()))
    undocumented = {"maskNvidiaDriverParams", "webhook.serviceAccount.annotations"}
    assert real == set(linter.KEYS) - undocumented


@shared
def test_the_real_charts_own_defaults_are_of_the_known_kinds() -> None:
    found = linter.check_values(yaml.safe_load((SAMPLES / "values.yaml").read_text()), NEW, NAMESPACE)
    # The chart refuses its own default, see the first case of refusals.txt.
    assert [(row["code"], row["key"]) for row in found] == [("dra_value_refused", "resources.gpus.enabled")]


# The cases of refusals.txt, as values or a namespace that makes them. A refused Kubernetes is the preflight's.
REFUSALS: dict[str, dict[str, Any]] = {
    "no values": {"values": {}},
    "hostManaged without its gate": {"own": nested("resources.computeDomains.imex.mode", "hostManaged")},
    "isolation=channel": {"own": nested("resources.computeDomains.imex.isolation", "channel")},
    "namespace default": {"namespace": "default"},
    "namespace value": {"own": {"namespace": "x"}},
    "nvidiaCtkPath": {"own": {"nvidiaCtkPath": "/x"}},
    "webhook tls mode": {"own": {"webhook": {"enabled": True, "tls": {"mode": "x"}}}},
    "a typo: resources.computeDomain.enabled (no schema)": {"own": nested("resources.computeDomain.enabled", True)},
    "gate conflict: IMEXDaemonsWithDNSNames=false (crash-loops later)": {
        "own": nested("featureGates.IMEXDaemonsWithDNSNames", False)
    },
}
OF_THE_CLUSTER = {"Kubernetes 1.31", "resourceApiVersion left empty offline"}


@shared
def test_every_rejection_of_the_real_chart_is_covered() -> None:
    cases = [line[4:] for line in (SAMPLES / "refusals.txt").read_text().splitlines() if line.startswith("--- ")]
    assert sorted(cases) == sorted([*REFUSALS, *OF_THE_CLUSTER])


@pytest.mark.parametrize("case", REFUSALS)
def test_rejections_of_the_real_chart_are_reported_before_helm(case: str) -> None:
    given_ = REFUSALS[case]
    made = given_.get("values", values.build("compute_domains", given_.get("own", {}), "v1"))
    assert len(linter.check_values(made, NEW, given_.get("namespace", NAMESPACE))) == 1
