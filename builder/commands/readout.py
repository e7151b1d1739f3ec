"""What a person and a program read of a verdict on an image or a training run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from builder.base import text
from builder.publish import training
from builder.publish.training import RunVerdict
from builder.publish.verify import Verdict


def as_json(verdict: Verdict) -> dict[str, object]:
    """What a program reads of an image."""
    return {
        "kind": "image", "reference": verdict.reference, "image": verdict.image, "good": verdict.good,
        "stack": verdict.stack, "lock": verdict.lock, "doubts": list(verdict.doubts), "notes": list(verdict.notes),
        "certificates": [
            {
                "hardware": certificate.hardware, "issued": str(certificate.statement.predicate.issued),
                "expires": str(certificate.statement.predicate.expires),
                "passed": certificate.statement.predicate.passedTests,
                "not_run": certificate.statement.predicate.notRun, "doubts": list(certificate.doubts),
            }
            for certificate in verdict.certificates
        ],
    }  # fmt: skip


def lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """What a person reads, each line with its style. A registry wrote all of it: none of it commands the terminal."""
    yield text.line(verdict.reference), "bold"
    for what, value in (("image", verdict.image), ("stack", verdict.stack), ("lock", verdict.lock)):
        if value:
            yield text.line(f"  {what:<9} {value}"), ""
    for certificate in verdict.certificates:
        predicate = certificate.statement.predicate
        probes = f"{len(predicate.passedTests)} of {len(predicate.probes)} probes passed"
        dates = f"issued {predicate.issued}, expires {predicate.expires}"
        yield text.line(f"  certified on {certificate.hardware}: {probes}; {dates}"), ""
        yield from _doubts(certificate.doubts)
    yield from _doubts(verdict.doubts)
    for note in verdict.notes:
        yield text.line(f"  {note}"), ""
    yield ("verified", "green") if verdict.good else ("not verified", "red")


def _doubts(doubts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for doubt in doubts:
        first, *rest = doubt.splitlines() or [""]
        yield text.line(f"  doubt: {first}"), "red"
        yield from ((text.line(f"         {line}"), "red") for line in rest)


def run_lines(verdict: RunVerdict) -> Iterator[tuple[str, str]]:
    """What a person reads of a run, each line with its style."""
    predicate = verdict.statement.predicate
    steps, image = predicate.steps, predicate.image
    yield text.line(f"training run {verdict.folder}"), "bold"
    if image:
        yield text.line(f"  image     {image[0]}@{image[1]}"), ""
    judged = f"{steps.get('first')} to {steps.get('last')}, {len(verdict.statement.subject)} files"
    yield text.line(f"  steps     {judged}"), ""
    counts = (
        f"{len(predicate.passedTests)} passed, {len(predicate.warnedTests)} advice, {len(predicate.failedTests)} alarms"
    )
    yield text.line(f"  checks    {counts}, {len(predicate.notRun)} do not apply"), ""
    yield from ((text.line(f"  alarm: {alarm}"), "red") for alarm in verdict.alarms)
    yield from ((text.line(f"  advice: {advice}"), "yellow") for advice in verdict.advice)
    yield from _doubts(verdict.doubts)
    yield from ((text.line(f"  {line}"), "") for note in verdict.notes for line in note.splitlines())
    yield text.line(f"  not seen: {len(predicate.blindSpots)} blind spots, in {training.NAME}"), ""
    yield ("the run is as its certificate says, without an alarm", "green") if verdict.good else ("not verified", "red")
