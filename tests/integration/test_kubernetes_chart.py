# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tests' chart and definitions against the driver's own, where those are next to the checkout, and the linter."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import linter, values, versions
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from nvlab.kubernetes import chart, programs

from .conftest import CHECKOUT

# With the marks of the lab, as the programs are fetched: elsewhere tests run without a network.
pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long]

SHARED = CHECKOUT.parent / "shared"
SAMPLES = SHARED / "samples" / "dra-chart"
with_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the driver's own chart and definitions are not next to the checkout"
)

DOMAINS = {"resources": {"gpus": {"enabled": False}}}
# The values behind each of the real chart's renderings.
SHAPES: dict[str, dict[str, Any]] = {
    "all-dra": {"gpuResourcesEnabledOverride": True},
    "compute-domains-only": DOMAINS,
    "host-managed": {
        "resources": {"gpus": {"enabled": False}, "computeDomains": {"imex": {"mode": "hostManaged"}}},
        "featureGates": {"HostManagedIMEXDaemon": True},
    },
    "renamed-upgrade": {**DOMAINS, "nameOverride": chart.OLD_NAME},
}


def helm(folder: Path, tmp_path: Path, values: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of a chart, without a cluster."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    common = ["--namespace", chart.NAME, "--kube-version", "1.34.2", "--values", str(file)]
    command = [str(programs.helm()), "template", chart.NAME, str(folder), *common, *options]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def objects(text: str) -> dict[tuple[str, str, str | None], dict[str, Any]]:
    rows = [row for row in yaml.safe_load_all(text) if row]
    found = {(row["kind"], row["metadata"]["name"], row["metadata"].get("namespace")): row for row in rows}
    assert len(found) == len(rows)
    return found


def keys(value: Any, path: str = "") -> dict[str, Any]:
    """Every key of a document by its path, with its value where that is no map of further keys."""
    if isinstance(value, dict) and value:
        return {key: found for name, inner in value.items() for key, found in keys(inner, f"{path}.{name}").items()}
    return {path: value}


def described(value: Any) -> Any:
    """A schema without its prose, its lists in one order."""
    if isinstance(value, dict):
        return {
            key: described(inner)
            for key, inner in value.items()
            if not (key == "description" and isinstance(inner, str))
        }
    return sorted((described(inner) for inner in value), key=str) if isinstance(value, list) else value


@with_samples
def test_values_are_those_of_the_drivers_chart() -> None:
    real, ours = ((folder / "values.yaml").read_text() for folder in (SAMPLES, chart.CHART))
    assert keys(yaml.safe_load(ours)) == keys(yaml.safe_load(real))


@with_samples
@pytest.mark.parametrize("shape", SHAPES)
def test_a_release_has_the_same_objects(shape: str, tmp_path: Path) -> None:
    real = objects((SAMPLES / f"rendered.{shape}.yaml").read_text())
    done = helm(chart.CHART, tmp_path, SHAPES[shape])
    assert done.returncode == 0, done.stderr
    ours = objects(done.stdout)
    assert set(ours) == set(real)
    for key, row in ours.items():
        if key[0] in ("DaemonSet", "Deployment"):
            assert workload(row) == workload(real[key])
        if key[0] == "DeviceClass":
            selectors = [" ".join(one["cel"]["expression"].split()) for one in row["spec"]["selectors"]]
            assert selectors == [one["cel"]["expression"] for one in real[key]["spec"]["selectors"]]


def workload(row: dict[str, Any]) -> Any:
    """The parts of a workload that other programs read."""
    spec, pod = row["spec"], row["spec"]["template"]["spec"]
    read = {"IMEX_MODE", "IMEX_ISOLATION", "IMEX_HOST_SOCKET_PATH", "GPU_CLIQUE_LABEL_ENABLED", "FEATURE_GATES"}
    settings = {
        (part["name"], entry["name"], entry.get("value"))
        for part in pod["containers"]
        if part["name"] == "compute-domains"
        for entry in part["env"]
        if entry["name"] in read
    }
    return (
        spec["selector"],
        spec["template"]["metadata"]["labels"],
        [part["name"] for part in pod["containers"]],
        pod["serviceAccountName"],
        pod["priorityClassName"],
        pod["affinity"],
        pod["tolerations"],
        settings,
    )


@with_samples
def test_definitions_are_those_of_the_driver_and_the_stale_one_that_of_the_operator() -> None:
    for ours in chart.crds():
        real = definition(f"{ours['metadata']['name'].partition('.')[0]}.yaml")
        assert described(ours["spec"]) == described(real["spec"])
    real = definition("computedomains.stale-gpu-operator-26.7.0.yaml")
    assert described(chart.stale_crd()["spec"]) == described(real["spec"])


def definition(file: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SHARED / "crds" / f"resource.nvidia.com_{file}").read_text())
    return found


def test_an_old_chart_has_the_old_name_image_and_definition(tmp_path: Path) -> None:
    folder = chart.folder(tmp_path, "25.12.0")
    done = helm(folder, tmp_path, DOMAINS)
    found = objects(done.stdout)
    row = found["DaemonSet", f"{chart.OLD_NAME}-kubelet-plugin", chart.NAME]
    assert row["metadata"]["labels"]["helm.sh/chart"] == f"{chart.OLD_NAME}-25.12.0"
    assert row["spec"]["template"]["spec"]["containers"][0]["image"] == f"{chart.OLD_IMAGE}:v25.12.0"
    crd = yaml.safe_load((folder / "crds" / chart.DOMAINS_CRD).read_text())
    assert crd == chart.stale_crd()


