# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane's processes: up, down, and one of them stopped in the middle and started again.

They run in the network namespace of a lab, the API server at 198.51.100.3:6443, everything else on that namespace's
loopback; a relay leads to them from this machine's. A control plane alone is a lab without hosts, so `lab down` ends
both kinds, also after a crash. Each process is in a cgroup of its own below the lab's, and all that they write stands
in /run/nvlink-lab/NAME/kubernetes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from .. import host, lab, linux, network, paths, state, tools
from ..addresses import KUBERNETES_ADDRESS, PREFIX
from ..errors import LabError
from ..scenario import Scenario
from . import certificates, nodes, programs, registry, relay
from .api import Api, ApiError

PORT = 6443
SERVICES = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
ETCD = "http://127.0.0.1:2379"
# In start order; the last three are files in this folder.
DRIVER, REGISTRY, RELAY = "driver", "registry", "relay"
COMPONENTS = ("etcd", *programs.SERVERS, programs.KWOK, REGISTRY, RELAY, DRIVER)
# Started first: the others would be delayed by retries.
API_ONLY = ("etcd", "kube-apiserver")
RESTARTED = ("kube-apiserver", "kube-controller-manager")
STAGES = paths.LAB / "kubernetes" / "stages"
DEFAULT_TIMEOUT = 120.0
_numbers = itertools.count(1)
_children: set[int] = set()


