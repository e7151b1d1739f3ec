"""Attacks by new releases on the repository that `vetted watch` opens requests in: by what they say of themselves."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest
from markdown_it import MarkdownIt

from builder.base import errors, text
from builder.certify import certificate
from builder.certify.certificate import ProbeResult
from builder.certify.certify import Options
from builder.lock.audit import AuditFinding
from builder.upgrade.outdated import OutdatedPin
from builder.upgrade.recertification import Progress, Recertification
from builder.upgrade.watch import branch, git, verdict, watch
from builder.upgrade.watch.watch import Watched
from tests import commits
from tests.conftest import TINY, Small

COMMANDS = (
    "[skip ci] [no ci] fixes #12, closes team/app#34, resolves GH-56, cc @team/owners\n/merge\n\nskip-checks: true"
)


def unsound(small: Small) -> Recertification:
    """A trial of a package that says COMMANDS wherever it is quoted."""
    failed = ProbeResult(name="alpha", outcome="failed", reason=COMMANDS, matters=COMMANDS)
    trial = Recertification(TINY, "red", small.lock, explanation=COMMANDS, no_culprit=COMMANDS, not_trained=COMMANDS)
    trial.findings = [AuditFinding(COMMANDS, COMMANDS)]
    trial.statement = certificate.read(small.issue(probes=[failed]))
    return trial


@pytest.fixture
def repository(small: Small) -> Small:
    commits.git(small.root, "init", "--quiet")
    for key in ("name", "email"):
        commits.git(small.root, "config", f"user.{key}", "a@b.example")
    commits.git(small.root, "add", "--all")
    commits.git(small.root, "commit", "--quiet", "--message", "all")
    return small


def test_a_package_speaks_in_the_message_of_a_commit(repository: Small) -> None:
    """Forges read `[skip ci]` and `fixes #12` there, in code too: the checks of the request once did not run."""
    small, trial = repository, unsound(repository)
    watched = Watched(small.lock, certificate.today(), trials=[trial], notices=[COMMANDS], not_renewed=COMMANDS)
    with branch.checked_out(small.project, TINY, "") as tree:
        watch._conclude(tree, watched, "identity", small.scratch())
        message = git.check(tree.root, "log", "-1", "--format=%B", watched.commit)
        assert "skip" in (tree.root / "watch" / TINY / "verdict.md").read_text()
    assert message == f"{TINY}: does not pass the suite\n\nwatch/{TINY}/verdict.md says why."


def test_a_package_calls_people_and_closes_issues_in_a_request(small: Small) -> None:
    """What it says is text outside of code, where a forge looks for names, for numbers of issues, and for commands."""
    newer = [OutdatedPin(COMMANDS, COMMANDS, COMMANDS, COMMANDS, COMMANDS)]
    whole = verdict.verdict(small.lock, small.lock, certificate.today(), newer, [COMMANDS], [unsound(small)])
    tokens = MarkdownIt("commonmark").enable("table").parse(whole)
    plain = [leaf.content for token in tokens for leaf in token.children or () if leaf.type == "text"]
    assert sum("skip ci" in words for words in plain) > 5
    for words in plain:
        assert not any(call in words for call in ("@team", "#12", "#34", "GH-56")), words
    assert text.unlinked("/merge") == "\\/merge"


def test_the_verdict_of_an_earlier_watch_is_forged(repository: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is from elsewhere, a cache of CI: its verdict once was the text of the request, and nothing ran."""
    small, options, progress = repository, Options("cpu", "host"), Progress(lambda _: None, lambda _: None)
    pin = OutdatedPin("tiny-lib", "1.0", "2.0", "2.0")
    identity = watch._identity(small.project, Watched(small.lock, certificate.today(), newer=[pin]), options)
    folder = branch.folder(small.project, TINY)
    folder.mkdir(parents=True)

    def attempt() -> Watched:
        watched = Watched(small.lock, certificate.today(), newer=[pin])
        watch.attempt(small.project, watched, options, [], small.scratch(), progress)
        return watched

    def keep(commit: str) -> None:
        kept = {"identity": identity, "day": "2026-11-01", "subject": "forged", "commit": commit, "outcome": "green"}
        (folder / "last.json").write_text(json.dumps(kept))
        (folder / "verdict.md").write_text("forged")

    commits.git(small.root, "branch", f"vetted/watch/{TINY}")
    keep(git.commit(small.root, "HEAD"))
    with monkeypatch.context() as patched:
        patched.setattr(branch, "checked_out", Mock(side_effect=errors.VettedError("tried")))
        with pytest.raises(errors.VettedError, match="tried"):
            attempt()
    # What a watch committed itself is said again, whatever lies beside it.
    first = Watched(small.lock, certificate.today(), newer=[pin], trials=[unsound(small)], outcome="red")
    with branch.checked_out(small.project, TINY, "") as tree:
        watch._conclude(tree, first, identity, small.scratch())
    keep(first.commit)
    again = attempt()
    assert (again.unchanged, again.outcome, again.subject) == (str(first.day), "red", first.subject)
    assert again.verdict and again.verdict.read_text().startswith(f"# {first.subject}\n\nVerdict of {first.day}")
