"""Pages look as in pictures/: what no other test sees, such as a layout that fell apart or a colour that is gone."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import parts
from tests.engine.browsing import Browser
from tests.engine.site import pictures
from tests.engine.site.pictures import FOLDER, VIEWS

# Share of the pixels. Equal pages gave 0, and those of the last test 0.011 and more.
MOST = 0.003


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pictures.served(tmp_path_factory.mktemp("pictures")) as address:
        yield address


@pytest.mark.parametrize("name", VIEWS)
def test_a_page_looks_as_before(name: str, browser: Browser, address: str, tmp_path: Path) -> None:
    font = browser.run("return document.fonts.check('12px \"DejaVu Sans\"')")
    parts.need("the font DejaVu", font, "apt-get install fonts-dejavu-core")
    taken = pictures.take(browser, address, VIEWS[name])
    (tmp_path / f"{name}.png").write_bytes(base64.b64decode(taken))
    before = base64.b64encode((FOLDER / f"{name}.png").read_bytes()).decode()
    share = pictures.difference(browser, before, taken)
    next_step = f"look at {tmp_path / name}.png; if it is meant: .venv/bin/python -m tests.engine.site.pictures"
    assert share <= MOST, f"{share:.2%} of the pixels differ from pictures/{name}.png; {next_step}"


@pytest.mark.parametrize(
    "style",
    [".bullet { display: none !important; }", "th { padding-block: 1px !important; }", "td { opacity: 0.5; }"],
)
def test_a_change_that_a_reader_sees_is_noticed(style: str, browser: Browser, address: str) -> None:
    view = VIEWS["numbers-dark"]
    taken = [pictures.take(browser, address, view, more) for more in ("", style)]
    share = pictures.difference(browser, *taken)
    assert share > MOST, share