@dataclasses.dataclass(frozen=True)
class ControlPlane:
    """A running control plane: the administrator's access, and its components."""

    name: str

    @property
    def directory(self) -> Path:
        return paths.state_of(self.name) / "kubernetes"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file for programs of this machine, through the relay."""
        return self.directory / "kubeconfig"

    @property
    def authority(self) -> Path:
        """The CA certificate of the API server and the registry."""
        return self.directory / "pki" / "ca.crt"

    def address(self, of: str = "kube-apiserver") -> str:
        """HOST:PORT on this machine of "kube-apiserver" or "registry"."""
        return f"127.0.0.1:{relay.ports(self.directory)[of]}"

    def publish(self, folder: Path) -> str:
        """Pack a chart's folder into the registry; its OCI reference, without the version."""
        described = yaml.safe_load((folder / "Chart.yaml").read_text())
        self.helm("package", folder, "--destination", self.directory)
        packed = self.directory / f"{described['name']}-{described['version']}.tgz"
        return f"oci://{self.address('registry')}/{registry.put(self.directory, packed, described)}"

    @property
    def version(self) -> str:
        version: str = self._state()["version"]
        return version

    def api(self) -> Api:
        return Api(network.file_of(self.name), KUBERNETES_ADDRESS, PORT, self.directory / "pki")

    def run(
        self, *command: str | Path, check: bool = True, stdin: str = "", timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the administrator; LabError when it fails and `check` is set."""
        kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        homes = {
            f"HELM_{kind}_HOME": str(self.directory / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
        }
        done = subprocess.run(
            [*map(str, command)], env={**kept, "KUBECONFIG": str(self.kubeconfig), **homes}, input=stdin,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        if check and done.returncode:
            words = " ".join(map(str, command))
            raise LabError(f"{words} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done

    def kubectl(self, *arguments: str | Path, **more: Any) -> str:
        return self.run(programs.kubectl(), *arguments, **more).stdout

    def helm(self, *arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.run(programs.helm(), *arguments, **more)

    # The components.

    def is_running(self, component: str) -> bool:
        entry = self._state()["components"][component]
        return linux.is_alive(entry["pid"], entry["started"])

    def stop(self) -> None:
        """Kill the API server and the controllers, which elsewhere end as their lease does; what is stored is kept."""
        for component in RESTARTED:
            host.end_processes(_cgroup(self.name) / component)

    def start(self) -> None:
        """Start what was stopped, and wait until the API server answers."""
        for component in RESTARTED:
            self._spawn(component, self._state())
            self.wait(DEFAULT_TIMEOUT)

    def wait(self, timeout: float) -> None:
        """Wait until the API server is ready and the controllers, once started, have created the default objects."""
        deadline = time.monotonic() + timeout
        api, trouble = self.api(), "no answer"
        wanted = ["readyz"]
        if "kube-controller-manager" in self._state()["components"]:
            wanted.append("api/v1/namespaces/default/serviceaccounts/default")
        while wanted:
            try:
                api.get(wanted[0])
                wanted.pop(0)
                continue
            except ApiError as error:
                trouble = str(error)
            for name in API_ONLY:
                if not self.is_running(name):
                    raise LabError(f"{name} ended: {self.last_words(name)}")
            if time.monotonic() > deadline:
                raise LabError(f"the control plane does not become ready: {trouble}")
            time.sleep(0.05)

    def last_words(self, component: str) -> str:
        log = (self.directory / f"{component}.log").read_text(errors="replace")
        telling = [line for line in log.splitlines() if "err" in line.lower() or "fatal" in line.lower()]
        return tools.last_line("\n".join(telling) or log)

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "plane.json").read_text())
        return found

    def _spawn(self, component: str, known: dict[str, Any]) -> None:
        """Start and record a process in the lab's network; it continues when the caller ends."""
        command = known["commands"][component]
        cgroup = _cgroup(self.name) / component
        cgroup.mkdir(parents=True, exist_ok=True)
        pid = os.fork()
        if not pid:
            try:
                # Only the relay runs outside.
                netns = None if component == RELAY else network.file_of(self.name)
                _become(command, self.directory / f"{component}.log", cgroup, netns)
            except BaseException as error:
                print(f"lab: starting {component}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(127)
        _children.add(pid)
        known["components"][component] = {"pid": pid, "started": linux.start_time(pid)}
        state.write_atomically(self.directory / "plane.json", json.dumps(known, indent=1) + "\n")


def _become(command: list[str], log_file: Path, cgroup: Path, netns_file: Path | None) -> None:
    os.setsid()
    (cgroup / "cgroup.procs").write_text("0")
    null = os.open("/dev/null", os.O_RDONLY)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, 4096)
    if netns_file:
        netns = os.open(netns_file, os.O_RDONLY)
        os.setns(netns, os.CLONE_NEWNET)
        os.close(netns)
    # kwok and helm look for files below HOME; the machine's owner may have some of other clusters.
    os.execve(command[0], command, {"PATH": tools.PATH, "HOME": str(log_file.parent), "GOMAXPROCS": "2"})


def prepare(version: str) -> tuple[str, dict[str, Path]]:
    """(version, the programs), all of them there; "" is the usual version."""
    version = version or programs.DEFAULT_VERSION
    return version, programs.servers(version)


def begin(name: str, version: str, files: Mapping[str, Path]) -> ControlPlane:
    """Start etcd and the API server in a lab that has its network; finish() waits for them and starts the others."""
    plane = ControlPlane(name)
    directory = plane.directory
    directory.mkdir(mode=0o700)
    pki = directory / "pki"
    certificates.make(pki, KUBERNETES_ADDRESS, SERVICE_ADDRESS)
    for user in certificates.CLIENTS:
        server, login = f"https://{KUBERNETES_ADDRESS}:{PORT}", certificates.client(pki, user)
        certificates.write_kubeconfig(directory / f"{user}.kubeconfig", pki, server, login)
    ip = ["ip", "-n", paths.netns_of(name), "address", "replace", f"{KUBERNETES_ADDRESS}/{PREFIX}"]
    tools.call([*ip, "dev", network.BRIDGE], "the API server's address")
    # Where `make lab` users and Molecule find them.
    (directory / "bin").mkdir()
    for program in (programs.helm(), programs.kubectl()):
        (directory / "bin" / program.name).symlink_to(program)
    commands = _commands(directory, network.file_of(name), files)
    known: dict[str, Any] = {"version": version, "components": {}, "commands": commands}
    for part in API_ONLY:
        plane._spawn(part, known)
    return plane


def finish(plane: ControlPlane, timeout: float) -> None:
    """Start the others after their permissions exist; before, they would be delayed by retries."""
    deadline = time.monotonic() + timeout
    plane.wait(timeout)
    known = plane._state()
    for part in COMPONENTS:
        if part not in API_ONLY:
            plane._spawn(part, known)
    plane.wait(deadline - time.monotonic())
    while not relay.ports(plane.directory):
        if time.monotonic() > deadline:
            raise LabError(f"the relay does not start: {plane.last_words(RELAY)}")
        time.sleep(0.02)
    pki = plane.directory / "pki"
    login = certificates.client(pki, "admin")
    certificates.write_kubeconfig(plane.kubeconfig, pki, f"https://{plane.address()}", login)


def add_trays(plane: ControlPlane, scenario: Scenario) -> int:
    """Create a Node for each tray of a lab; returns their number."""
    return plane.api().create_all(nodes.PATH, nodes.of_scenario(scenario, plane.version))


def _commands(directory: Path, netns: Path, files: Mapping[str, Path]) -> dict[str, list[str]]:
    pki = directory / "pki"
    here, python = Path(__file__).resolve(), [sys.executable, "-B"]
    ways = [f"kube-apiserver={PORT}", f"registry={registry.PORT}"]
    return {
        # The database is deleted at the end, so it need not be synced to the disk.
        "etcd": [
            str(files["etcd"]),
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--quota-backend-bytes={4 << 30}",
        ],
        "kube-apiserver": [
            str(files["kube-apiserver"]),
            f"--etcd-servers={ETCD}",
            f"--bind-address={KUBERNETES_ADDRESS}",
            f"--advertise-address={KUBERNETES_ADDRESS}",
            f"--secure-port={PORT}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--service-account-issuer={certificates.ISSUER}",
            f"--service-account-key-file={pki / 'tokens.key'}",
            f"--service-account-signing-key-file={pki / 'tokens.key'}",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--endpoint-reconciler-type=none",
        ],
        "kube-controller-manager": [
            str(files["kube-controller-manager"]),
            f"--kubeconfig={directory / 'controller-manager.kubeconfig'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            f"--service-account-private-key-file={pki / 'tokens.key'}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
        ],
        "kube-scheduler": [
            str(files["kube-scheduler"]),
            f"--kubeconfig={directory / 'scheduler.kubeconfig'}",
            "--leader-elect=false",
            "--secure-port=0",
        ],
        programs.KWOK: [
            str(files[programs.KWOK]),
            f"--kubeconfig={directory / 'admin.kubeconfig'}",
            *(f"--config={stage}" for stage in sorted(STAGES.glob("*.yaml"))),
            f"--manage-nodes-with-label-selector={nodes.KEPT_ALIVE}=true",
            "--node-lease-duration-seconds=120",
            "--v=WARN",
        ],
        REGISTRY: [*python, str(here.with_name("registry.py")), str(directory), KUBERNETES_ADDRESS],
        RELAY: [*python, str(here.with_name("relay.py")), str(directory), str(netns), KUBERNETES_ADDRESS, *ways],
        DRIVER: [*python, str(here.with_name("driver.py")), str(directory)],
    }


def _empty_lab(name: str) -> None:
    """A lab without hosts: its directory, its network and its cgroup."""
    root = linux.cgroup_root()
    directory = state.create(name)
    cgroup = root / paths.netns_of(name)
    scenario = Scenario("trixie", False, None, ())
    (directory / "scenario.json").write_text(json.dumps(dataclasses.asdict(scenario), indent=1) + "\n")
    known = {"up": {"pid": os.getpid(), "started": linux.start_time(os.getpid())}, "phase": "up", "base": ""}
    state.write(name, {**known, "cgroup": str(cgroup), "hosts": {}})
    network.create(name)
    cgroup.mkdir()


@contextlib.contextmanager
def control_plane(version: str) -> Iterator[ControlPlane]:
    """A control plane in a lab of its own, which goes at the end, also after an error."""
    name = f"kube-{os.getpid()}-{next(_numbers)}"
    tools.need_root()
    tools.ensure_tools()
    prepared = prepare(version)
    try:
        _empty_lab(name)
        plane = begin(name, *prepared)
        finish(plane, DEFAULT_TIMEOUT)
        yield plane
    finally:
        lab.down(name, keep_running=os.getpid())
        _reap()


def _reap() -> None:
    """Reap the ended processes that this process started here, and no other children."""
    for pid in list(_children):
        with contextlib.suppress(ChildProcessError):
            if not os.waitpid(pid, os.WNOHANG)[0]:
                continue
        _children.discard(pid)


def _cgroup(name: str) -> Path:
    return Path(state.read(name)["cgroup"]) / "kubernetes"
