# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon: nvidia-imex [-c CONFIG] [--version]."""

from __future__ import annotations

import fcntl
import getopt
import json
import os
import signal
import socket
import sys
import time

from . import config, hooks, wire

PERSIST = "/var/run/nvidia-imex/persist.dat"
LEVELS = {"CRITICAL": 1, "ERROR": 2, "WARNING": 3, "INFO": 4}
SIGUSR1_PAUSE = 5.0
LONGEST_BACKOFF = 8.0


class StartError(Exception):
    """Why the daemon does not start; it is in the log."""


def stamp() -> str:
    """Now as the real tools print it: M/D/YYYY HH:MM:SS.mmm."""
    now = time.time()
    day = time.localtime(now)
    return f"{day.tm_mon}/{day.tm_mday}/{day.tm_year} {time.strftime('%H:%M:%S', day)}.{int(now % 1 * 1000):03d}"


class Log:
    """The log in the real one's format, to the file of LOG_FILE_NAME or to standard error."""

    def __init__(self, settings):
        self.level = config.number(settings, "LOG_LEVEL")
        self._file = sys.stderr
        if settings["LOG_FILE_NAME"]:
            try:
                mode = "w" if settings["LOG_APPEND_TO_LOG"] == "0" else "a"
                self._file = open(settings["LOG_FILE_NAME"], mode, encoding="utf-8")  # noqa: SIM115  (open for ever)
            except OSError:
                pass
        self._write(f"IMEX Log initializing at: {stamp()}")

    def __call__(self, level, text):
        line = f"[{time.strftime('%b %d %Y %H:%M:%S')}] [{level}] [tid {os.getpid()}] {text}"
        if LEVELS[level] <= self.level:
            self._write(line)

    def _write(self, line):
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except (OSError, ValueError):
            pass


class Peer:
    """What this node knows of another: the cell of its row, and the connection that it made to it."""

    def __init__(self, number, entry):
        self.number, self.entry = number, entry
        self.address = config.resolve(entry)
        self.cell, self.line, self.instance = "NEVER_CONNECTED", None, ""
        self.backoff, self.attempt = 0.0, 0


