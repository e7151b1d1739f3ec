"""The folder of a site: what may be replaced, what stays when it is interrupted, what a command answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from markupsafe import Markup

from builder.base import errors, machine, output_folder
from builder.base.project import remove
from builder.certify.certificate import Measurement, ProbeResult
from builder.site import markup, numbers, site
from builder.site.numbers import Trail
from tests import site_reader
from tests.conftest import GOOD_RESULTS, TINY, Small
from tests.unit.conftest import Command
from tests.unit.site.conftest import Make

pytestmark = pytest.mark.usefixtures("no_history")


def test_an_earlier_site_is_replaced(small: Small, make: Make) -> None:
    output = make(small.project).output
    (output / "stacks" / "old.html").write_text("old")
    with (output / site.MARK).open("a") as listed:
        listed.write("stacks/old.html\n")
    assert make(small.project).output == output
    assert not (output / "stacks" / "old.html").exists()
    assert (output / "stacks" / f"{TINY}.html").is_file()
    assert [path.name for path in output.parent.iterdir() if "partial" in path.name] == []


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_no_site_stays(small: Small, command: Command, tmp_path: Path, kind: str) -> None:
    mine = tmp_path / "mine" / "thesis.tex"
    mine.parent.mkdir()
    mine.write_text("mine")
    answer = command(small.root, "site", "--output", str(mine.parent if kind == "folder" else mine))
    assert answer.code == 6
    assert "neither an empty folder nor an earlier site" in answer.err
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(("name", "listed"), [(".git/config", False), (".git/config", True), ("CNAME", True)])
def test_a_file_that_was_added_to_a_site_stays_and_is_named(small: Small, make: Make, name: str, listed: bool) -> None:
    output = make(small.project).output
    if not listed:  # as sites were before they had a list
        (output / site.MARK).write_text("made by `vetted site`, which replaces this folder\n")
    (output / name).parent.mkdir(exist_ok=True)
    (output / name).write_text("mine")
    with pytest.raises(errors.StorageError, match=f"has {name}, which is not of the earlier site"):
        make(small.project)
    assert (output / name).read_text() == "mine"


def test_a_link_to_a_site_is_not_replaced(small: Small, make: Make, tmp_path: Path) -> None:
    (tmp_path / "behind").mkdir()
    (tmp_path / "site").symlink_to("behind")
    with pytest.raises(errors.StorageError, match="is a link, so it stays as it is"):
        make(small.project)
    assert (tmp_path / "site").is_symlink()


def test_an_earlier_site_without_a_list_is_replaced(small: Small, make: Make) -> None:
    output = make(small.project).output
    (output / site.MARK).write_text("made by `vetted site`, which replaces this folder\n")
    assert "index.html" in (make(small.project).output / site.MARK).read_text().splitlines()


def test_an_empty_folder_is_filled(small: Small, make: Make, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    assert (make(small.project).output / "index.html").is_file()


@pytest.mark.parametrize("error", [KeyboardInterrupt, errors.VettedError("no")])
def test_what_was_there_stays_until_the_new_one_is_complete(
    small: Small, make: Make, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    output = make(small.project).output
    (output / "index.html").write_text("of the first")

    def fail(_: Path) -> None:
        raise error

    monkeypatch.setattr(site, "_index", fail)
    with pytest.raises((KeyboardInterrupt, errors.VettedError)):
        make(small.project)
    assert (output / "index.html").read_text() == "of the first"
    assert [path.name for path in output.parent.iterdir() if "partial" in path.name] == []


def test_the_command_says_what_it_made(small: Small, command: Command, tmp_path: Path) -> None:
    small.issue()
    answer = command(small.root, "site", "--output", str(tmp_path / "out"))
    assert (answer.code, answer.err) == (0, "")
    assert "certificates: 1 certified" in answer.out
    answer = command(small.root, "site", "--output", str(tmp_path / "out"), "--json")
    assert answer.json["states"]["certified"] == 1
    assert answer.json["output"] == str(tmp_path / "out")


def test_without_its_packages_it_says_how_to_get_them(
    small: Small, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "EXTRA", {"no_such_module": "a-package"})
    answer = command(small.root, "site", "--output", str(tmp_path / "out"))
    assert answer.code == 4
    assert "not installed: a-package" in answer.err and "pip install 'vetted[site]'" in answer.err
    assert not (tmp_path / "out").exists()


def test_broken_evidence_is_a_bad_input(small: Small, command: Command, tmp_path: Path) -> None:
    evidence = small.root / "docs" / "evidence" / "controls.json"
    evidence.parent.mkdir()
    evidence.write_text("{}")
    answer = command(small.root, "site", "--output", str(tmp_path / "out"))
    assert answer.code == 3
    assert "docs/evidence/controls.json" in answer.err


def test_the_same_input_gives_the_same_bytes(small: Small, make: Make) -> None:
    small.issue()
    first = {path: path.read_bytes() for path in make(small.project).output.rglob("*") if path.is_file()}
    assert {path: path.read_bytes() for path in make(small.project).output.rglob("*") if path.is_file()} == first


def test_what_a_page_loads_counts() -> None:
    html = '<link href="a.css"><script src="b.js"></script><img src="c.svg"><a href="d.html">d</a>'
    assert site.loaded(html) == {"a.css", "b.js", "c.svg"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.123456, "0.123"), (3.0, "3"), (True, "yes"), (False, "no"), (None, "–"), ("a\nb", "a b"), (1e-9, "1e-09")],
)
def test_numbers_as_people_read_them(value: object, shown: str) -> None:
    assert markup.shown(value) == shown


def test_prose_keeps_paragraphs_and_code_and_nothing_else() -> None:
    assert (
        markup.prose("One `x < 1`.\n\n<b>Two</b>") == "<p>One <code>x &lt; 1</code>.</p><p>&lt;b&gt;Two&lt;/b&gt;</p>"
    )


def test_the_page_names_the_teams_registry(small: Small, command: Command, tmp_path: Path) -> None:
    small.issue()
    where = "ghcr.io/team/images"
    assert command(small.root, "site", "--output", str(tmp_path / "public"), "--registry", where).code == 0
    page = (tmp_path / "public" / "verify.html").read_text()
    assert f"./vetted verify {where}:STACK --key cosign.pub" in page and "registry.example.org" not in page
    refused = command(small.root, "site", "--output", str(tmp_path / "other"), "--registry", "no path")
    assert (refused.code, "--registry" in refused.err) == (2, True)


def test_an_earlier_site_is_removed_when_the_new_one_is_there(
    small: Small, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To remove tens of thousands of files takes minutes, for which there would be no site."""
    output = make(small.project).output
    first = (output / "index.html").stat().st_ino
    seen = []

    def removed(folder: Path) -> None:
        page = folder / "index.html"
        if page.exists() and page.stat().st_ino == first:
            seen.append((output / "index.html").stat().st_ino != first)
        remove(folder)

    monkeypatch.setattr(output_folder, "remove", removed)
    make(small.project)
    assert seen == [True]
    assert [path.name for path in output.parent.iterdir() if path.name.startswith(".")] == []


