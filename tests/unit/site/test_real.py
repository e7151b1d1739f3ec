"""The site of this very project: every number has its place, every link leads somewhere, no page is heavy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from markupsafe import Markup

from builder.base.project import Project
from builder.site import charts, history, markup, site
from tests import site_reader
from tests.conftest import ROOT
from tests.site_reader import Read

MOST = 300_000  # bytes that a page may load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "draw", lambda *_: Markup(""))
        patch.setattr(site, "_index", lambda _: None)
        patch.setattr(history, "versions", lambda *_: [])
        content = site.read(Project(ROOT), root, lambda _: None)
        result = site.make(content, root / "site", lambda _: None)
    assert result.largest_bytes < MOST, result.largest
    yield root / "site"


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[Path, Read]:
    return {path: site_reader.read(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}


def test_every_number_is_the_one_at_its_place(folder: Path, pages: dict[Path, Read]) -> None:
    numbers = [number for page in pages.values() for number in page.numbers]
    assert len(numbers) > 400
    assert [problem for number in numbers if (problem := site_reader.wrong(folder, number))] == []


def test_a_number_that_is_not_the_one_at_its_place_is_noticed(folder: Path, pages: dict[Path, Read]) -> None:
    page = next(page for path, page in pages.items() if path.parts[-2] == "trl1.16-cpu" and page.numbers)
    number = page.numbers[-1]
    assert site_reader.wrong(folder, site_reader.Number(number.value + 1, number.places, number.text))


def test_what_a_reader_sees_is_the_value(pages: dict[Path, Read]) -> None:
    for page in pages.values():
        for number in page.numbers:
            assert number.text == markup.shown(number.value) or number.text.endswith((" MB", " kB"))


def test_no_cell_has_a_number_without_a_place(pages: dict[Path, Read]) -> None:
    assert {path.name: page.stray for path, page in pages.items() if page.stray} == {}


def test_every_measurement_of_every_certificate_is_shown(folder: Path, pages: dict[Path, Read]) -> None:
    for path, page in pages.items():
        if "certificates" not in path.parts:
            continue
        file = path.with_suffix(".json").relative_to(folder)
        probes = site_reader.value_at(folder, f"{file}#/predicate/probes")
        measured = {
            f"{file}#/predicate/probes/{i}/measurements/{j}/value"
            for i, probe in enumerate(probes)
            for j in range(len(probe["measurements"]))
        }
        assert measured
        assert measured <= {place for number in page.numbers for place in number.places}


def test_every_link_leads_somewhere(folder: Path, pages: dict[Path, Read]) -> None:
    for path, page in pages.items():
        for link in page.links:
            if link.startswith("https://"):
                continue
            address, _, anchor = link.partition("#")
            file = address.partition("?")[0]
            target = (path.parent / unquote(file)).resolve() if file else path
            assert target.is_relative_to(folder), link
            assert target.is_file(), f"{path.relative_to(folder)}: {link}"
            assert not anchor or anchor in pages[target].ids


def test_nothing_is_loaded_from_elsewhere(folder: Path, pages: dict[Path, Read]) -> None:
    for path, page in pages.items():
        for address in page.loads:
            assert (path.parent / address).resolve().is_relative_to(folder), address
            assert (path.parent / address).is_file(), address
    for path in folder.glob("static/*.css"):
        assert "url(" not in path.read_text() and "@import" not in path.read_text()


def test_every_stack_and_advisory_has_its_page(folder: Path) -> None:
    project = Project(ROOT)
    stacks = {path.parent.name for path in project.stacks.glob("*/stack.toml")}
    assert {path.stem for path in (folder / "stacks").iterdir()} == stacks
    advisories = {path.stem for path in project.advisories.glob("*.toml")}
    assert {path.stem for path in (folder / "advisories").iterdir()} == {*advisories, "index"}
