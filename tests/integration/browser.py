# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real browser for tests: Debian's Chromium, driven by chromedriver through the W3C's WebDriver protocol."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvlab import viewers

SHIFT, TAB, ENTER, ESCAPE = "\ue008", "\ue004", "\ue007", "\ue00c"
END = "\ue010"
LEFT, UP, RIGHT, DOWN = "\ue012", "\ue013", "\ue014", "\ue015"
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    # Chromium runs as root in its own container, whose /dev/shm is small, on machines without a GPU.
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"),
    *("--force-color-profile=srgb", "--hide-scrollbars", "--window-size=1400,1000"),
)
STARTED = re.compile(r"started successfully on port (\d+)")


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
        self._call("POST", f"{self._session}/url", {"url": f"file://{viewers.SHARED}/index.html"})
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
        """Press and release keys one after the other; SHIFT + key is both at once."""
        actions = []
        for key in keys:
            pressed = [SHIFT, key[1:]] if key.startswith(SHIFT) else [key]
            actions += [{"type": "keyDown", "value": one} for one in pressed]
            actions += [{"type": "keyUp", "value": one} for one in reversed(pressed)]
        body = {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}
        self._call("POST", f"{self._session}/actions", body)

    def emulate(self) -> None:
        """Emulate a light screen of 1400 pixels."""
        features = [{"name": "prefers-color-scheme", "value": "light"}]
        self.cdp("Emulation.setEmulatedMedia", media="screen", features=features)
        self.cdp("Emulation.setDeviceMetricsOverride", width=1400, height=1000, deviceScaleFactor=1, mobile=False)

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
        viewers.command(["chromedriver", "--port=0"], directory),
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