class Daemon:
    def __init__(self, settings):
        self.settings, self.log, self.loop = settings, Log(settings), wire.Loop()
        self.version = hooks.version()
        self.instance = os.urandom(8).hex()
        self.state, self.own, self.source, self.peers, self.key = "INITIALIZING", None, "", [], ""
        self.servers, self.clients, self.inbound, self.waits_for = [], set(), set(), set()
        self.tls, self.session, self.last_usr1, self.persisted = None, None, -SIGUSR1_PAUSE, None

    # The start, in the order of the real one's log.

    def start(self):
        log, settings = self.log, self.settings
        log("INFO", f"IMEX version {self.version} is running with the following configuration options")
        log("INFO", f"Logging level = {log.level}")
        try:
            entries = config.nodes(settings["IMEX_NODE_CONFIG_FILE"])
        except config.ConfigError as error:
            raise StartError(str(error)) from None
        self.key = config.map_key(entries)
        self.peers = [Peer(number, entry) for number, entry in enumerate(entries)]
        self.own = next((peer for peer in self.peers if config.is_local(peer.address)), None)
        self.source = self.own.address if self.own else ""
        self._check_security()
        self._open_command_service()
        if self.own is None:
            log(
                "ERROR",
                f"No matching network interface found for any IP addresses in {settings['IMEX_NODE_CONFIG_FILE']}",
            )
            return
        log("INFO", f"Identified this node as ID {self.own.number}, using bind address of '{self.own.entry}'")
        self.own.cell = "CONNECTED"
        self._read_persisted()
        self._open_driver()
        port = config.number(settings, "SERVER_PORT")
        try:
            self.servers.append(wire.listen(self.loop, self.source, port, self._accept_peer))
        except OSError as error:
            raise StartError(f"Failed to bind to {self.source}:{port}: {error.strerror}") from None

    def begin(self):
        """What follows once the parent has returned."""
        if os.path.exists(hooks.HOOKS):
            self._tick()
        if self.own is None:
            return
        self.log("INFO", f"Creating gRPC channels to all peers (nPeers = {len(self.peers)}).")
        for peer in self.peers:
            if peer is not self.own:
                self._dial(peer)
        self._advance()

    def _check_security(self):
        settings = self.settings
        if settings["IMEX_ENABLE_AUTH_ENCRYPTION"] != "1":
            return
        if settings["IMEX_AUTH_ENCRYPTION_MODE"] != "SSL_TLS":
            raise StartError("GSS authentication is not implemented by the stand-in")
        if settings["IMEX_AUTH_SOURCE"] != "FILE":
            raise StartError("IMEX_AUTH_SOURCE must be FILE for the stand-in when encryption is enabled")
        self._load_tls()

    def _load_tls(self):
        import ssl

        contexts = []
        for side, purpose in (("SERVER", ssl.PROTOCOL_TLS_SERVER), ("CLIENT", ssl.PROTOCOL_TLS_CLIENT)):
            key, cert, authority = (self.settings[f"IMEX_{side}_{part}"] for part in ("KEY", "CERT", "CERT_AUTH"))
            context = ssl.SSLContext(purpose)
            try:
                context.load_cert_chain(cert, key)
                context.load_verify_locations(authority)
            except OSError as error:
                raise StartError(f"Failed to load the {side.lower()}'s TLS files: {error}") from None
            context.verify_mode = ssl.CERT_REQUIRED
            contexts.append(context)
        self.tls = contexts

    def _open_driver(self):
        played = hooks.read()
        if "driver_version" in played:
            if played["driver_version"] is None:
                raise StartError("Failed to open the GPU driver")
            if played["driver_version"] != self.version:
                raise StartError(
                    f"NvGpu Library version {self.version} is not matching with current GPU driver version"
                    f" {played['driver_version']}"
                )
        self.log("INFO", "NvGpu Library version matched with GPU Driver version")
        try:
            if played["imex"] == "in_use":
                raise OSError
            self.session = os.open(hooks.SESSION, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self.session, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StartError("Failed to allocate Imex session with the driver: NV_ERR_IN_USE") from None

    def _open_command_service(self):
        settings = self.settings
        if settings["IMEX_CMD_ENABLED"] != "1":
            return
        port, accept = config.number(settings, "IMEX_CMD_PORT"), self._accept_client
        try:
            try:
                self.servers.append(wire.listen(self.loop, "::", port, accept))
            except OSError:
                self.servers.append(wire.listen(self.loop, "0.0.0.0", port, accept))
            path = settings["IMEX_CMD_UNIX_DOMAIN_PATH"]
            if path:
                if os.path.exists(path):
                    os.unlink(path)
                self.servers.append(wire.listen_unix(self.loop, path, lambda sock, _other: accept(sock, None)))
        except OSError as error:
            raise StartError(f"Failed to start the command service on port {port}: {error.strerror}") from None

    # States.

    def _advance(self):
        """INITIALIZING, then the wait for former importers, then INIT_GPU and READY."""
        if self.state in ("READY", "SHUTTING_DOWN") or self.own is None:
            return
        if self.waits_for:
            self.state = "WAITING_FOR_RECOVERY"
            return
        if self.hook("imex") == "init_gpu":
            self.state = "INIT_GPU"
            return
        self.log("INFO", "GPU event successfully subscribed")
        self.state = "READY"
        self._persist()

    def hook(self, name):
        return hooks.read()[name]

    def _tick(self):
        """Hooks change while the daemon runs, and only where there are any does it look for changes."""
        self._persist()
        self._advance()
        self.loop.later(2.0, self._tick)

    # The persist file: the list's key, and the nodes that have this one's memory imported.

    def _read_persisted(self):
        try:
            with open(PERSIST, encoding="utf-8") as file:
                left = json.load(file)
        except FileNotFoundError:
            self.log("INFO", f"nvidia-imex persistence file {PERSIST} does not exist.  Assuming no previous importers.")
            return
        except (OSError, ValueError):
            left = {}
        if self.settings["IMEX_WAIT_FOR_QUORUM"] == "NONE" or left.get("key") != self.key:
            self.log(
                "INFO", f"nvidia-imex persistence file {PERSIST} is not of this node configuration, discarding it."
            )
            os.unlink(PERSIST)
            return
        self.waits_for = {int(number) for number in left["nodes"]}
        self.log("WARNING", f"Waiting for recovery of {len(self.waits_for)} previous importers.")

    def _persist(self):
        if self.state != "READY":
            return
        importers = []
        if self.hook("imex_imports"):
            importers = [peer.number for peer in self.peers if peer is not self.own and peer.cell != "NEVER_CONNECTED"]
        if importers == self.persisted:
            return
        self.persisted = importers
        if importers:
            os.makedirs(os.path.dirname(PERSIST), exist_ok=True)
            with open(PERSIST + ".new", "w", encoding="utf-8") as file:
                json.dump({"key": self.key, "nodes": importers}, file)
            os.rename(PERSIST + ".new", PERSIST)
        elif os.path.exists(PERSIST):
            os.unlink(PERSIST)

    # Peers: every node calls every other, and its row has the results of its own calls.

    def _hello(self):
        return {"id": self.own.number, "version": self.version, "map": self.key, "instance": self.instance}

    def _dial(self, peer):
        peer.attempt += 1
        attempt = peer.attempt
        if not self.loop.running or peer.line or peer.cell == "NODE_MAP_MISMATCH":
            return
        sock = peer.address and wire.dial(peer.address, config.number(self.settings, "SERVER_PORT"), self.source)
        if not sock:
            self._retry(peer)
            return
        tls = None
        if self.tls:

            def tls(plain):
                return self.tls[1].wrap_socket(plain, do_handshake_on_connect=False, server_hostname=peer.entry)

        peer.line = line = wire.Line(
            self.loop,
            sock,
            on_message=lambda _line, message: self._answered(peer, message),
            on_close=lambda line: self._lost(peer, line),
            on_open=lambda opened: opened.send({"hello": self._hello()}),
            tls=tls,
            connecting=True,
        )
        # A firewall that drops sends nothing; neither does a member whose daemon hangs.
        self.loop.later(5.0, lambda: self._give_up(peer, line, attempt))

    def _give_up(self, peer, line, attempt):
        if peer.line is line and peer.attempt == attempt and peer.cell != "CONNECTED":
            line.close(notify=True)

    def _answered(self, peer, message):
        if "bye" in message:
            self._ended(peer)
            return
        welcome = message.get("welcome") or {}
        refused = message.get("refused") or self._refusal(welcome)
        if refused:
            self._refuse(peer, refused)
            return
        if peer.instance and peer.instance != welcome["instance"]:
            self.log(
                "WARNING", f"Node {peer.number} with address {peer.entry} is a new instance, cleaning up the old one"
            )
        peer.instance, peer.cell, peer.backoff = welcome["instance"], "CONNECTED", 0.0
        self.log("INFO", f"Connection established to node {peer.number} with address {peer.entry}")
        self.waits_for.discard(peer.number)
        self._persist()
        self._advance()

    def _refusal(self, hello):
        if hello.get("map") != self.key:
            return "map"
        return "version" if hello.get("version") != self.version else ""

    def _refuse(self, peer, why):
        if why == "map":
            self.log(
                "ERROR",
                f"Node configuration mapping mismatch with node {peer.number} with address {peer.entry},"
                " communication is disabled",
            )
            peer.cell = "NODE_MAP_MISMATCH"
        elif peer.cell != "NODE_MAP_MISMATCH":
            if peer.cell != "VERSION_MISMATCH":
                self.log("ERROR", f"Version mismatch with node {peer.number} with address {peer.entry}")
            peer.cell = "VERSION_MISMATCH"
        line, peer.line = peer.line, None
        if line:
            line.close()
        if why != "map":
            self._retry(peer)

    def _ended(self, peer):
        """The peer has sent that it stops: its exports are gone, there is nothing to wait for."""
        if peer.cell == "CONNECTED":
            peer.cell = "RECOVERING"
            self.log("INFO", f"Node {peer.number} with address {peer.entry} has shut down")

    def _lost(self, peer, line):
        if peer.line is not line:
            return
        peer.line = None
        if peer.cell == "CONNECTED":
            self.log("INFO", f"Connection lost to node {peer.number}: {peer.entry}:{self.settings['SERVER_PORT']}")
            peer.cell = "RECOVERING"
            self.log(
                "ERROR",
                f"Node disconnect event detected for node {peer.number} with address {peer.entry},"
                " attempting to reconnect",
            )
        self._retry(peer)

    def _retry(self, peer):
        first = float(self.hook("imex_backoff"))
        most = first * 8 if first else LONGEST_BACKOFF
        peer.backoff = min(peer.backoff * 2 or first or 1.0, most)
        attempt = peer.attempt
        self.loop.later(peer.backoff, lambda: peer.attempt == attempt and self._dial(peer))

    def _accept_peer(self, sock, other):
        if self.hook("imex_block") == "peer":
            self.inbound.add(sock)  # kept open, never read: to the other side the port is silent
            return
        tls = None
        if self.tls:

            def tls(plain):
                return self.tls[0].wrap_socket(plain, do_handshake_on_connect=False, server_side=True)

        try:
            line = wire.Line(
                self.loop,
                sock,
                on_message=lambda line, message: self._called(line, message, other),
                on_close=self.inbound.discard,
                tls=tls,
            )
        except OSError:
            return
        self.inbound.add(line)

    def _called(self, line, message, other):
        if "bye" in message:
            if line.peer:
                self._ended(line.peer)
            return
        hello = message.get("hello") or {}
        caller = next((peer for peer in self.peers if peer.address == other and peer is not self.own), None)
        refused = self._refusal(hello)
        if caller and caller.cell == "NODE_MAP_MISMATCH":
            refused = "map"
        if refused or caller is None:
            line.send({"refused": refused or "map"})
            if caller and caller.cell != "CONNECTED":
                self._refuse(caller, refused)
            return
        line.peer = caller
        line.send({"welcome": self._hello()})
        if caller.line and caller.instance and caller.instance != hello.get("instance"):
            caller.line.close(notify=True)  # the old instance is gone even if its end was not received
        if not caller.line and not float(self.hook("imex_backoff")):
            caller.backoff = 0.0
            self._dial(caller)

    # The command service.

    def _accept_client(self, sock, _other):
        self.clients.add(wire.Line(self.loop, sock, on_message=self._queried, on_close=self.clients.discard))

    def _queried(self, line, message):
        self._advance()
        row = {"status": self.state, "version": self.version}
        row["id"] = None if self.own is None else self.own.number
        row["connections"] = {} if self.own is None else {str(peer.number): peer.cell for peer in self.peers}
        line.send(row)

    # Signals.

    def signalled(self, number):
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            if self.hook("imex") != "deaf":
                self._shut_down()
        elif number == signal.SIGUSR1 and time.monotonic() - self.last_usr1 >= SIGUSR1_PAUSE:
            self.last_usr1 = time.monotonic()
            self._restart_connections()

    def _restart_connections(self):
        if self.own is None:
            return
        self.log("INFO", "SIGUSR1 received, reloading the TLS files and restarting outgoing connections")
        if self.tls:
            try:
                self._load_tls()
            except StartError as error:
                self.log("ERROR", str(error))
                return
        for peer in self.peers:
            if peer is not self.own and peer.cell != "NODE_MAP_MISMATCH":
                peer.address = config.resolve(peer.entry) or peer.address
                line, peer.line, peer.backoff = peer.line, None, 0.0
                if line:
                    line.close()
                self._dial(peer)

    def _shut_down(self):
        self.state = "SHUTTING_DOWN"
        self.log("INFO", "Shutting down")
        for line in [peer.line for peer in self.peers if peer.line] + list(self.inbound):
            if isinstance(line, wire.Line):
                line.send({"bye": 1})
                line.close()
        if os.path.exists(PERSIST):
            os.unlink(PERSIST)
        path = self.settings["IMEX_CMD_UNIX_DOMAIN_PATH"]
        if path and os.path.exists(path):
            os.unlink(path)
        self.loop.running = False


def main(arguments=None):
    try:
        options = dict(getopt.getopt(arguments or sys.argv[1:], "c:", ["version"])[0])
    except getopt.GetoptError as error:
        print(f"nvidia-imex: {error}", file=sys.stderr)
        return 1
    if "--version" in options:
        print(f"IMEX version is: {hooks.version()}")
        return 0
    try:
        settings = config.read(options.get("-c", config.CONFIG))
        for key in ("SERVER_PORT", "IMEX_CMD_PORT", "LOG_LEVEL"):
            config.number(settings, key)
        if settings["DAEMONIZE"] == "1":
            return _in_background(settings)
        return _serve(settings, lambda: None)
    except config.ConfigError as error:
        print(f"nvidia-imex: {error}", file=sys.stderr)
        return 1


def _in_background(settings):
    """The parent returns when the daemon has opened its ports, with 1 when it has not."""
    ready, started = os.pipe()
    if os.fork():
        os.close(started)
        return 0 if os.read(ready, 1) else 1
    os.close(ready)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(null, target)

    def ready():
        if hooks.read()["imex"] != "start_hangs":
            os.write(started, b"1")
            os.close(started)
            os.dup2(null, 2)

    return _serve(settings, ready)


def _serve(settings, ready):
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write("nvidia-imex")
    daemon = Daemon(settings)
    try:
        daemon.start()
    except StartError as error:
        daemon.log("ERROR", str(error))
        print(f"nvidia-imex: {error}", file=sys.stderr)
        return 1
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, lambda _number, _frame: None)
    daemon.loop.watch(woken, 1, lambda _events: [daemon.signalled(number) for number in woken.recv(64)])
    daemon.begin()
    ready()
    daemon.loop.run()
    return 0
