# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The REST interface NVUE of an NVLink switch with NVOS: its NMX controller, its NVLink partitions, and actions.

Paths and forms are those of NVIDIA's public test suite and of NICo's reader; no real switch has been read. So an answer
of any other form is refused, with the release of the switch. Without ``rev=operational`` NVUE answers with its
configuration, and the body ``null`` is no answer: neither says that there is no partition.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

OPTIONS = ("url", *http.OPTIONS, "server_name")
PREFIX = "/nvue_v1"
MAX_BYTES = 4 * 1024 * 1024
MAX_PARTITIONS = 1024
MAX_GPUS = 4096
POLL = 2.0
"""Seconds between two questions whether an action has ended, after the first ones, which come sooner."""

CREATE, UPDATE, RESTORE, DELETE = "@create", "@update", "@restore", "@delete"
"""Actions on a partition: make it, add one GPU, remove one GPU, delete it."""
DONE, REFUSED, UNKNOWN = "done", "refused", "unknown"

_PARTITIONS, _APPS, _SYSTEM = "/sdn/partition", "/cluster/apps", "/system"
_STATE = re.compile(r"CONTROL_PLANE_STATE_([A-Z_]{1,32})")
_LOCATION = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){3}")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}")
# Refusals with a reason in the body; 401 and 403 are errors of the login, and after 5xx the action may have begun.
_WITH_REASON = frozenset((202, 400, 404, 405, 409, 422))


class Gpu(NamedTuple):
    """A GPU as a switch lists it. location: chassis.slot.host.module, or empty; uid: as of uid(), or empty."""

    location: str
    uid: str


class Partition(NamedTuple):
    """An NVLink partition. health, mode: the switch's words in lower case. multicast_limit: None where unknown."""

    id: int
    name: str
    health: str
    mode: str
    multicast_limit: int | None
    gpus: tuple[Gpu, ...]


class Controller(NamedTuple):
    """The NMX controller of a switch. state: its word after CONTROL_PLANE_STATE_, empty where the switch runs none."""

    state: str = ""
    status: str = ""
    reason: str = ""

    @property
    def is_primary(self) -> bool:
        """Whether this switch runs the controller of its domain."""
        return self.state in ("CONFIGURED", "DEGRADED")

    @property
    def is_ok(self) -> bool:
        """Whether it runs there and reports no fault."""
        return self.state == "CONFIGURED" and self.status.lower() == "ok"

    @property
    def words(self) -> str:
        """Its state, status and reason."""
        rest = (self.status and f"status {self.status}", self.reason)
        return ", ".join(filter(None, (self.state or "no controller", *rest)))


NO_CONTROLLER = Controller()


@dataclass(frozen=True)
class Report:
    """One reading of one switch. problem: why it could not be read, in one sentence; empty where it was.

    days_left: until its certificate expires, None where it was not seen.
    """

    switch: str
    problem: str = ""
    days_left: float | None = None
    controller: Controller = NO_CONTROLLER
    partitions: tuple[Partition, ...] = ()


class Outcome(NamedTuple):
    """How an action ended. UNKNOWN: it may be done or not; read the partitions before anything is repeated."""

    state: str
    reason: str = ""


