"""Earlier certificates: what git has of a certificate's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.certify.certificate import Measurement
from builder.site import history
from tests import commits, site_reader
from tests.conftest import GOOD_RESULTS, TINY, Small
from tests.unit.conftest import Command
from tests.unit.site.conftest import Make


@pytest.fixture
def committed(small: Small) -> Small:
    """A project with three versions of a certificate: the first of a form that nobody reads, the last is today's."""
    commits.git(small.root, "init", "--quiet")
    path = small.issue()
    path.write_text('{"of": "an early day"}')
    for seconds in (None, 7.5, 9.5):
        if seconds is not None:
            small.issue(probes=[probe.model_copy(update={"seconds": seconds}) for probe in GOOD_RESULTS])
        commits.commit(small.root, path)
    return small


def test_earlier_certificates_have_pages_and_numbers(committed: Small, make: Make) -> None:
    result = make(committed.project)
    assert (result.states["certified"], result.states["earlier"]) == (1, 1)
    stack = site_reader.read((result.output / "stacks" / f"{TINY}.html").read_text())
    (link,) = [link for link in stack.links if "certificates/" in link and "cpu-host-" in link]
    page = site_reader.read((result.output / "stacks" / link).read_text())
    assert "Another certificate took its place" in page.text
    assert "committed on 2026-11-01" in page.text
    assert 7.5 in [number.value for number in page.numbers]
    assert [problem for number in page.numbers if (problem := site_reader.wrong(result.output, number))] == []


def test_versions_are_the_newest_first(committed: Small, tmp_path: Path) -> None:
    versions = history.versions(committed.project.stack_dir(TINY) / "certificates", tmp_path)
    assert [version.name for version in versions] == ["cpu-host"] * 3
    assert [b"9.5" in version.content for version in versions] == [True, False, False]
    assert versions[2].content == b'{"of": "an early day"}'
    assert {version.day for version in versions} == {"2026-11-01"}


def test_without_a_repository_there_are_none(small: Small, tmp_path: Path) -> None:
    small.issue()
    assert history.versions(small.project.stack_dir(TINY) / "certificates", tmp_path) == []
    assert history.versions(small.project.stack_dir(TINY) / "no-such-folder", tmp_path) == []


def test_a_shallow_clone_says_what_its_page_lacks(committed: Small, command: Command, tmp_path: Path) -> None:
    commits.git(committed.root, "add", "--all")
    commits.git(committed.root, "commit", "--quiet", "--message", "all")
    clone = tmp_path / "clone"
    commits.git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{committed.root}", str(clone))
    for root, lacks in ((clone, True), (committed.root, False)):
        answer = command(root, "site", "--output", str(tmp_path / "public"))
        assert answer.code == 0, answer.err
        assert ("git fetch --unshallow" in answer.err) is lacks


def test_without_git_there_are_none(committed: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert history.versions(committed.project.stack_dir(TINY) / "certificates", tmp_path) == []


def test_a_number_that_moved_has_a_trail(committed: Small, make: Make) -> None:
    for value in (3.0, 5.0):
        results = [probe.model_copy(update={"measurements": [_number(value)]}) for probe in GOOD_RESULTS]
        commits.commit(committed.root, committed.issue(probes=results))
    html = (make(committed.project).output / "certificates" / TINY / "cpu-host.html").read_text()
    assert html.count("<polyline") == 2
    assert site_reader.read(html).text.count("from 3 to 5") == 2


def _number(value: float) -> Measurement:
    return Measurement(name="loss", value=value, bound={"at_most": 9}, ok=True)


def test_a_page_says_of_which_commit_it_is_and_whether_files_have_changed(committed: Small, make: Make) -> None:
    commits.commit(committed.root, committed.root)
    clean = (make(committed.project).output / "verify.html").read_text()
    assert "of commit" in clean and "changes on top" not in clean
    committed.file("stack.toml").write_text(committed.file("stack.toml").read_text() + "\n")
    assert "with changes on top of it" in (make(committed.project).output / "verify.html").read_text()
