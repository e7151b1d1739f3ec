"""The culprit of a candidate that is red or worse: a bisection between the old lock and the candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from builder.base import errors, sources
from builder.base.project import Project
from builder.bisect import draft, packages, reproducer
from builder.bisect.between import Between
from builder.bisect.journal import Journal, Trial
from builder.bisect.question import Question, of_probe
from builder.certify.certificate import ProbeResult
from builder.intent.advisory import Advisory
from builder.upgrade import compare
from builder.upgrade.recertification import Recertification


def find(
    home: Project, result: Recertification, advisories: Sequence[Advisory], scratch: Path, report: Callable[[str], None]
) -> None:
    """Add the culprit to a result, with a reproducer and a draft; or why there is none.

    Raises NetworkError and StorageError; any other error is the reason why no culprit was found.
    """
    if result.outcome == "worse":
        question = _question_of_worse(result)
        reason = "only times or sums became worse, which one probe cannot tell from a busy machine"
    else:
        question = Question(result.red[0].name) if result.red else None
        reason = "nothing ran"
    if question is None:
        result.no_culprit = reason
        return
    try:
        _bisect(home, result, question, advisories, scratch, report)
    except (errors.NetworkError, errors.StorageError):
        raise
    except errors.VettedError as error:
        result.no_culprit = error.what


def _question_of_worse(result: Recertification) -> Question | None:
    """Does the first number that became worse do so? A time is not asked about: one slow trial would decide it."""
    first = next((regression for regression in result.worse if regression.probe and regression.what != "seconds"), None)
    if first is None or result.before is None:
        return None
    before = next(probe for probe in result.before.predicate.probes if probe.name == first.probe)

    def judge(after: ProbeResult) -> Trial:
        trial = of_probe(after)
        if trial.outcome != "green":
            return trial
        changes = (*compare.agreement(before, after), *compare.memory(before, after))
        worse = next((change for change in changes if change.what == first.what), None)
        return replace(trial, outcome="red", fault=first.what, reason=str(worse)) if worse else trial

    return Question(first.probe, judge=judge, about=str(first))


def _bisect(
    home: Project, result: Recertification, question: Question, advisories: Sequence[Advisory], scratch: Path,
    report: Callable[[str], None],
) -> None:  # fmt: skip
    assert result.new is not None
    folder = scratch / "bisect"
    folder.mkdir()
    between = Between(result.old, result.new, "")
    if not between.changes:
        result.no_culprit = "no distribution changed"
        return
    suite = folder / "suite"
    between.name = question.key(between, sources.copy(home.smoke, suite))
    journal = Journal.open(home, between.name, folder)
    search = packages.Search(home, between, question, journal, folder, report, suite)
    result.breaking = search.run(advisories)
    result.reproducer = reproducer.make(home, result.breaking, question, journal.folder / "reproducer", folder)
    result.advisory = draft.make(home, result.breaking, question, journal.folder, folder)
