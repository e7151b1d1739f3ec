"""Attacks on who reads or makes the pages of `vetted site`: by certificates, their names, and their repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from builder.certify import certificate
from builder.certify.certificate import Measurement
from builder.site import charts, site
from builder.site.site import Result
from tests import commits, parts
from tests.conftest import GOOD_RESULTS, TINY, Small

MARKUP = "\"'><script src=//evil.example></script><img src=x onerror=alert(1)> {{ 7 * 7 }} javascript:alert(1)"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a site that is not made yet; charts and the search index take seconds."""
    monkeypatch.setattr(charts, "draw", lambda *_: Markup(""))
    monkeypatch.setattr(site, "_index", lambda _: None)
    return tmp_path / "site"


def make(small: Small, page: Path) -> Result:
    return site.make(site.read(small.project, small.scratch(), lambda _: None), page, lambda _: None)


class Live(HTMLParser):
    """What of a page is more than text: what it loads and runs, and where its links lead."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "action", "style") or name.startswith("on"):
                self.found.append((tag, name, value or ""))


def spoiled(value: Any) -> Any:
    """A document in which every free text is markup, too."""
    if isinstance(value, dict):
        kept = ("sha256", "_type", "predicateType", "issued", "expires", "outcome", "result")
        return {key: each if key in kept else spoiled(each) for key, each in value.items()}
    if isinstance(value, list):
        return [spoiled(each) for each in value]
    return f"{value}{MARKUP}" if isinstance(value, str) else value


def test_every_text_of_a_certificate_is_markup(small: Small, page: Path) -> None:
    """Elements, attributes, templates and addresses of scripts are in each of its texts."""
    number = Measurement(name="n", value="v", unit="u", bound={"at_most": "b"}, why="`w`", headline=True)
    told = {"measurements": [number], "reason": "r", "log_tail": "l"}
    path = small.issue(probes=[GOOD_RESULTS[0].model_copy(update=told), GOOD_RESULTS[1]])
    path.write_text(certificate.Statement.model_validate(spoiled(json.loads(path.read_bytes()))).to_json())
    make(small, page)
    pages = list(page.rglob("*.html"))
    assert any("onerror" in each.read_text() for each in pages) and "49" not in (page / "index.html").read_text()
    for each in pages:
        # What is no text all the same loads nothing, sends no form, and turns no link of the page.
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', each.read_text())
        assert policy and policy[1].startswith(
            "default-src 'none'; base-uri 'none'; form-action 'none'; script-src 'self'"
        )
        assert "unsafe-inline" not in policy[1] and "http" not in policy[1]
        for tag, name, value in Live(each.read_text()).found:
            assert name in ("src", "href") and not value.startswith(("javascript:", "//", "data:")), (each, tag, name)
            assert tag != "script" or value.removeprefix("../").removeprefix("../") in (
                "static/theme.js",
                "static/site.js",
            )


@pytest.mark.parametrize(
    "name", [b"a; touch ran #", b"$(touch ran)", b"a'`touch ran`", b"a\ntouch ran\n", b"-c", b"caf\xe9"]
)
def test_the_name_of_a_certificate_is_a_command_of_the_shell(small: Small, page: Path, name: bytes) -> None:
    """Its page once had the name in a command to copy; and a name that is no text ended every command."""
    path = small.issue()
    commits.git(small.root, "init", "--quiet")
    odd = Path(os.fsdecode(bytes(path.parent) + b"/" + name + b".json"))
    path.rename(odd)
    commits.commit(small.root, odd)
    odd.write_bytes(
        small.issue(probes=[probe.model_copy(update={"seconds": 9.5}) for probe in GOOD_RESULTS]).read_bytes()
    )
    result = make(small, page)
    assert (result.states["certified"], result.states["not a certificate"], result.states["earlier"]) == (1, 1, 0)
    assert {each.name for each in (page / "certificates" / TINY).iterdir()} == {"cpu-host.html", "cpu-host.json"}
    assert "not named as a certificate is" in (page / "index.html").read_text()


def test_a_repository_starts_a_program_when_its_pages_are_made(small: Small, tmp_path: Path) -> None:
    """The site names the commit of the project, and git once started the monitor that the repository configures."""
    small.issue()
    commits.git(small.root, "init", "--quiet")
    commits.git(small.root, "add", "--all")
    commits.git(small.root, "commit", "--quiet", "--message", "all")
    argv = [parts.git(), "config", "core.fsmonitor", f"touch {tmp_path / 'started'}; false"]
    subprocess.run(argv, cwd=small.root, check=True)
    content = site.read(small.project, small.scratch(), lambda _: None)
    assert len(content.commit.removesuffix("-dirty")) == 40
    assert not (tmp_path / "started").exists()
