"""Pictures of a site for the documents, by Debian's Chromium: docs/site/*.webp.

    ./vetted site --output public
    .venv/bin/python -m scripts.site_pictures public

Needs scripts/install-browser.
"""

from __future__ import annotations

import base64
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.engine import browsing
from tests.engine.browsing import Browser

TARGET = Path(__file__).resolve().parents[1] / "docs" / "site"
QUALITY = 60


@dataclass(frozen=True)
class Picture:
    """A part of a page. `at`: the element that it begins with."""

    page: str
    size: tuple[int, int]
    scheme: str = "light"
    at: str = "body"


PICTURES = {
    "matrix": Picture("index.html", (1300, 700)),
    "certificate": Picture("certificates/trl1.16-cpu/cpu-docker.html", (1100, 620), "dark", "#loss-parity"),
    "suite": Picture("suite.html", (900, 620), at="#main"),
    "phone": Picture("index.html", (390, 700), "dark", "#matrix"),
}


def take(browser: Browser, address: str, picture: Picture) -> bytes:
    browser.size(picture.size)
    browser.scheme(picture.scheme)
    browser.open(address + picture.page)
    browser.run("document.querySelector(arguments[0]).scrollIntoView()", picture.at)
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    return base64.b64decode(shot["data"])


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        sys.exit("usage: python -m scripts.site_pictures FOLDER")
    TARGET.mkdir(exist_ok=True)
    with browsing.serving(Path(argv[0])) as address, browsing.browser() as browser:
        for name, picture in PICTURES.items():
            data = take(browser, address, picture)
            (TARGET / f"{name}.webp").write_bytes(data)
            print(f"docs/site/{name}.webp: {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