def test_a_command_that_was_killed_between_two_renames_has_lost_nothing(
    small: Small, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = make(small.project).output
    output.rename(output.with_name(f".{output.name}.vetted-earlier"))

    def fail(_: Path) -> None:
        raise errors.VettedError("no")

    monkeypatch.setattr(site, "_index", fail)
    with pytest.raises(errors.VettedError):
        make(small.project)
    assert (output / "index.html").is_file()


def test_the_search_reads_what_a_certificate_is_about_and_not_its_numbers(
    small: Small, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty thousand certificates would take gigabytes of memory, and minutes."""
    small.issue(probes=[ProbeResult(name="alpha", outcome="passed", matters="it does"), *GOOD_RESULTS[1:]])
    read = {}

    def index(folder: Path) -> None:
        folder = folder / site.SEARCHED
        read.update({path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")})

    monkeypatch.setattr(site, "_index", index)
    result = make(small.project)
    page = f"certificates/{TINY}/cpu-host.html"
    whole = (result.output / page).read_text()
    hardware = Markup.escape(machine.hardware("cpu").hardware_class)
    assert all(word in read[page] for word in ("<h1>Certificate of", hardware, small.lock.digest, "</html>"))
    assert 'data-text="alpha"' in whole and 'data-text="alpha"' not in read[page]
    assert "sha256sum" in whole and "sha256sum" not in read[page]
    assert "index.html" in read and "certificates.html" not in read  # it lists what is found by itself
    assert not (result.output / site.SEARCHED).exists()


HOSTILE = "<script>alert('x')</script>\"&\u202e"


def test_nothing_in_a_number_becomes_a_part_of_the_page() -> None:
    number = Measurement(
        name=HOSTILE, value=HOSTILE, unit=HOSTILE, why=f"`{HOSTILE}`", bound={"equals": HOSTILE}, headline=True
    )
    probe = ProbeResult(name="alpha", outcome="passed", measurements=[number])
    trail = Trail("0,1 100,2", (1.0, HOSTILE), (2.0, HOSTILE))
    html = numbers.rows(probe, {("alpha", HOSTILE): trail})
    page = site_reader.read(str(html))
    assert "<script" not in html and "\u202e" not in page.text
    assert page.text.count("<script>alert") == 5  # name, value, unit, bound, reason
    assert [number.places for number in page.numbers[:2]] == [
        ("/measurements/0/value",), ("/measurements/0/bound/equals",)
    ]  # fmt: skip
    assert [number.value for number in page.numbers] == [HOSTILE, HOSTILE, 1.0, 2.0]


@pytest.mark.parametrize("value", [True, None, 3, -0.0, 1e22, 10**25, "it's"])
def test_a_number_is_written_as_json_writes_it(value: float | str | None) -> None:
    (number,) = site_reader.read(str(markup.data(value, "a.json#/b"))).numbers
    assert json.dumps(number.value) == json.dumps(value)
    assert number.text == markup.shown(value)
