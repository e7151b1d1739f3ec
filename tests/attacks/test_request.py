"""Attacks by new releases on the repository that `vetted watch` opens requests in: by what they say of themselves."""

from __future__ import annotations

from markdown_it import MarkdownIt

from builder.base import text
from builder.certify import certificate
from builder.certify.certificate import ProbeResult
from builder.lock.audit import AuditFinding
from builder.upgrade.outdated import OutdatedPin
from builder.upgrade.recertification import Recertification
from builder.upgrade.watch import branch, verdict, watch
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


def test_a_package_speaks_in_the_message_of_a_commit(small: Small) -> None:
    """Forges read `[skip ci]` and `fixes #12` there, in code too: the checks of the request once did not run."""
    trial = unsound(small)
    commits.git(small.root, "init", "--quiet")
    for key in ("name", "email"):
        commits.git(small.root, "config", f"user.{key}", "a@b.example")
    commits.git(small.root, "add", "--all")
    commits.git(small.root, "commit", "--quiet", "--message", "all")
    watched = Watched(small.lock, certificate.today(), trials=[trial], notices=[COMMANDS], not_renewed=COMMANDS)
    with branch.checked_out(small.project, TINY, "") as tree:
        watch._conclude(tree, watched, small.scratch())
        message = watch.git.check(tree.root, "log", "-1", "--format=%B", watched.commit)
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