# Texts that mean something in YAML, between texts that do not.
ODD = ("", "a", "123", "on", "null", "~", "a b", "a: b", "a #b", 'a"b', "a\\b", "a\nb", "'a", "{a}", "*a", "- a")
# Keys whose text is in every DaemonSet of the plugin.
EVERYWHERE = {
    *("nvidiaDriverRoot", "nameOverride", "namespaceOverride", "image.repository", "image.tag", "serviceAccount.name"),
    "kubeletPlugin.priorityClassName",
}
STRINGS = (
    "name",
    "app.kubernetes.io/name",
    "namespace",
    "image",
    "priorityClassName",
    "serviceAccountName",
    "value",
    "path",
)
ROWS = [[], [{"name": "a"}], [{"name": "a", "value": "b"}]]
ITEMS: dict[str, st.SearchStrategy[Any]] = {
    linter.TEXT: st.sampled_from(ODD),
    linter.PATH: st.sampled_from(ODD).map("/{}".format) | st.just("relative"),
    linter.DURATION: st.sampled_from(["15s", "1m30s", "0.5s", "15"]),
    linter.FLAG: st.booleans(),
    linter.WHOLE: st.sampled_from([0, 1, 51515]),
    linter.LEVEL: st.sampled_from(["4", 6, "loud"]),
    linter.SHARES: st.sampled_from(["", "disabled", "memory", 4, "4", 0, "x"]),
    linter.ENDPOINT: st.sampled_from(["", ":8080", ":8081", "[::1]:51515", "8080"]),
    linter.MAP: st.sampled_from([{}, {"a": "b"}, None]),
    linter.ENTRIES: st.sampled_from([[], [{"key": "a", "operator": "Exists"}], None]),
    linter.NAMED: st.sampled_from([*ROWS, ["a"], [{}], None]),
    linter.TEXTS: st.sampled_from([[], ["a"], None]),
}
GATES = st.dictionaries(st.sampled_from([*linter.GATES, linter.ALL_ALPHA, linter.ALL_BETA]), st.booleans(), max_size=3)
OWN = {
    "featureGates": GATES,
    "namespace": st.sampled_from(["", "x"]),
    "nvidiaCtkPath": st.sampled_from(["", "/x"]),
    "zzz": st.just(1),
}


@st.composite
def given_values(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """(the values of a shape with a site's own, the namespace)."""
    made = values.build(draw(st.sampled_from(["compute_domains", "all_dra", "host_managed"])), {}, "v1")
    for path in draw(st.lists(st.sampled_from([*linter.KEYS, *OWN]), max_size=5)):
        key = linter.KEYS.get(path)
        if key and key.choices:
            item = draw(st.sampled_from([*key.choices, "x"]))
        else:
            item = draw(OWN[path] if path in OWN else ITEMS[linter.KEYS[path].kind])
        for part in reversed(path.split(".")):
            item = {part: item}
        made = values.merged(made, item)
    return made, draw(st.sampled_from([chart.NAME, chart.NAME, "default"]))


def scalars(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of a document that is no list or map, with the key that it has."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from scalars(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from scalars(inner, name)
    else:
        yield name, value


def is_rendered(made: dict[str, Any], done: subprocess.CompletedProcess[str]) -> bool:
    """Whether Helm renders YAML in which names are strings, and the texts of EVERYWHERE are those of the values."""
    try:
        rows = list(yaml.safe_load_all(done.stdout)) if done.returncode == 0 else []
    except yaml.YAMLError:
        return False
    plugins = [row for row in rows if row and row["kind"] == "DaemonSet"]
    found = [item for row in rows for item in scalars(row)]
    strings = [text for row in plugins for _name, text in scalars(row) if isinstance(text, str)]
    wanted = [str(text) for path in EVERYWHERE if (text := values.value(made, path))]
    return (
        bool(plugins)
        and ("path", values.value(made, "nvidiaDriverRoot", "/")) in found
        and all(isinstance(text, str) and text.isprintable() for name, text in found if name in STRINGS)
        and all(any(text in string for string in strings) for text in wanted)
    )


# What the chart's own templates refuse; for the other values the API server or the driver does.
OF_THE_CHART = r"the chart rejects|(secret\.name|issuerName): is empty while"


def compare_with_helm(folder: Path, scratch: Path, made: dict[str, Any], namespace: str) -> None:
    found = linter.check_values(made, versions.pinned(chart.NEWEST), namespace)
    done = helm(folder, scratch, made, "--namespace", namespace)
    if not found:
        assert is_rendered(made, done), done.stderr
    if any(re.search(OF_THE_CHART, row["message"]) for row in found):
        assert done.returncode != 0, found
    if found and all(row["key"] in EVERYWHERE and "another value in the YAML" in row["message"] for row in found):
        assert not is_rendered(made, done), found


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chart.folder(tmp_path_factory.mktemp("chart"))


# Without shrinking, which would run Helm hundreds of times for one failure.
@settings(phases=[Phase.explicit, Phase.generate])
@given(given_values())
def test_the_linter_finds_what_helm_refuses(newest: Path, made: tuple[dict[str, Any], str]) -> None:
    compare_with_helm(newest, newest.parent, *made)
