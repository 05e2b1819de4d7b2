# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane's processes: up, down, and one of them stopped in the middle and started again.

They run in the network namespace of a lab, the API server at 198.51.100.3:6443, everything else on that namespace's
loopback. A control plane alone is a lab without hosts, so `lab down` ends both kinds, also after a crash. Each process
is in a cgroup of its own below the lab's, and all that they write stands in /run/nvlink-lab/NAME/kubernetes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from .. import host, lab, linux, network, paths, state, tools
from ..addresses import KUBERNETES_ADDRESS, PREFIX
from ..errors import LabError
from ..scenario import Scenario
from . import certificates, nodes, programs, registry, relay, store
from .api import Api, ApiError

PORT = 6443
SERVICES = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
ETCD = "http://127.0.0.1:2379"
# In start order; the last three are files in this folder.
DRIVER, REGISTRY, RELAY = "driver", "registry", "relay"
COMPONENTS = ("etcd", *programs.SERVERS, programs.KWOK, REGISTRY, RELAY, DRIVER)
# The components for nodes and objects alone: none marks nodes without a heartbeat.
API_ONLY = ("etcd", "kube-apiserver")
STAGES = paths.LAB / "kubernetes" / "stages"
DEFAULT_TIMEOUT = 120.0
_numbers = itertools.count(1)
_children: set[int] = set()


