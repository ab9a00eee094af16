"""A headless Chromium by its WebDriver, spoken to with what Python has."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any


class Browser:
    """`with Browser(chromium, chromedriver) as browser:` one window."""

    def __init__(self, chromium: str, driver: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._chromium, self._driver, self._session = chromium, driver, ""

    def __enter__(self) -> Browser:
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen([self._driver, f"--port={self._port}"], stdout=quiet, stderr=quiet)
        for _ in range(200):
            try:
                self._call("GET", "/status")
                break
            except OSError:
                time.sleep(0.1)
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1200,900",
        ]
        options = {"binary": self._chromium, "args": arguments}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._session:
                self._call("DELETE", self._session)
        finally:
            self._process.terminate()
            self._process.wait(20)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data=data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path) -> None:
        self._call("POST", f"{self._session}/url", {"url": page.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns; a promise is waited for."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the DevTools."""
        return self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def press(self, key: str, code: int) -> None:
        """A key, as a person would."""
        for kind in ("rawKeyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def complaints(self) -> list[str]:
        """Everything that went wrong on the console so far."""
        lines = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] in ("SEVERE", "WARNING")]

    def picture(self, path: Path) -> None:
        """What the window shows."""
        path.write_bytes(base64.b64decode(self._call("GET", f"{self._session}/screenshot")))
