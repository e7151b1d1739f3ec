"""A site with doubtful certificates, served, and a browser."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.base.project import Project
from builder.certify import certificate, judgement
from builder.intent import advisory as advisories
from builder.lock import lockfile
from builder.site import site
from tests import commits
from tests.conftest import ROOT
from tests.engine import browsing
from tests.engine.browsing import DESKTOP, Browser

STACK = "trl1.16-cpu"
MOST = 300_000  # bytes that a page may load


@dataclass(frozen=True)
class Served:
    """A site below a path of a web server."""

    folder: Path
    address: str

    def pages(self) -> list[str]:
        """One page of every kind."""
        certificates = sorted(self.folder.glob(f"certificates/{STACK}/*.html"))
        chosen = {path.stem.partition("-docker-")[0]: path.relative_to(self.folder).as_posix() for path in certificates}
        advisory = min(path.name for path in (self.folder / "advisories").glob("VETTED-*.html"))
        other = min(path.name for path in (self.folder / "compare" / STACK).iterdir())
        return [
            "index.html", f"stacks/{STACK}.html", *chosen.values(), "compare/index.html", f"compare/{STACK}/{other}",
            "advisories/index.html", f"advisories/{advisory}", "gpus.html", "suite.html", "verify.html", "search.html",
        ]  # fmt: skip


def spoiled(root: Path) -> Project:
    """A copy of this project with a past, and with certificates of every kind of doubt."""
    for folder in ("advisories", "lockfiles", "images", "runtime", "smoke", "docs"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    project, path = Project(root), root / "lockfiles" / STACK / "certificates" / "cpu-docker.json"
    today = path.read_text()
    document = json.loads(today)
    commits.git(root, "init", "--quiet")
    for step in (1, 2, 3):
        for probe in document["predicate"]["probes"]:
            probe["seconds"] *= 1.5
            for number in probe["measurements"][: step % 2]:
                number["value"] += 0.001
        path.write_text(certificate.Statement.model_validate(document).to_json())
        commits.commit(root, path, f"2026-11-0{step}")
    path.write_text(today)
    statement = certificate.read(path)
    old = statement.dated(datetime.date(2026, 1, 5))
    path.with_name("cpu-expired.json").write_text(old.to_json())
    for advisory in advisories.load_all(project):  # else one would withdraw what is old
        if judgement.withdraws(advisory, old, lockfile.load(project, STACK).versions):
            (root / "advisories" / f"{advisory.id}.toml").unlink()
    document = json.loads(today)
    document["predicate"]["probes"][0]["measurements"][0]["value"] = 0.25
    path.with_name("cpu-forged.json").write_text(certificate.Statement.model_validate(document).to_json())
    path.with_name("cpu-broken.json").write_text("{}")
    return project


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("site")
    project = spoiled(root / "project")
    (root / "scratch").mkdir()
    content = site.read(project, root / "scratch", lambda _: None)
    site.make(content, root / "server" / "some" / "path", lambda _: None)
    with browsing.serving(root / "server") as address:
        yield Served(root / "server" / "some" / "path", f"{address}some/path/")


@pytest.fixture(scope="session")
def opened() -> Iterator[Browser]:
    with browsing.browser() as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Browser:
    opened.size(DESKTOP)
    opened.scheme("light")
    opened.open("about:blank")
    opened.problems()
    opened.requests()
    return opened


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return browsing.axe(tmp_path_factory.mktemp("axe"))


def words(browser: Browser, selector: str) -> list[str]:
    return [element.text.strip() for element in browser.shown(selector)]