@dataclasses.dataclass(frozen=True)
class ControlPlane:
    """A running control plane: its kubeconfig files and its components."""

    name: str

    @property
    def directory(self) -> Path:
        return paths.state_of(self.name) / "kubernetes"

    @property
    def server(self) -> str:
        return f"https://{KUBERNETES_ADDRESS}:{PORT}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.directory / "admin.kubeconfig"

    @property
    def outside(self) -> Path:
        """The administrator's kubeconfig file for programs outside the lab's network, through the relay."""
        return self.directory / "outside.kubeconfig"

    @property
    def authority(self) -> Path:
        """The CA certificate of the API server and the registry."""
        return self.directory / "pki" / "ca.crt"

    @property
    def charts(self) -> Path:
        """The folder of packed charts that the registry serves."""
        return self.directory / registry.FOLDER

    def outside_address(self, of: str = "kube-apiserver") -> str:
        """HOST:PORT outside the lab's network of "kube-apiserver" or "registry"."""
        ports = relay.ports(self.directory)
        if of not in ports:
            raise LabError(f"nothing leads to the {of} of {self.name!r} from outside: start it with its relay.")
        return f"127.0.0.1:{ports[of]}"

    def publish(self, folder: Path) -> str:
        """Pack a chart's folder into the registry; its OCI reference in the lab's network, without the version."""
        self.helm("package", folder, "--destination", self.charts)
        name = yaml.safe_load((folder / "Chart.yaml").read_text())["name"]
        return f"oci://{KUBERNETES_ADDRESS}:{registry.PORT}/charts/{name}"

    @property
    def version(self) -> str:
        version: str = self._state()["version"]
        return version

    def api(self) -> Api:
        return Api(network.file_of(self.name), KUBERNETES_ADDRESS, PORT, self.directory / "pki")

    def environment(self, helm: str = "4", **more: str) -> dict[str, str]:
        """For commands in the lab's network: kubectl and Helm (4 or 3) first on PATH, no proxy, the administrator."""
        kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        tools_first = [str(programs.helm(helm).parent), str(programs.kubectl().parent), kept.get("PATH", tools.PATH)]
        own = {"KUBECONFIG": str(self.kubeconfig), "K8S_AUTH_KUBECONFIG": str(self.kubeconfig)}
        homes = {
            f"HELM_{kind}_HOME": str(self.directory / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
        }
        return {**kept, "PATH": os.pathsep.join(tools_first), **own, **homes, **more}

    def inside(self, command: Iterable[str | Path]) -> list[str]:
        """The command line that runs a command of this machine in the lab's network."""
        return ["nsenter", f"--net={network.file_of(self.name)}", "--", *map(str, command)]

    def run(
        self, *command: str | Path, helm: str = "4", check: bool = True, stdin: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of this machine in the lab's network; LabError when it fails and `check` is set."""
        done = subprocess.run(
            self.inside(command), env=self.environment(helm), input=stdin or "", capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
        if check and done.returncode:
            words = " ".join(map(str, command))
            raise LabError(f"{words} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done

    def kubectl(self, *arguments: str | Path, **more: Any) -> str:
        return self.run("kubectl", *arguments, **more).stdout

    def helm(self, *arguments: str | Path, major: str = "4", **more: Any) -> subprocess.CompletedProcess[str]:
        return self.run("helm", *arguments, helm=major, **more)

    # The components.

    def components(self) -> dict[str, dict[str, Any]]:
        """Component -> {"running", "pid", "memory_mb": what it holds now, null when it does not run}."""
        result = {}
        for name, entry in self._state()["components"].items():
            running = linux.is_alive(entry["pid"], entry["started"])
            memory = _resident(entry["pid"]) if running else None
            result[name] = {"running": running, "pid": entry["pid"], "memory_mb": memory}
        return result

    def stop(self, component: str = "kube-apiserver") -> None:
        """Kill one of the processes; its stored data is kept."""
        self._known(component)
        host.end_processes(_cgroup(self.name) / component)

    def start(self, component: str = "kube-apiserver", timeout: float = DEFAULT_TIMEOUT) -> None:
        """Start a process that was stopped, and wait until the API server answers."""
        known = self._known(component)
        entry = known["components"][component]
        if linux.is_alive(entry["pid"], entry["started"]):
            raise LabError(f"{component} of {self.name!r} is running already.")
        self._spawn(component, known)
        self.wait(timeout)

    def wait(self, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until the API server is ready and the controllers have created the default objects."""
        deadline = time.monotonic() + timeout
        api, trouble = self.api(), "no answer"
        parts = self._state()["components"]
        wanted = ["readyz"]
        if "kube-controller-manager" in parts:
            wanted.append("api/v1/namespaces/default/serviceaccounts/default")
        while wanted:
            try:
                api.get(wanted[0])
                wanted.pop(0)
                continue
            except ApiError as error:
                trouble = str(error)
            for name in API_ONLY:
                entry = parts[name]
                if not linux.is_alive(entry["pid"], entry["started"]):
                    raise LabError(f"{name} ended: {self.last_words(name)}")
            if time.monotonic() > deadline:
                raise LabError(f"the control plane does not become ready: {trouble}")
            time.sleep(0.05)

    def last_words(self, component: str) -> str:
        log = (self.directory / f"{component}.log").read_text(errors="replace")
        telling = [line for line in log.splitlines() if "err" in line.lower() or "fatal" in line.lower()]
        return tools.last_line("\n".join(telling) or log)

    def _state(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.directory / "plane.json").read_text())
        except FileNotFoundError:
            raise LabError(f"lab {self.name!r} has no control plane: start it with lab kubernetes up.") from None
        return found

    def _known(self, component: str) -> dict[str, Any]:
        known = self._state()
        if component not in known["components"]:
            raise LabError(f"there is no {component!r} in {self.name!r}: it has {', '.join(known['components'])}.")
        return known

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
        linux.setns(netns, linux.CLONE_NEWNET)
        os.close(netns)
    # kwok and helm look for files below HOME; the machine's owner may have some of other clusters.
    os.execve(command[0], command, {"PATH": tools.PATH, "HOME": str(log_file.parent), "GOMAXPROCS": "2"})


def up(
    name: str,
    version: str = programs.DEFAULT_VERSION,
    components: Iterable[str] = COMPONENTS,
    timeout: float = DEFAULT_TIMEOUT,
) -> ControlPlane:
    """Start a control plane: in the lab of that name where there is one, else alone.

    components: which of COMPONENTS; etcd and the API server always run.
    """
    tools.need_root()
    paths.check_name(name)
    tools.ensure_tools()
    prepared = prepare(version, components)
    if not paths.state_of(name).is_dir():
        _empty_lab(name)
    plane = ControlPlane(name)
    try:
        begin(name, *prepared)
        finish(plane, timeout)
    except BaseException:
        down(name)
        raise
    return plane


def prepare(version: str, components: Iterable[str] = COMPONENTS) -> tuple[str, list[str], dict[str, Path]]:
    """(version, what to start, the programs), all of them there; "" is the usual version."""
    version = version or programs.DEFAULT_VERSION
    parts = [part for part in COMPONENTS if part in {*components, *API_ONLY}]
    return version, parts, programs.servers(version)


def begin(name: str, version: str, parts: list[str], files: Mapping[str, Path]) -> ControlPlane:
    """Start etcd and the API server in a lab that has its network; finish() waits for them and starts the others."""
    plane = ControlPlane(name)
    directory = plane.directory
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        raise LabError(f"lab {name!r} has a control plane already: end it first (lab kubernetes down).") from None
    pki = directory / "pki"
    certificates.make(pki, KUBERNETES_ADDRESS, SERVICE_ADDRESS)
    for user in certificates.CLIENTS:
        text = certificates.kubeconfig(pki, plane.server, certificates.client(pki, user))
        certificates.write_kubeconfig(directory / f"{user}.kubeconfig", text)
    ip = ["ip", "-n", paths.netns_of(name), "address", "replace", f"{KUBERNETES_ADDRESS}/{PREFIX}"]
    tools.call([*ip, "dev", network.BRIDGE], "the API server's address")
    (directory / registry.FOLDER).mkdir()
    commands = _commands(directory, network.file_of(name), files)
    known: dict[str, Any] = {"version": version, "components": {}, "commands": {part: commands[part] for part in parts}}
    for part in API_ONLY:
        plane._spawn(part, known)
    return plane


def finish(plane: ControlPlane, timeout: float) -> None:
    """Start the others after their permissions exist; before, they would be delayed by retries."""
    deadline = time.monotonic() + timeout
    plane.wait(timeout)
    known = plane._state()
    for part in known["commands"]:
        if part not in known["components"]:
            plane._spawn(part, known)
    plane.wait(deadline - time.monotonic())
    if RELAY in known["commands"]:
        while not relay.ports(plane.directory):
            if time.monotonic() > deadline:
                raise LabError(f"the relay does not start: {plane.last_words(RELAY)}")
            time.sleep(0.02)
        text = plane.kubeconfig.read_text().replace(plane.server, f"https://{plane.outside_address()}")
        certificates.write_kubeconfig(plane.outside, text)


def add_trays(plane: ControlPlane, scenario: Scenario) -> int:
    """Create a Node for each tray of a lab; returns their number."""
    return plane.api().create_all(nodes.PATH, nodes.of_scenario(scenario, plane.version))


def add_racks(plane: ControlPlane, racks: int, trays_per_rack: int = 18) -> int:
    """Make the Nodes of simulated racks; their number.

    Only the first goes through the API server. The others are written into etcd as that one stands there, with its
    record of fields too: ten thousand in seconds, where the API server would take minutes.
    """
    api = plane.api()
    wanted = nodes.of_fleet(racks, plane.version, trays_per_rack)
    first = api.create(nodes.PATH, next(wanted))
    store.put(plane.name, (store.like(first, node) for node in wanted))
    total: int = racks * trays_per_rack
    deadline = time.monotonic() + DEFAULT_TIMEOUT
    while _count(api) < total:
        if time.monotonic() > deadline:
            raise LabError("the API server does not show all the nodes that etcd has.")
        time.sleep(0.2)
    return total


def _count(api: Api) -> int:
    # From the watch cache, which serves lists without a resourceVersion of their own.
    page = api.get(f"{nodes.PATH}?limit=1")
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


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
    if root is None:
        raise LabError("no cgroup v2 hierarchy is mounted: mount one (mount -t cgroup2 none /sys/fs/cgroup/unified).")
    directory = state.create(name)
    try:
        cgroup = root / paths.netns_of(name)
        scenario = Scenario("trixie", False, None, ())
        (directory / "scenario.json").write_text(json.dumps(dataclasses.asdict(scenario), indent=1) + "\n")
        known = {"up": {"pid": os.getpid(), "started": linux.start_time(os.getpid())}, "phase": "up", "base": ""}
        state.write(name, {**known, "cgroup": str(cgroup), "hosts": {}})
        network.create(name)
        cgroup.mkdir()
    except BaseException:
        lab.down(name, keep_running=os.getpid())
        raise


def down(name: str) -> None:
    """End a control plane; a lab that it joined goes on, one that it had made for itself goes with it. Idempotent."""
    tools.need_root()
    directory = paths.state_of(name)
    with contextlib.suppress(FileNotFoundError, ValueError):
        if json.loads((directory / "state.json").read_text())["hosts"]:
            host.end_processes(_cgroup(name))
            shutil.rmtree(directory / "kubernetes", ignore_errors=True)
            return
    lab.down(name, keep_running=os.getpid())


@contextlib.contextmanager
def control_plane(
    version: str = programs.DEFAULT_VERSION,
    components: Iterable[str] = COMPONENTS,
    name: str | None = None,
) -> Iterator[ControlPlane]:
    """A control plane that is stopped at the end, also after an error."""
    name = name or f"kube-{os.getpid()}-{next(_numbers)}"
    try:
        yield up(name, version, components)
    finally:
        down(name)
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


def _resident(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
    return None
