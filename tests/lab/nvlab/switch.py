# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in of the NVLink switches of one NVLink domain: NVOS's REST interface NVUE over HTTPS, one port a switch.

Known, from the public copies of NVIDIA's test suite and from NICo's reader (no real switch was at hand):

- the paths below /nvue_v1/sdn/partition, /cluster/apps and /action/N, their keys and words, and rev=operational
- one GPU per call; an action is a number, which is asked until action_success or action_error
- a GPU that is in a partition must leave it first; texts of refusals; mcast-limit from 0 to 1024 in steps of 4
- an update is listed some seconds after its action has ended; the body null occurs with status 200
- one switch of a domain runs the controller: its addition-info is CONTROL_PLANE_STATE_CONFIGURED

Invented: /system, that uuid is the GPU's fabric GUID of NVML and that the location is slot, host and module of NVML
in chassis 1, what a switch without the controller answers, the status codes of refusals, the texts of a reason, what a
reboot does to an action, that GPUs report ``in_progress`` from their removal until the new partition is listed.

The state is in a folder and survives a restart: domain.json (switches, GPUs), state.json (partitions, actions) and
faults.json (switch -> key -> value of FAULTS), which is read with each request.
"""

from __future__ import annotations

import base64
import copy
import datetime
import json
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from . import gpus
from .errors import LabError
from .state import locked, write_atomically

USER, PASSWORD = "admin", "NvlinkLab-1"
DEFAULT = "32766"
RELEASE = "25.02.9999-standin"
SECONDS, LAG = 2.0, 2.0
"""How long an action runs, and how long after it the list of partitions changes."""
MODES = ("full_bandwidth", "adaptive_bandwidth", "user_action_required")
FAULTS = {
    "answer": "null, configuration (rev=operational is ignored), other (of another release) or none",
    "certificate": "expired or soon (in ten days)",
    "controller": "the state of the control plane, such as STANDBY, ERROR or DEGRADED",
    "reason": "of the controller, such as DB_CORRUPTED; its status is then not ok",
    "health": "of the default partition, such as DEGRADED",
    "mode": "resiliency mode of the default partition",
    "mcast_limit": "of the default partition",
    "name": "of the default partition",
    "renumber": "the ID by which the default partition is listed",
    "out": "location of a GPU that leaves its partition",
    "swap": "two locations whose UUIDs are exchanged in the list",
    "login": "any word: the password is not accepted",
    "refuse": "number of the next addition of a GPU that is refused, counted from 1",
    "lag": "seconds after an action until it is listed",
    "delay": "seconds after which a POST is answered; its action runs meanwhile",
    "reboot": "seconds for which the switch does not answer; its running actions are lost",
}
"""The keys of `lab set SWITCH KEY=VALUE`; an empty value removes one."""
_OF_DEFAULT = {"health": "health", "mode": "resiliency-mode", "mcast_limit": "mcast-limit", "name": "name"}
Drive = Callable[[str, list[tuple[str, str]]], None]  # sets what a tray's GPUs report: tray, settings of `lab set`
Answer = tuple[int, Any]


def create(folder: Path, switches: list[str], listed: list[dict[str, Any]]) -> None:
    """The folder of a domain whose partitions are the cliques of its GPUs, of gpus_of()."""
    folder.mkdir(parents=True)
    _certificates(folder)
    rows: dict[str, Any] = {}
    for gpu in listed:
        key = str(gpu["partition"])
        name = "Default Partition" if key == DEFAULT else f"partition {key}"
        rows.setdefault(key, _partition(name, MODES[0], 1024, []))["locations"].append(gpu["location"])
    write_atomically(folder / "domain.json", json.dumps({"switches": switches, "gpus": listed}, indent=1))
    write_atomically(folder / "state.json", json.dumps({"partitions": rows, "actions": {}, "next": 1}))
    write_atomically(folder / "faults.json", "{}")


def gpus_of(tray: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The GPUs of a tray's facts as its switch lists them."""
    place = f"1.{facts['slot_number']}.{facts['host_id']}"
    return [
        {
            "location": f"{place}.{gpu['module_id']}",
            "uuid": gpu["fabric_guid"],
            "partition": gpu["fabric"]["clique_id"],
            "tray": tray,
            "index": gpu["index"],
        }
        for gpu in facts["gpus"]
    ]


def set_faults(folder: Path, switch: str, settings: list[tuple[str, str]]) -> None:
    """Apply KEY=VALUE settings of FAULTS."""
    known = json.loads((folder / "domain.json").read_text())["switches"]
    if switch not in known:
        raise LabError(f"there is no switch {switch!r}: this domain has {', '.join(known)}.")
    with locked(folder):
        faults = json.loads((folder / "faults.json").read_text())
        own = faults.setdefault(switch, {})
        for key, value in settings:
            if key not in FAULTS:
                raise LabError(f"{key}={value}: use one of {', '.join(FAULTS)} for a switch.")
            own[key] = f"{time.time() + float(value)}" if key == "reboot" and value else value
            own.update({"refused": "0"} if key == "refuse" else {})
            if not value:
                del own[key]
        write_atomically(folder / "faults.json", json.dumps(faults))


