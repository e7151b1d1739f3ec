"""Debian's Chromium, driven by its own chromedriver: pages as a person has them, and what they load."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests import parts

INSTALL = "sudo scripts/install-browser"
AXE = "axe-core@4.14.1"
PATIENCE = 20  # seconds for what a page does after an event
DESKTOP, PHONE, SMALLEST = (1280, 900), (390, 844), (320, 640)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A web server of a folder; yields its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Browser:
    """A browser without a window, and with no host but this one."""

    driver: webdriver.Chrome

    def size(self, size: tuple[int, int]) -> None:
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, scheme: str) -> None:
        """What the system prefers: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def scripts(self, allowed: bool) -> None:
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not allowed})

    @contextmanager
    def day(self, day: str) -> Iterator[None]:
        """Pages that are opened meanwhile take this for today."""
        source = f"const Real = Date; Date = class extends Real {{ constructor() {{ super('{day}T12:00:00Z'); }} }};"
        added = self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

    def open(self, address: str) -> None:
        self.driver.get(address)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def first(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def shown(self, selector: str) -> list[WebElement]:
        return [element for element in self.all(selector) if element.is_displayed()]

    def wait(self, condition: str) -> None:
        """Until an expression of JavaScript is true."""
        WebDriverWait(self.driver, PATIENCE).until(
            lambda driver: driver.execute_script(f"return {condition}"), condition
        )

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def fill(self, selector: str, value: str) -> None:
        """Give a field a value, as a person would who typed it at once."""
        self.run(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            self.first(selector), value,
        )  # fmt: skip

    def _log(self, kind: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.driver.get_log(kind)  # type: ignore[no-untyped-call]
        return entries

    def problems(self) -> list[str]:
        """What the console has shown since the last call: errors, refused loads, warnings."""
        return [entry["message"] for entry in self._log("browser")]

    def requests(self) -> tuple[set[str], int]:
        """The addresses that were loaded since the last call, and their bytes on the wire."""
        addresses, size = set(), 0
        for entry in self._log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                addresses.add(message["params"]["request"]["url"])
            elif message["method"] == "Network.loadingFinished":
                size += int(message["params"]["encodedDataLength"])
        return {address for address in addresses if not address.startswith(("data:", "blob:"))}, size


@contextmanager
def browser() -> Iterator[Browser]:
    """Skips the test where the browser is missing."""
    parts.programs("chromium", "chromedriver", how=INSTALL)
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def axe(folder: Path) -> str:
    """The program text of axe-core, from npm. Skips the test where npm is missing."""
    parts.programs("npm", how=INSTALL)
    argv = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), AXE]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    parts.need("axe-core from npm", done.returncode == 0, f"npm answered: {done.stderr.strip()[-300:]}")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