class Switch:
    """A client of one switch; every error is an HttpError that starts with the name of the switch."""

    def __init__(self, name: str, config: http.ClientConfig) -> None:
        self.name, self._config = name, config
        self._client = http.Client(name, config)
        self.days_left: float | None = None

    def read(self) -> Report:
        """What the switch reports, or why it cannot be read."""
        try:
            controller = self.controller()
            partitions = self.partitions() if controller.is_primary else ()
            return Report(self.name, "", self.days_left, controller, partitions)
        except http.HttpError as error:
            return Report(self.name, str(error), self.days_left)

    def controller(self) -> Controller:
        """The NMX controller; one without a state where no application of the switch has one.

        With it begins a reading, which has a deadline of its own.
        """
        self._client = http.Client(self.name, self._config)
        for row in map(mapped, self._mapping(_APPS).values()):
            if state := _STATE.search(str(row.get("addition-info"))[:200]):
                return Controller(state[1], sentence(row.get("status"), 64), sentence(row.get("reason"), 200))
        return NO_CONTROLLER

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions with their GPUs."""
        rows = self._mapping(_PARTITIONS)
        if len(rows) > MAX_PARTITIONS:
            self._refuse(_PARTITIONS, f"more than {MAX_PARTITIONS} partitions")
        found, gpus = [], 0
        for key in rows:
            found.append(self._partition(key))
            gpus += len(found[-1].gpus)
            if gpus > MAX_GPUS:
                self._refuse(_PARTITIONS, f"more than {MAX_GPUS} GPUs")
        return tuple(found)

    def act(self, path: str, verb: str, parameters: Mapping[str, Any], seconds: float) -> Outcome:
        """Start an action on a path below PREFIX, and wait so many seconds until it has ended.

        It is sent once. HttpError where the switch has not accepted it for a reason of the request or the login.
        """
        client = http.Client(self.name, replace(self._config, deadline=seconds))
        url = f"{client.url}{PREFIX}{path}"
        try:
            body = {verb: {"state": "start", "parameters": dict(parameters)}}
            answer = client.act("POST", url, body, _WITH_REASON, {"Accept": http.JSON})
            document = client.json(answer)
        except http.HttpError as error:
            # After another answer than an error of the request the action may have begun.
            if error.status is not None and 300 <= error.status < 500:
                raise
            return Outcome(UNKNOWN, str(error))
        number, row = whole(document), mapped(document)
        if number is not None:
            return self._ended(client, number, seconds)
        reason = sentence(row.get("detail") or row.get("title"), 300)
        return Outcome(REFUSED if reason and answer.status >= 400 else UNKNOWN, reason or "it returned no number")

    def _ended(self, client: http.Client, number: int, seconds: float) -> Outcome:
        pause = POLL / 32
        while client.left() > pause:
            time.sleep(pause)
            pause = min(2 * pause, POLL)
            try:
                row = mapped(client.json(client.get(f"{client.url}{PREFIX}/action/{number}")))
            except http.HttpError as error:
                if error.status in (401, 403, 404):
                    return Outcome(UNKNOWN, str(error))
                continue
            if row.get("state") == "action_success":
                return Outcome(DONE)
            if row.get("state") == "action_error":
                texts = [mapped(issue).get("message") for issue in as_list(row.get("issue"))]
                return Outcome(REFUSED, sentence(next(filter(None, texts), row.get("status")), 300))
        return Outcome(UNKNOWN, f"{self.name}: action {number} has not ended in {seconds:g} seconds")

    def _mapping(self, path: str) -> Object:
        """The mapping that the switch has at a path, as it is now and not as it is configured."""
        answer = self._client.get(f"{self._client.url}{PREFIX}{path}?rev=operational")
        if expires := answer.certificate.get("notAfter"):
            self.days_left = (ssl.cert_time_to_seconds(expires) - time.time()) / 86400
        document = self._client.json(answer)
        if document is None:
            self._client.fail(answer.url, "answers null", "run it again, and check the switch", 200)
        if not isinstance(document, Mapping):
            self._refuse(path, "no mapping")
        return document

    def _partition(self, key: str) -> Partition:
        path = f"{_PARTITIONS}/{key}"
        if not (key.isascii() and key.isdecimal() and len(key) < 6 and int(key) <= 32767):
            self._refuse(_PARTITIONS, "a partition without a number as its ID")
        row = self._mapping(path)
        health, mode = (row.get(name) for name in ("health", "resiliency-mode"))
        locations, uids = row.get("locations") or {}, row.get("uuids") or {}
        known = isinstance(locations, Mapping) and all(map(_LOCATION.fullmatch, locations))
        if not (isinstance(health, str) and isinstance(mode, str) and known and isinstance(uids, (Mapping, list))):
            self._refuse(path, "no health, resiliency-mode or GPUs")
        found = [Gpu(location, uid(mapped(value).get("uuid"))) for location, value in locations.items()]
        listed = {gpu.uid for gpu in found}
        found += [Gpu("", own) for own in map(uid, uids) if own and own not in listed]
        if not found and whole(row.get("num-gpus")):
            self._refuse(path, "GPUs that it counts and does not list")
        name, limit = sentence(row.get("name"), 64), whole(row.get("mcast-limit"))
        return Partition(int(key), name, sentence(health, 64).lower(), sentence(mode, 64).lower(), limit, tuple(found))

    def _refuse(self, path: str, what: str) -> NoReturn:
        """HttpError about an answer of another form, with the release of the switch if it has one."""
        release = ""
        with contextlib.suppress(http.HttpError):
            answer = self._client.get(f"{self._client.url}{PREFIX}{_SYSTEM}?rev=operational")
            release = sentence(mapped(self._client.json(answer)).get("product-release"), 64)
        of = f"NVOS {release}" if release else "an unknown release"
        found = f"answers in a form that this collection does not know ({what}; {of})".replace(";", ",")
        self._client.fail(f"{self._client.url}{PREFIX}{path}", found, "report its release, and check the address", 200)


def switch(name: str, options: Mapping[str, Any]) -> Switch:
    """The client of a switch with options of OPTIONS; SourceError for wrong ones."""
    given = {"max_bytes": MAX_BYTES, "timeout": 10, "deadline": 60, **options}
    return Switch(name, http.client_config(Options(given, OPTIONS, name), "url", "the address of the switch"))


def uid(value: Any) -> str:
    """One form of the number by which a switch and NVML name a GPU, or of its UUID; empty for anything else."""
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if _NUMBER.fullmatch(text):
        return f"0x{int(text, 0 if text[:2].lower() == '0x' else 10):016x}"
    return text.lower() if re.fullmatch(r"(?i)GPU-[0-9a-f-]{36}", text) else ""
