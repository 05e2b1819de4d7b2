# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real browser for tests: Debian's Chromium, driven by chromedriver through the W3C's WebDriver protocol."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvlab import paths, tools
from nvlab.trees import SHARED, VIEWERS

ENTER = "\ue007"
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    # Chromium runs as root in its own container, whose /dev/shm is small, on machines without a GPU.
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"),
    *("--force-color-profile=srgb", "--hide-scrollbars", "--window-size=1400,1000"),
)
AXE, AXE_SHA256 = "axe-core@4.14.1", "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
STARTED = re.compile(r"started successfully on port (\d+)")


def axe() -> str:
    """The script of axe-core, which npm fetches once into the cache and AXE_SHA256 checks."""
    kept = paths.cache() / f"{AXE.replace('@', '-')}.js"
    if not kept.is_file():
        tools.ensure_tools({"npm": "npm"})
        with tempfile.TemporaryDirectory(dir=paths.cache()) as scratch:
            command = ["npm", "pack", AXE, f"--pack-destination={scratch}"]
            tools.call(command, f"fetching {AXE}")
            (package,) = Path(scratch).glob("*.tgz")
            assert hashlib.sha256(package.read_bytes()).hexdigest() == AXE_SHA256
            with tarfile.open(package) as files:
                script = files.extractfile("package/axe.min.js")
                assert script is not None
                (Path(scratch) / kept.name).write_bytes(script.read())
            os.rename(Path(scratch) / kept.name, kept)
    return kept.read_text()


class Browser:
    """One window; pages are files of a folder that is mounted for the browser."""

    def __init__(self, port: int, folder: Path) -> None:
        self._root = f"http://127.0.0.1:{port}"
        self._folder = folder
        options = {"args": FLAGS, "binary": "/usr/bin/chromium"}
        logs = {"browser": "ALL"}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs}
        session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._session = f"/session/{session['sessionId']}"

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data, {"Content-Type": "application/json"}, method=method)
        # The machine's proxy does not apply to a local address.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"chromedriver {path}: {error.read().decode()[:500]}") from None

    def open(self, page: str, *, drawn: bool = True) -> None:
        """Show a page, loaded to its end and drawn."""
        (self._folder / "index.html").write_text(page)
        self._call("POST", f"{self._session}/url", {"url": f"file://{SHARED}/index.html"})
        # A page is drawn after it is loaded; only then a picture shows it.
        if drawn:
            wait = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
            self._call("POST", f"{self._session}/execute/async", {"script": wait, "args": []})

    def script(self, text: str, *arguments: Any) -> Any:
        """Run a script as the body of a function and return its result."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": text, "args": list(arguments)})

    def cdp(self, command: str, **parameters: Any) -> Any:
        """Run a command of the Chrome DevTools Protocol."""
        return self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def press(self, *keys: str) -> None:
        """Press and release keys one after the other."""
        actions = [{"type": word, "value": key} for key in keys for word in ("keyDown", "keyUp")]
        body = {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}
        self._call("POST", f"{self._session}/actions", body)

    def emulate(self, width: int = 1400, scheme: str = "light") -> None:
        """Emulate a screen of so many pixels across, light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.cdp("Emulation.setEmulatedMedia", media="screen", features=features)
        mobile = width < 500
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=mobile)

    def violations(self) -> list[list[str]]:
        """The violations of WCAG 2 A and AA that axe-core finds on the page: rule, and where it first applies."""
        self.script(axe())
        run = f"axe.run({{runOnly: {json.dumps(RULES)}, resultTypes: ['violations']}})"
        rows = "found.violations.map((one) => [one.id, one.nodes[0].html])"
        script = f"const done = arguments[0]; {run}.then((found) => done({rows}), (error) => done([[String(error)]]))"
        return list(self._call("POST", f"{self._session}/execute/async", {"script": script, "args": []}))

    def console_errors(self) -> list[str]:
        """New messages of the browser's console since the last call: script errors and content policy violations."""
        return [row["message"] for row in self._call("POST", f"{self._session}/se/log", {"type": "browser"})]

    def quit(self) -> None:
        """Close the window."""
        self._call("DELETE", self._session)


@contextlib.contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """A browser that ends with the block."""
    driver = subprocess.Popen(
        VIEWERS.command(["chromedriver", "--port=0"], directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert driver.stdout is not None
        lines = []
        for line in driver.stdout:
            lines.append(line)
            if found := STARTED.search(line):
                break
        else:
            raise AssertionError(f"chromedriver did not start: {''.join(lines)}")
        window = Browser(int(found[1]), directory)
        try:
            yield window
        finally:
            window.quit()
    finally:
        driver.terminate()
        driver.wait(30)