class Domain:
    """The partitions of one domain, and its answers; all its switches share it. Call tick() now and then."""

    def __init__(self, folder: Path, drive: Drive, seconds: float = SECONDS, lag: float = LAG) -> None:
        fixed = json.loads((folder / "domain.json").read_text())
        self.folder, self.switches = folder, list(map(str, fixed["switches"]))
        self._drive, self._seconds, self._lag = drive, seconds, lag
        self._gpus = {row["location"]: row for row in fixed["gpus"]}
        self._state = json.loads((folder / "state.json").read_text())
        self._state.setdefault("listed", copy.deepcopy(self._state["partitions"]))
        self._lock = threading.RLock()

    def faults(self, switch: str) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.folder / "faults.json").read_text()).get(switch, {})
        return found

    def is_up(self, switch: str) -> bool:
        """Whether the switch answers; a reboot loses its running actions."""
        faults = self.faults(switch)
        if float(faults.get("reboot", 0)) <= time.time():
            return faults.get("answer") != "none"
        with self._lock:
            self._state["actions"] = {
                number: row for number, row in self._state["actions"].items() if row["state"] != "running"
            }
            self._save()
        return False

    def tick(self) -> None:
        """End the actions whose time has come, and list what they changed."""
        with self._lock:
            now, changed = time.time(), False
            # In the order in which they began, since each depends on those before it.
            for row in [row for row in self._state["actions"].values() if row["state"] == "running"]:
                if row["ends"] <= now:
                    problem = row.pop("problem", "") or self._apply(row)
                    row["state"] = "action_error" if problem else "action_success"
                    row["issue"], row["status"] = ([{"message": problem}] if problem else []), problem or "done"
                    self._state["list_at"], changed = now + row["lag"], True
            if self._state.get("list_at", now + 1) <= now:
                del self._state["list_at"]
                before, self._state["listed"] = self._state["listed"], copy.deepcopy(self._state["partitions"])
                self._join(before)
                changed = True
            for switch in self.switches:
                if (location := self.faults(switch).get("out")) and self._partition_of(location):
                    self._leave(self._partition_of(location), location)
                    self._state["list_at"], changed = now, True
            if changed:
                self._save()

    def answer(self, switch: str, method: str, target: str, authorization: str, body: bytes) -> Answer:
        """(status, document) of one request."""
        faults, parts = self.faults(switch), urllib.parse.urlsplit(target)
        wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if authorization != wanted or "login" in faults:
            return 401, {"title": "Unauthorized", "detail": "authentication failed", "status": 401}
        if not parts.path.startswith("/nvue_v1/"):
            return 404, {"title": "Not Found", "detail": parts.path, "status": 404}
        path = parts.path.removeprefix("/nvue_v1/").split("/")
        self.tick()
        with self._lock:
            if method == "POST":
                return self._post(faults, switch, path, body)
            is_live = urllib.parse.parse_qs(parts.query).get("rev") == ["operational"]
            return self._get(faults, switch, path, is_live and faults.get("answer") != "configuration")

    def _get(self, faults: Mapping[str, str], switch: str, path: list[str], is_live: bool) -> Answer:
        if path[0] == "action" and len(path) == 2:
            row = self._state["actions"].get(path[1])
            shown = {key: row[key] for key in ("state", "status", "issue")} if row else {}
            return (200, shown) if row else (404, {"title": "Not Found", "detail": "no such action", "status": 404})
        if path == ["system"]:
            return 200, {"product-name": "nvos", "product-release": RELEASE, "hostname": switch}
        if faults.get("answer") == "null":
            return 200, None
        if faults.get("answer") == "other":
            return 200, [{"id": key} for key in self._state["listed"]]
        if path == ["cluster", "apps"]:
            return 200, self._apps(faults, switch) if is_live else {}
        if path[:2] == ["sdn", "partition"] and len(path) <= 3:
            rows = self._listed(faults) if is_live and switch == self.switches[0] else {}
            if len(path) == 2:
                short = {
                    key: {name: value for name, value in row.items() if name not in ("locations", "uuids")}
                    for key, row in rows.items()
                }
                return 200, short
            if path[2] in rows:
                return 200, rows[path[2]]
        return 404, {"title": "Not Found", "detail": "/".join(path), "status": 404}

    def _apps(self, faults: Mapping[str, str], switch: str) -> dict[str, Any]:
        if switch != self.switches[0] and "controller" not in faults:
            return {}
        state, reason = faults.get("controller", "CONFIGURED"), faults.get("reason", "")
        own = {"status": "not ok" if reason else "ok", "reason": reason}
        return {
            "nmx-controller": {**own, "addition-info": f"CONTROL_PLANE_STATE_{state}"},
            "nmx-telemetry": {"status": "ok", "reason": "", "addition-info": ""},
        }

    def _listed(self, faults: Mapping[str, str]) -> dict[str, Any]:
        """The partitions as the switch lists them, with its faults."""
        uuid = {location: row["uuid"] for location, row in self._gpus.items()}
        if swap := faults.get("swap", "").split(","):
            uuid.update({one: uuid[other] for one, other in zip(swap, swap[::-1], strict=True) if other in uuid})
        found = {}
        for key, row in self._state["listed"].items():
            given = _OF_DEFAULT if key == DEFAULT else {}
            locations = {location: {"uuid": uuid[location]} for location in row["locations"]}
            shown = {**row, "num-gpus": len(locations), "locations": locations}
            shown["uuids"] = {own["uuid"]: {} for own in locations.values()}
            shown.update({name: faults[fault] for fault, name in given.items() if fault in faults})
            shown["mcast-limit"] = int(shown["mcast-limit"])
            found[faults.get("renumber", key) if key == DEFAULT else key] = shown
        return found

    def _post(self, faults: dict[str, str], switch: str, path: list[str], body: bytes) -> Answer:
        try:
            [(verb, given)] = json.loads(body).items()
            parameters, (_sdn, kind, key, *gpu) = dict(given["parameters"]), path
        except (ValueError, KeyError, TypeError, AttributeError):
            return 400, {"title": "Bad Request", "detail": "no action", "status": 400}
        is_gpu = verb in ("@update", "@restore")
        if kind != "partition" or verb not in ("@create", "@delete", "@update", "@restore") or len(gpu) != 2 * is_gpu:
            return 400, {"title": "Bad Request", "detail": f"no action {verb} here", "status": 400}
        limit = parameters.get("mcast-limit", 0)
        if not (isinstance(limit, int) and 0 <= limit <= 1024 and limit % 4 == 0):
            return 400, {"title": "Bad Request", "detail": "Valid range for mcast-limit is 0 - 1024", "status": 400}
        row = {"verb": verb, "partition": key, "gpu": gpu, "parameters": parameters, "state": "running", "issue": []}
        lag = float(faults.get("lag", self._lag))
        row.update(status="running", ends=time.time() + self._seconds, lag=lag)
        if switch != self.switches[0]:
            row["problem"] = "cluster is not enabled"
        elif verb == "@update" and "refuse" in faults and self._counted(switch) == int(faults["refuse"]):
            row["problem"] = f"failed to update partition {key} {' '.join(gpu)}"
        number = self._state["next"]
        self._state["next"] += 1
        self._state["actions"][str(number)] = row
        self._save()
        return 200, number

    def _counted(self, switch: str) -> int:
        """The number of this addition since `refuse` was set."""
        with locked(self.folder):
            faults = json.loads((self.folder / "faults.json").read_text())
            own = faults[switch]
            own["refused"] = str(int(own["refused"]) + 1)
            write_atomically(self.folder / "faults.json", json.dumps(faults))
            return int(own["refused"])

    def _apply(self, row: dict[str, Any]) -> str:
        """Do what an action asks for; the text of its refusal, empty if it is done."""
        rows, key, verb, given = self._state["partitions"], row["partition"], row["verb"], row["parameters"]
        if verb == "@create":
            wanted = [self._location("location" if "location" in given else "uuid", name) for name in _names(given)]
            names = [other["name"] for other in rows.values()]
            if key in rows or given.get("name") in names or None in wanted or any(map(self._partition_of, wanted)):
                return f"failed to create partition {key}"
            mode = given.get("resiliency-mode", MODES[0])
            rows[key] = _partition(given.get("name", ""), mode, given.get("mcast-limit", 0), wanted)
            return ""
        if key not in rows:
            return f"failed to {verb[1:]} partition {key}"
        if verb == "@delete":
            for location in list(rows[key]["locations"]):
                self._leave(key, location)
            del rows[key]
            return ""
        location = self._location(*row["gpu"])
        problem = f"failed to {verb[1:]} partition {key} {' '.join(row['gpu'])}"
        if verb == "@update":
            if location is None or self._partition_of(location):
                return problem
            rows[key]["locations"].append(location)
        elif location not in rows[key]["locations"]:
            return problem
        else:
            self._leave(key, location)
        return ""

    def _location(self, kind: str, name: str) -> str | None:
        if kind == "location":
            return name if name in self._gpus else None
        return next((location for location, row in self._gpus.items() if row["uuid"] == name), None)

    def _partition_of(self, location: Any) -> str:
        return next((key for key, row in self._state["partitions"].items() if location in row["locations"]), "")

    def _leave(self, key: str, location: str) -> None:
        self._state["partitions"][key]["locations"].remove(location)
        self._report(location, [("state", "in_progress"), ("partition_assigned", "false")])

    def _join(self, before: Mapping[str, Any]) -> None:
        """Let the GPUs report their new partition, once it is listed."""
        for key, row in self._state["listed"].items():
            for location in {*row["locations"]} - {*before.get(key, {"locations": ()})["locations"]}:
                self._report(location, [("clique", key), ("state", "completed"), ("partition_assigned", "true")])

    def _report(self, location: str, settings: list[tuple[str, str]]) -> None:
        row = self._gpus[location]
        self._drive(row["tray"], [(f"gpu{row['index']}.{key}", value) for key, value in settings])

    def _save(self) -> None:
        write_atomically(self.folder / "state.json", json.dumps(self._state))


