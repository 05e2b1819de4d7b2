# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The login at a Kubernetes API server: of a kubeconfig or a pod by the official client, or an address and its options.

The client reads a login in a child process, login_child.py, under a deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.deadline import descendants
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import sentence

OPTIONS = ("kubeconfig", "context", "api_url", *http.OPTIONS)
IN_CLUSTER = "in-cluster"
"""In the option kubeconfig: the service account of the pod."""
MAX_KUBECONFIG_BYTES = 4 * 1024 * 1024
MIN_SECONDS = 10
"""For a login, also with a shorter timeout: a program is started, and it imports the client."""

_LIMITS = ("timeout", "deadline", "max_bytes")
_CHILD = os.path.join(os.path.dirname(__file__), "login_child.py")


Login = tuple[str, http.ClientConfig]
"""Address of the API server, and the client config."""


def is_several(path: str) -> bool:
    """Whether a path is a list of files, as KUBECONFIG may be for kubectl; one file is read here."""
    return os.pathsep in path and not os.path.exists(os.path.expanduser(path))


def of_kubeconfig(options: Mapping[str, Any], source: str) -> Login:
    """The login by the options kubeconfig, context (may be empty) and timeout of a module."""
    given = {key: options[key] for key in ("kubeconfig", "context", "timeout") if options[key]}
    return client_config(Options(given, OPTIONS, source))


def client_config(options: Options, seconds: float | None = None) -> Login:
    """The login by the options of OPTIONS, in so many seconds; SourceError for wrong ones and a login that fails."""

    def renew(left: float) -> http.ClientConfig:
        return client_config(options, left)[1]

    if ("kubeconfig" in options) == ("api_url" in options):
        raise options.wrong("kubeconfig", "or api_url must be set, exactly one of them")
    if "api_url" in options:
        if "context" in options:
            raise options.wrong("context", "belongs to kubeconfig; leave it out with api_url")
        server = http.endpoint(options, "api_url", "as in https://api.example.org:6443")
        return server, replace(http.client_config(options), renew=renew)
    for key in http.OPTIONS:
        if key in options and key not in _LIMITS:
            raise options.wrong(key, "belongs to api_url; a kubeconfig file holds its own")
    limits = http.limits(options)
    request: dict[str, Any] = {"text": None, "context": None, "folder": "/"}
    path = options.text("kubeconfig") or ""
    if path != IN_CLUSTER:
        if is_several(path):
            raise options.wrong("kubeconfig", f"{path} names several files, as KUBECONFIG may; name one of them")
        content = options.content("kubeconfig", MAX_KUBECONFIG_BYTES) or b""
        path = options.path("kubeconfig") or ""
        request = {"text": content.decode("utf-8", "replace"), "folder": os.path.dirname(path)}
        request["context"] = options.text("context")
    elif "context" in options:
        raise options.wrong("context", f"belongs to a kubeconfig file; leave it out with {IN_CLUSTER}")
    login = _run_child(request, seconds or min(max(limits["timeout"], MIN_SECONDS), limits["deadline"]))
    if "error" in login:
        what, _semicolon, remedy = str(login["error"]).partition("; ")
        remedy = sentence(remedy) or "run kubectl with it as the same user, and correct what kubectl reports"
        raise options.wrong("kubeconfig", f"{path} {sentence(what, 400)}; {remedy}")
    found = Options({"server": login["server"]}, ("server",), f"{options.name}: kubeconfig {path}")
    return http.endpoint(found, "server", "an address there"), http.ClientConfig(
        **http.credentials(options, login["authorization"], None, None, "Authorization", ""),
        ca_data=login["authority"] or None,
        client_pem=login["client"] or None,
        validate_certs=login["verify"],
        server_name=login["server_name"] or None,
        proxy=login["proxy"] or None,
        renew=renew,
        **limits,
    )


def _run_child(request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The last answer of login_child.py. Neither a process nor a file of it is left, however it ends."""
    scratch = tempfile.mkdtemp(prefix="nvlink-login-")
    try:
        # A session of its own: no plugin can ask a question on this process's terminal.
        child = subprocess.Popen(
            [sys.executable, "-P", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": scratch},
            start_new_session=True,
        )
        asked = json.dumps({**request, "scratch": scratch, "parent": os.getpid()}).encode()
        try:
            output, late = child.communicate(asked, timeout=seconds)[0], False
        except subprocess.TimeoutExpired:
            _kill(child)
            output, late = child.communicate()[0], True
        except BaseException:
            _kill(child)
            child.wait()
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    answers: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    last = answers[-1] if answers else {}
    if "error" in last or "server" in last:
        return last
    what = f"logs in by {last['uses']}, which" if "uses" in last else "is read by a program that"
    if late:
        return {"error": f"{what} did not end in {seconds:g} seconds and was killed; try it by hand, or raise timeout"}
    return {"error": f"{what} ended without a login"}


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a child that has not been waited for, its process group and all other processes below it."""
    below = descendants(child.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in below:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
