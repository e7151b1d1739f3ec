"""Sites without their charts and their search index, which take seconds: tests/engine/site has those."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from builder.base.project import Project
from builder.certify import certificate
from builder.site import charts, history, site
from builder.site.site import Result

Make = Callable[[Project], Result]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "draw", lambda *_: Markup(""))
    monkeypatch.setattr(site, "_index", lambda _: None)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make the site of a project in a folder of this test."""

    def run(project: Project) -> Result:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        return site.make(site.read(project, scratch, _silent), tmp_path / "site", _silent)

    return run


def _silent(_: str) -> None:
    pass


@pytest.fixture
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "versions", lambda *_: [])


def forge(path: Path, change: Callable[[Any], None]) -> None:
    """Change a certificate, written as this tool writes one."""
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(certificate.Statement.model_validate(document).to_json())