def _partition(name: str, mode: str, limit: int, locations: list[Any]) -> dict[str, Any]:
    kind = {"health": "healthy", "partition-type": "location_based"}
    return {"name": name, **kind, "resiliency-mode": mode, "mcast-limit": limit, "locations": locations}


def _names(parameters: Mapping[str, Any]) -> list[str]:
    given = parameters.get("location", parameters.get("uuid", []))
    return given.split(",") if isinstance(given, str) else list(given)


# ------------------------------------------------------------------------------------------------------------ server


def _certificates(folder: Path) -> None:
    """A CA, and for each state of a certificate one for 127.0.0.1 and the name nvlink-switch."""
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName("nvlink-switch")])
    authority, issuer = ec.generate_private_key(ec.SECP256R1()), _name("nvlink-lab-switch-ca")
    for name, days in (("ca", 3650), ("valid", 365), ("soon", 10), ("expired", -1)):
        is_ca = name == "ca"
        key, subject = (authority, issuer) if is_ca else (ec.generate_private_key(ec.SECP256R1()), _name(name))
        made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(now - datetime.timedelta(90)).not_valid_after(now + datetime.timedelta(days))
        made = made.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        made = made if is_ca else made.add_extension(names, critical=False)
        signed = made.sign(authority, hashes.SHA256())
        (folder / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        plain, form = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
        (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


class Server(ThreadingHTTPServer):
    """One switch on 127.0.0.1."""

    daemon_threads = True

    def __init__(self, domain: Domain, switch: str, port: int = 0) -> None:
        self.domain, self.switch = domain, switch
        super().__init__(("127.0.0.1", port), Handler)

    def get_request(self) -> Any:
        sock, where = super().get_request()
        if not self.domain.is_up(self.switch):
            sock.close()
            raise ConnectionAbortedError
        name = self.domain.faults(self.switch).get("certificate", "valid")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.domain.folder / f"{name}.crt", self.domain.folder / f"{name}.key")
        # The handshake is left to the thread of the connection.
        sock.settimeout(10)
        return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), where

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that rejects the certificate ends its connection."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _answer(self) -> None:
        domain, switch = self.server.domain, self.server.switch
        if not domain.is_up(switch):
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        authorization = self.headers.get("Authorization", "")
        status, document = domain.answer(switch, self.command, self.path, authorization, body)
        if self.command == "POST":
            time.sleep(float(domain.faults(switch).get("delay", 0)))
        text = json.dumps(document).encode()
        self.send_response(status)
        for name, value in (("Content-Length", str(len(text))), ("Connection", "close")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(domain: Domain, ports: Mapping[str, int] | None = None) -> list[Server]:
    """Start the switches of a domain, with a thread that lets the time pass; shutdown() ends a server."""
    servers = [Server(domain, name, (ports or {}).get(name, 0)) for name in domain.switches]
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def pass_time() -> None:
        while servers[0].fileno() >= 0:
            with suppress(OSError):
                domain.tick()
            time.sleep(0.05)

    threading.Thread(target=pass_time, daemon=True).start()
    return servers


def main(folder: str, hosts: str) -> None:
    """The process of a domain in a lab: its folder, and that of the lab's hosts. It keeps its ports."""

    def drive(tray: str, settings: list[tuple[str, str]]) -> None:
        gpus.change(Path(hosts) / tray, settings)

    domain, ports = Domain(Path(folder), drive), Path(folder) / "ports.json"
    known = json.loads(ports.read_text()) if ports.exists() else {}
    servers = serve(domain, known)
    write_atomically(ports, json.dumps({server.switch: server.server_port for server in servers}))
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
