"""Which pages of a site Lighthouse judges, and when it says no."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import lighthouse

GOOD = dict.fromkeys(lighthouse.CATEGORIES, 95)


def page(folder: Path, path: str, size: int) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x" * size)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with two pages of some kinds, the first of which is the larger one."""
    pages = ("index.html", "certificates-2.html", "certificates.html", "advisories/index.html", "advisories/B.html",
             "advisories/A.html", "compare/index.html", "compare/old/new.html", "compare/new/old.html")  # fmt: skip
    for place, path in enumerate(pages):
        page(tmp_path, path, len(pages) - place)
    return tmp_path


def test_the_largest_page_of_each_kind(site: Path) -> None:
    assert lighthouse.pages(site) == [
        "advisories/B.html", "advisories/index.html", "certificates-2.html", "compare/index.html",
        "compare/old/new.html", "index.html",
    ]  # fmt: skip


@pytest.mark.parametrize("category", lighthouse.CATEGORIES)
def test_a_page_below_the_least_in_any_category_is_a_no(
    site: Path, monkeypatch: pytest.MonkeyPatch, category: str
) -> None:
    ran = []

    def measure(address: str, _: Path, device: str) -> dict[str, int]:
        ran.append((address.rpartition("/")[2], device))
        bad = address.endswith("old/new.html") and device == "desktop"
        return {**GOOD, category: 94} if bad else GOOD

    monkeypatch.setattr(lighthouse, "measure", measure)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: None)  # npm
    assert lighthouse.main([str(site)]) == 1
    assert [ran.count(("new.html", device)) for device in ("phone", "desktop")] == [3, 1]
    assert lighthouse.main([str(site), "--quick"]) == 0
