# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects written straight into etcd, many at once, in the JSON that the API server reads there."""

from __future__ import annotations

import base64
import copy
import http.client
import itertools
import json
import uuid
from collections.abc import Iterable
from typing import Any

from .. import network
from ..errors import LabError

# etcd takes 128 operations and 1.5 MB in one transaction.
BATCH = 100
NODES, SLICES = "/registry/minions/", "/registry/resourceslices/"
PORT = 2379


def like(stored: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """An object in the stored form of the API server, modelled on a stored one."""
    made = copy.copy(wanted)
    known = stored["metadata"]
    own = {"uid": str(uuid.uuid4()), "creationTimestamp": known["creationTimestamp"]}
    made["metadata"] = {**wanted["metadata"], **own, "managedFields": known["managedFields"]}
    return made


def put(name: str, objects: Iterable[dict[str, Any]], folder: str = NODES) -> int:
    """Store objects, all of one kind without a namespace, in the etcd of a lab; their number."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    connection.sock = network.connect(str(network.file_of(name)), "127.0.0.1", PORT, 10.0)
    connection.sock.settimeout(60.0)
    stored, rest = 0, iter(objects)
    while batch := list(itertools.islice(rest, BATCH)):
        rows = [{"requestPut": {"key": _text(folder + row["metadata"]["name"]), "value": _json(row)}} for row in batch]
        connection.request("POST", "/v3/kv/txn", json.dumps({"success": rows}))
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise LabError(f"etcd refuses objects with {answer.status}: {content[:200]!r}")
        stored += len(batch)
    connection.close()
    return stored


def _json(row: dict[str, Any]) -> str:
    return _text(json.dumps(row, separators=(",", ":")))


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
