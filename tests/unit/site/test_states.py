"""A certificate is shown as what it is worth: forged, expired, withdrawn and unreadable ones too."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.certify.certificate import Measurement, ProbeResult
from builder.site import pages, site
from builder.site.site import Result
from tests import site_reader
from tests.conftest import GOOD_RUN, TINY, Small
from tests.unit.site.conftest import Make, forge

pytestmark = pytest.mark.usefixtures("no_history")


def page(result: Result, path: str) -> str:
    return (result.output / path).read_text(encoding="utf-8")


def text(result: Result, path: str) -> str:
    return " ".join(site_reader.read(page(result, path)).text.split())


def listed(result: Result) -> dict[str, Any]:
    (entry,) = json.loads((result.output / "certificates.json").read_text())
    assert isinstance(entry, dict)
    return entry


def test_a_certificate_that_holds(small: Small, make: Make) -> None:
    path = small.issue()
    result = make(small.project)
    assert result.states == {"certified": 1, "expired": 0, "does not hold": 0, "not a certificate": 0, "earlier": 0}
    entry = listed(result)
    assert (entry["state"], entry["doubts"]) == ("certified", [])
    assert (result.output / entry["file"]).read_bytes() == path.read_bytes()
    assert "Every probe that applies has passed" in text(result, entry["page"])
    assert f"certified until {entry['expires']}" in page(result, f"badges/{TINY}.svg")
    assert "Certificates in doubt" not in text(result, "index.html")


def test_one_that_has_expired(small: Small, make: Make) -> None:
    small.issue(day=datetime.date(2026, 1, 1))
    result = make(small.project)
    entry = listed(result)
    assert entry["state"] == "expired"
    assert "It expired on 2026-04-01" in text(result, entry["page"])
    assert "certificate expired 2026-04-01" in page(result, f"badges/{TINY}.svg")
    assert "expired it expired on 2026-04-01" in text(result, "index.html")
    assert 'class="state certified"' not in page(result, f"stacks/{TINY}.html")


def faster(document: Any) -> None:
    document["predicate"]["probes"][0]["seconds"] = 1e9


def other_lists(document: Any) -> None:
    document["predicate"]["passedTests"] = ["alpha", "gamma"]


def longer(document: Any) -> None:
    document["predicate"]["expires"] = "2036-01-01"


def other_machine(document: Any) -> None:
    for resource in document["predicate"]["configuration"]:
        if resource["name"] == "hardware":
            resource["annotations"]["class"] = "8x NVIDIA H200"


def no_subject(document: Any) -> None:
    document["subject"] = []


@pytest.mark.parametrize(
    "change", [faster, other_lists, longer, other_machine, no_subject], ids=lambda each: each.__name__
)
def test_a_forged_one(small: Small, make: Make, change: Callable[[Any], None]) -> None:
    forge(small.issue(), change)
    result = make(small.project)
    entry = listed(result)
    assert entry["state"] == "does not hold" and entry["doubts"]
    shown = text(result, entry["page"])
    assert "Do not rely on it" in shown
    assert " ".join(entry["doubts"][0].split()) in shown
    assert "Certificates in doubt" in text(result, "index.html")
    for path in (entry["page"], "index.html", f"stacks/{TINY}.html"):
        assert '<div class="verdict certified"' not in page(result, path)
    assert "certificate does not hold" in page(result, f"badges/{TINY}.svg")


def test_one_of_another_suite_does_not_hold(small: Small, make: Make) -> None:
    small.issue()
    small.suite(GOOD_RUN + "# another line\n")
    entry = listed(make(small.project))
    assert entry["state"] == "does not hold"
    assert entry["doubts"][0].startswith("it was earned with another suite")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b"\xff\xfe", b'{"a": 1, "a": 2}'])
def test_a_file_that_is_no_certificate(small: Small, make: Make, content: bytes) -> None:
    path = small.issue()
    path.with_name("other.json").write_bytes(content)
    result = make(small.project)
    assert (result.states["certified"], result.states["not a certificate"]) == (1, 1)
    assert "other.json: not a certificate" in text(result, "index.html")
    assert "other.json" in text(result, f"stacks/{TINY}.html")
    assert not (result.output / "certificates" / TINY / "other.json").exists()


def test_a_folder_in_the_place_of_a_certificate(small: Small, make: Make) -> None:
    small.issue().with_name("folder.json").mkdir()
    assert make(small.project).states["not a certificate"] == 1


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m"


def test_what_a_certificate_says_is_text(small: Small, make: Make) -> None:
    def change(document: Any) -> None:
        document["subject"][0]["name"] = HOSTILE
        probe = document["predicate"]["probes"][0]
        probe.update(name=f"alpha{HOSTILE}", reason=HOSTILE, matters=HOSTILE)
        probe["measurements"] = [
            {"name": HOSTILE, "value": HOSTILE, "unit": HOSTILE, "why": f"`{HOSTILE}`", "ok": True}
        ]
        for resource in document["predicate"]["configuration"]:
            if "annotations" in resource:
                resource["annotations"] |= {"class": HOSTILE, HOSTILE: HOSTILE}

    forge(small.issue(), change)
    result = make(small.project)
    for path in result.output.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        assert "<script>alert" not in html and "<img src=x" not in html, path
        assert "\u202e" not in html and "\x1b" not in html, path
        site_reader.read(html)


def test_a_day_that_a_certificate_does_not_say(small: Small, make: Make) -> None:
    def change(document: Any) -> None:
        del document["predicate"]["issued"], document["predicate"]["expires"]

    forge(small.issue(), change)
    result = make(small.project)
    assert listed(result)["state"] == "does not hold"
    assert "it has no expiry date" in text(result, listed(result)["page"])


def test_a_stack_without_a_certificate(small: Small, make: Make) -> None:
    result = make(small.project)
    assert "not certified" in text(result, f"stacks/{TINY}.html")
    assert f"{TINY}: not certified" in page(result, f"badges/{TINY}.svg")


def many(small: Small, count: int) -> None:
    path = small.issue()
    for number in range(1, count):
        path.with_name(f"page-{number}.json").write_bytes(path.read_bytes())  # the name of a page, too


def rows(result: Result, path: str) -> list[str]:
    """The certificates to which a page links, by their names."""
    links = site_reader.read(page(result, path)).links
    return [link.rpartition("/")[2].removesuffix(".html") for link in links if "certificates/" in link]


def test_many_certificates_are_on_several_pages(small: Small, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LISTED", 20)
    many(small, 50)
    result = make(small.project)
    assert result.states["certified"] == 50
    of_stack = [f"stacks/{TINY}.html", f"stacks/{TINY}/page-2.html", f"stacks/{TINY}/page-3.html"]
    of_all = ["certificates.html", "certificates-2.html", "certificates-3.html"]
    for paths in (of_stack, of_all):
        listed = [name for path in paths for name in rows(result, path)]
        assert set(listed) >= {"cpu-host", *(f"page-{number}" for number in range(1, 50))}
        assert "page 2 of 3" in text(result, paths[1])
        links = [{link.rpartition("/")[2] for link in site_reader.read(page(result, path)).links} for path in paths]
        ends = [path.rpartition("/")[2] for path in paths]
        assert ends[1] in links[0] and ends[2] in links[0]
        assert {ends[0], ends[2]} <= links[1] and ends[1] in links[2]
    assert "50 certificates, until" in text(result, "index.html")
    assert "Every probe that applies has passed" in text(result, f"certificates/{TINY}/page-2.html")


def test_the_list_of_all_begins_with_what_does_not_hold(small: Small, make: Make) -> None:
    many(small, 3)
    forge(small.issue().with_name("page-2.json"), faster)
    result = make(small.project)
    assert rows(result, "certificates.html")[0] == "page-2"
    assert text(result, "certificates.html").count("does not hold") == 2  # the row, and the filter


def test_of_many_in_doubt_the_first_page_names_some(small: Small, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "DOUBTED", 2)
    small.issue(day=datetime.date(2026, 1, 1))
    for name in ("a", "b", "c"):
        (small.file("certificates") / f"{name}.json").write_bytes(
            (small.file("certificates") / "cpu-host.json").read_bytes()
        )
    result = make(small.project)
    assert page(result, "index.html").count("it expired on 2026-04-01") == 2
    assert "All certificates, first those in doubt" in text(result, "index.html")


def test_many_stacks_are_on_several_pages(small: Small, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "BOARD", 2)
    monkeypatch.setattr("builder.site.page.COMPARED", 2)
    for letter in "bcde":
        shutil.copytree(small.file("stack.toml").parent, small.project.stack_dir(f"{TINY}-{letter}"))
    small.issue()
    result = make(small.project)
    boards = ["index.html", "matrix-2.html", "matrix-3.html"]
    linked = [
        {link for link in site_reader.read(page(result, path)).links if link.startswith("stacks/")} for path in boards
    ]
    assert linked == [
        {f"stacks/{TINY}.html", f"stacks/{TINY}-b.html"},
        {f"stacks/{TINY}-c.html", f"stacks/{TINY}-d.html"},
        {f"stacks/{TINY}-e.html"},
    ]
    assert "page 1 of 3" in text(result, boards[0]) and "page 3 of 3" in text(result, boards[2])
    compared = sorted(
        path.relative_to(result.output / "compare").as_posix() for path in result.output.glob("compare/*/*")
    )
    assert compared == [f"{TINY}-b/{TINY}.html", f"{TINY}/{TINY}-b.html"]
    for path in result.output.rglob("*.html"):
        for link in site_reader.read(path.read_text()).links:
            if "://" not in link and (file := link.partition("#")[0].partition("?")[0]):
                assert (path.parent / file).is_file(), (path, link)


def test_a_file_that_changes_meanwhile_is_not_shown_as_judged(small: Small, tmp_path: Path) -> None:
    path = small.issue()
    content = site.read(small.project, tmp_path, lambda _: None)
    path.write_text(path.read_text().replace("PASSED", "FAILED"))
    with pytest.raises(errors.VettedError, match="changed while the site was made"):
        site.make(content, tmp_path / "site", lambda _: None)
    assert not (tmp_path / "site").exists()


def test_the_copy_is_that_of_the_judged_bytes(small: Small, make: Make, tmp_path: Path) -> None:
    small.issue()
    entry = listed(make(small.project))
    assert entry["sha256"] in (tmp_path / "site" / entry["page"]).read_text()


@pytest.mark.parametrize("place", ["value", "bound"])
def test_a_number_without_an_end_spoils_one_certificate_and_not_the_site(small: Small, make: Make, place: str) -> None:
    """JSON's integers may have any length; a float has not, and Python refuses to make one of them."""
    number = Measurement(name="loss", value=1, bound={"at_most": 23}, headline=True)
    path = small.issue(probes=[ProbeResult(name="alpha", outcome="passed", measurements=[number])])
    old = {"value": '"value": 1', "bound": '"at_most": 23'}[place]
    written = path.read_text()
    assert written.count(old) == 1
    path.write_text(written.replace(old, old + "0" * 400))
    result = make(small.project)
    assert result.states == {**dict.fromkeys(site.STATES, 0), "not a certificate": 1}
    assert "larger than any float" in text(result, "index.html")
