"""Pictures of a small site that is always the same, to compare with those in pictures/.

    .venv/bin/python -m tests.engine.site.pictures        # take them anew, after a change of the page that is meant

Needs scripts/install-browser.
"""

from __future__ import annotations

import base64
import datetime
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builder.base import machine
from builder.base.project import Project
from builder.certify import certificate
from builder.certify.certificate import Measurement, ProbeResult
from builder.site import site
from tests.conftest import GOOD_RUN, TINY, make_small, runner
from tests.engine import browsing
from tests.engine.browsing import PHONE, Browser
from tests.unit.site.conftest import forge

FOLDER = Path(__file__).parent / "pictures"
DAY = datetime.date(2026, 11, 20)
HARDWARE = machine.Hardware("A processor", 2)
CERTIFICATE = f"certificates/{TINY}/cpu-host.html"
# Any machine has other fonts. Digests and the commit follow from files that have nothing to do with the page.
ALIKE = """
* { font-family: "DejaVu Sans" !important; transition: none !important; }
code, pre, .digest { font-family: "DejaVu Sans Mono" !important; }
code.digest, footer, pre { visibility: hidden; }
"""
# By channel, of 255: letters are smoothed a little differently from one release of Chromium to the next.
TOLERATED = 48
COMPARE = """
const [one, other, tolerated, done] = arguments;
const pixels = source => new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => {
        const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        resolve(context.getImageData(0, 0, image.width, image.height));
    };
    image.onerror = reject;
    image.src = "data:image/png;base64," + source;
});
Promise.all([pixels(one), pixels(other)]).then(([a, b]) => {
    if (a.width !== b.width || a.height !== b.height) return done(1);
    let differ = 0;
    for (let i = 0; i < a.data.length; i += 4)
        differ += [0, 1, 2].some(channel => Math.abs(a.data[i + channel] - b.data[i + channel]) > tolerated);
    done(4 * differ / a.data.length);
});
"""


@dataclass(frozen=True)
class View:
    """The beginning of a page. `at`: the element that it is scrolled to."""

    page: str
    size: tuple[int, int]
    scheme: str
    at: str = "body"


VIEWS = {
    "matrix-light": View("index.html", (1000, 700), "light"),
    "matrix-phone-dark": View("index.html", PHONE, "dark", "#matrix"),
    "stack-dark": View(f"stacks/{TINY}.html", (1000, 700), "dark"),
    "certificate-light": View(CERTIFICATE, (1000, 700), "light"),
    "forged-light": View(f"certificates/{TINY}/cpu-forged.html", (1000, 400), "light"),
    "numbers-dark": View(CERTIFICATE, (1000, 700), "dark", "#alpha"),
    "numbers-phone-light": View(CERTIFICATE, PHONE, "light", "#alpha"),
}


# A number for each kind of bound.
NUMBERS: tuple[tuple[dict[str, Any], float], ...] = (
    ({"name": "far", "unit": "", "bound": {"at_most": 1e-3}, "why": "rounding of float32", "headline": True}, 2e-5),
    ({"name": "near", "unit": "steps", "bound": {"at_most": 1.0}, "why": "three of four", "headline": False}, 0.75),
    ({"name": "enough", "unit": "", "bound": {"at_least": 80}, "why": "few prove nothing", "headline": False}, 90),
    ({"name": "same", "unit": "", "bound": {"equals": 0}, "why": "bit for bit", "headline": False}, 0),
    ({"name": "recorded", "unit": "MiB", "bound": None, "why": "it has no bound", "headline": False}, 12.5),
)


def make(folder: Path) -> Project:
    """A project with one stack and two certificates: one that holds, and one whose number was changed."""
    small = make_small(folder)
    (small.project.smoke / "__main__.py").write_text(runner(*(bound for bound, _ in NUMBERS)) + GOOD_RUN)
    numbers = [Measurement.model_validate({**bound, "value": value}) for bound, value in NUMBERS]
    alpha = ProbeResult(name="alpha", outcome="passed", matters="it does", measurements=numbers, seconds=1.5)
    path = small.issue(probes=[alpha, alpha.model_copy(update={"name": "beta"})], day=DAY)
    forged = Path(shutil.copy(path, path.with_name("cpu-forged.json")))
    forge(forged, lambda document: document["predicate"]["probes"][0]["measurements"][1].update(value=1.25))
    return small.project


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Its site as of one day; yields its address."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(certificate, "today", lambda: DAY)
        monkeypatch.setattr(machine, "hardware", lambda _: HARDWARE)
        project = make(folder / "project")
        (folder / "scratch").mkdir()
        content = site.read(project, folder / "scratch", lambda _: None)
        site.make(content, folder / "site", lambda _: None)
    with browsing.serving(folder / "site") as address:
        yield address


def take(browser: Browser, address: str, view: View, style: str = "") -> str:
    """A picture as PNG in base64; `style`: more CSS for the page."""
    browser.size(view.size)
    browser.scheme(view.scheme)
    with browser.day(DAY.isoformat()):
        browser.open(address + view.page)
    browser.run(
        "const sheet = new CSSStyleSheet(); sheet.replaceSync(arguments[0]); document.adoptedStyleSheets = [sheet];"
        "document.querySelector(arguments[1]).scrollIntoView()",
        ALIKE + style, view.at,
    )  # fmt: skip
    picture: str = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    return picture


def difference(browser: Browser, one: str, other: str) -> float:
    """The share of the pixels that differ; 1 for pictures of different sizes."""
    browser.open("about:blank")
    share: float = browser.driver.execute_async_script(COMPARE, one, other, TOLERATED)
    return share


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as address, browsing.browser() as browser:
        for name, view in VIEWS.items():
            data = base64.b64decode(take(browser, address, view))
            (FOLDER / f"{name}.png").write_bytes(data)
            print(f"{name}.png: {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
