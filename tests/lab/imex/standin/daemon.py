# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon: nvidia-imex [-c CONFIG] [--version]."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import getopt
import hashlib
import json
import os
import signal
import socket
import ssl
import sys
import time

from . import config, hooks

PERSIST = "/var/run/nvidia-imex/persist.dat"
SIGUSR1_PAUSE = 5.0
LONGEST_BACKOFF = 8.0
# A firewall that drops sends nothing; neither does a member whose daemon hangs.
ANSWER_SECONDS = 5.0


class StartError(Exception):
    """Why the daemon does not start; it is in the log."""


class Peer:
    """What this node knows of another: the cell of its row, and the connection that it made to it."""

    def __init__(self, number, entry):
        self.number, self.address = number, entry
        self.cell, self.instance, self.backoff = "NEVER_CONNECTED", "", 0.0
        self.task, self.writer, self.again = None, None, asyncio.Event()


def send(writer, message):
    writer.write(json.dumps(message).encode() + b"\n")


def keep_alive(writer):
    """A peer that lost power sends nothing: the kernel probes it every few seconds."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


class Daemon:
    def __init__(self, settings):
        self.settings, self.version, self.instance = settings, hooks.version(), os.urandom(8).hex()
        self.state, self.own, self.peers, self.map, self.waits_for = "INITIALIZING", None, [], "", set()
        self.tls, self.session, self.last_usr1 = None, None, -SIGUSR1_PAUSE
        self.log_file, self.tasks, self.ended = sys.stderr, [], asyncio.Event()
        if settings["LOG_FILE_NAME"]:
            with contextlib.suppress(OSError):
                self.log_file = open(settings["LOG_FILE_NAME"], "a", encoding="utf-8")  # noqa: SIM115  (open for ever)

    def log(self, level, text):
        """In the real one's format."""
        with contextlib.suppress(OSError, ValueError):
            self.log_file.write(f"[{time.strftime('%b %d %Y %H:%M:%S')}] [{level}] [tid {os.getpid()}] {text}\n")
            self.log_file.flush()

    async def run(self, ready):
        """Call ``ready`` when the ports are open, then serve until a signal."""
        await self._start()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGUSR1, self._reconnect)
        if self.own:
            self.tasks.append(asyncio.create_task(self._follow_hooks()))
            self._connect()
        ready()
        await self.ended.wait()
        self.log("INFO", "Shutting down")
        for path in (PERSIST, self.settings["IMEX_CMD_UNIX_DOMAIN_PATH"]):
            if path and os.path.exists(path):
                os.unlink(path)

    # The start, in the order of the real one's log.

    async def _start(self):
        settings = self.settings
        self.log("INFO", f"IMEX version {self.version} is running with the following configuration options")
        try:
            entries = config.nodes(settings["IMEX_NODE_CONFIG_FILE"])
        except config.ConfigError as error:
            raise StartError(str(error)) from None
        # Peers compare it: the same lines in the same order give the same key.
        self.map = hashlib.sha256("\n".join(entries).encode()).hexdigest()
        self.peers = [Peer(number, entry) for number, entry in enumerate(entries)]
        self.own = next((peer for peer in self.peers if config.is_local(peer.address)), None)
        if settings["IMEX_ENABLE_AUTH_ENCRYPTION"] == "1":
            if (settings["IMEX_AUTH_ENCRYPTION_MODE"], settings["IMEX_AUTH_SOURCE"]) != ("SSL_TLS", "FILE"):
                raise StartError("The stand-in implements encryption by SSL_TLS with files alone")
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._load_tls()
        if settings["IMEX_CMD_ENABLED"] == "1":
            await self._listen(asyncio.start_server(self._queried, ("0.0.0.0", "::"), int(settings["IMEX_CMD_PORT"])))
            if settings["IMEX_CMD_UNIX_DOMAIN_PATH"]:
                await self._listen(asyncio.start_unix_server(self._queried, settings["IMEX_CMD_UNIX_DOMAIN_PATH"]))
        if self.own is None:
            name = settings["IMEX_NODE_CONFIG_FILE"]
            self.log("ERROR", f"No matching network interface found for any IP addresses in {name}")
            return
        self.log("INFO", f"Identified this node as ID {self.own.number}, using bind address of '{self.own.address}'")
        self.own.cell = "CONNECTED"
        self._read_persisted()
        self._open_driver()
        port, tls = int(settings["SERVER_PORT"]), self.tls[0] if self.tls else None
        await self._listen(asyncio.start_server(self._called, self.own.address, port, ssl=tls))

    async def _listen(self, server):
        try:
            self.tasks.append(await server)
        except OSError as error:
            raise StartError(f"Failed to bind: {error}") from None

    def _load_tls(self):
        for side, context in zip(("SERVER", "CLIENT"), self.tls):
            key, cert, authority = (self.settings[f"IMEX_{side}_{part}"] for part in ("KEY", "CERT", "CERT_AUTH"))
            try:
                context.load_cert_chain(cert, key)
                context.load_verify_locations(authority)
            except OSError as error:
                raise StartError(f"Failed to load the {side.lower()}'s TLS files: {error}") from None
            context.verify_mode = ssl.CERT_REQUIRED

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
        try:
            if played["imex"] == "in_use":
                raise OSError
            self.session = os.open(hooks.SESSION, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self.session, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StartError("Failed to allocate Imex session with the driver: NV_ERR_IN_USE") from None

    # States.

    def _advance(self):
        """INITIALIZING, then the wait for former importers, then INIT_GPU and READY."""
        if self.state == "READY" or self.own is None:
            return
        if self.waits_for:
            self.state = "WAITING_FOR_RECOVERY"
        elif hooks.read()["imex"] == "init_gpu":
            self.state = "INIT_GPU"
        else:
            self.state = "READY"
            self._persist()

    async def _follow_hooks(self):
        """Hooks change while the daemon runs."""
        while True:
            self._persist()
            self._advance()
            await asyncio.sleep(2.0)

    # The persist file: the list's key, and the nodes that have this one's memory imported.

    def _read_persisted(self):
        try:
            with open(PERSIST, encoding="utf-8") as file:
                left = json.load(file)
        except FileNotFoundError:
            return
        except (OSError, ValueError):
            left = {}
        if self.settings["IMEX_WAIT_FOR_QUORUM"] == "NONE" or left.get("map") != self.map:
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
        importers = [peer.number for peer in self.peers if peer is not self.own and peer.cell != "NEVER_CONNECTED"]
        if importers and hooks.read()["imex_imports"]:
            os.makedirs(os.path.dirname(PERSIST), exist_ok=True)
            with open(PERSIST + ".new", "w", encoding="utf-8") as file:
                json.dump({"map": self.map, "nodes": importers}, file)
            os.rename(PERSIST + ".new", PERSIST)
        elif os.path.exists(PERSIST):
            os.unlink(PERSIST)

    # Peers: every node calls every other, and its row has the results of its own calls.

    def _connect(self):
        """Call all peers, also those that it is connected to already."""
        for peer in self.peers:
            if peer is not self.own and peer.cell != "NODE_MAP_MISMATCH":
                if peer.task:
                    peer.task.cancel()
                peer.backoff, peer.task = 0.0, asyncio.create_task(self._call(peer))

    async def _call(self, peer):
        """Call a peer again and again, until the two have different lists."""
        while peer.cell != "NODE_MAP_MISMATCH":
            with contextlib.suppress(OSError, ValueError):
                await self._talk(peer)
            if peer.cell == "CONNECTED":
                peer.cell = "RECOVERING"
                self.log("ERROR", f"Node disconnect event detected for node {peer.number} with address {peer.address}")
            first = float(hooks.read()["imex_backoff"])
            peer.backoff = min(peer.backoff * 2 or first or 1.0, first * 8 or LONGEST_BACKOFF)
            peer.again.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(peer.again.wait(), peer.backoff)

    async def _talk(self, peer):
        """One connection to a peer, until it ends."""
        tls = {"ssl": self.tls[1], "server_hostname": peer.address} if self.tls else {}
        port = int(self.settings["SERVER_PORT"])
        opened = asyncio.open_connection(peer.address, port, local_addr=(self.own.address, 0), **tls)
        reader, peer.writer = await asyncio.wait_for(opened, ANSWER_SECONDS)
        with contextlib.closing(peer.writer):
            keep_alive(peer.writer)
            send(peer.writer, self._hello())
            answer = json.loads(await asyncio.wait_for(reader.readline(), ANSWER_SECONDS))
            refused = answer.get("refused") or self._refusal(answer)
            if refused:
                self._refuse(peer, refused)
                return
            peer.instance, peer.cell, peer.backoff = answer["instance"], "CONNECTED", 0.0
            self.log("INFO", f"Connection established to node {peer.number} with address {peer.address}")
            self.waits_for.discard(peer.number)
            self._persist()
            self._advance()
            await reader.read()

    def _hello(self):
        return {"version": self.version, "map": self.map, "instance": self.instance}

    def _refusal(self, hello):
        if hello.get("map") != self.map:
            return "map"
        return "version" if hello.get("version") != self.version else ""

    def _refuse(self, peer, why):
        if why == "map":
            self.log(
                "ERROR",
                f"Node configuration mapping mismatch with node {peer.number} with address {peer.address},"
                " communication is disabled",
            )
            peer.cell = "NODE_MAP_MISMATCH"
        elif peer.cell not in ("NODE_MAP_MISMATCH", "VERSION_MISMATCH"):
            self.log("ERROR", f"Version mismatch with node {peer.number} with address {peer.address}")
            peer.cell = "VERSION_MISMATCH"

    async def _called(self, reader, writer):
        with contextlib.closing(writer), contextlib.suppress(OSError, ValueError):
            if hooks.read()["imex_block"] == "peer":
                await reader.read()  # to the other side the port is silent
                return
            keep_alive(writer)
            hello = json.loads(await reader.readline())
            other = writer.get_extra_info("peername")[0]
            caller = next((peer for peer in self.peers if peer.address == other and peer is not self.own), None)
            known = caller is not None and caller.cell != "NODE_MAP_MISMATCH"
            refused = self._refusal(hello) if known else "map"
            if refused:
                if known and caller.cell != "CONNECTED":
                    self._refuse(caller, refused)
                send(writer, {"refused": refused})
                return
            send(writer, self._hello())
            if caller.cell == "CONNECTED" and caller.instance != hello["instance"]:
                caller.writer.close()  # the old instance is gone even if its end was not received
            if not float(hooks.read()["imex_backoff"]):
                caller.again.set()
            await reader.read()

    # The command service.

    async def _queried(self, reader, writer):
        with contextlib.closing(writer), contextlib.suppress(OSError, ValueError):
            await reader.readline()
            self._advance()
            row = {"status": self.state, "version": self.version, "id": self.own and self.own.number}
            row["connections"] = {str(peer.number): peer.cell for peer in self.peers} if self.own else {}
            send(writer, row)

    # Signals.

    def _stop(self):
        if hooks.read()["imex"] != "deaf":
            self.ended.set()

    def _reconnect(self):
        if self.own is None or time.monotonic() - self.last_usr1 < SIGUSR1_PAUSE:
            return
        self.last_usr1 = time.monotonic()
        self.log("INFO", "SIGUSR1 received, reloading the TLS files and restarting outgoing connections")
        try:
            if self.tls:
                self._load_tls()
        except StartError as error:
            self.log("ERROR", str(error))
            return
        self._connect()


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
    except config.ConfigError as error:
        print(f"nvidia-imex: {error}", file=sys.stderr)
        return 1
    return _in_background(settings) if settings["DAEMONIZE"] == "1" else _serve(settings, lambda: None)


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
        asyncio.run(daemon.run(ready))
    except StartError as error:
        daemon.log("ERROR", str(error))
        print(f"nvidia-imex: {error}", file=sys.stderr)
        return 1
    return 0
