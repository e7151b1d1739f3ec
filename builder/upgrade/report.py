"""The report on an upgrade that was not taken over, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from builder.base import text
from builder.base.text import unlinked
from builder.upgrade.recertification import Recertification

WORDS = {
    "unresolvable": "cannot be resolved",
    "unsound": "resolves, but not soundly",
    "not built": "cannot be built or installed",
    "red": "does not pass the suite",
    "worse": "passes, but with numbers that became worse",
    "strays": "passes, but trains differently",
}


def report(result: Recertification) -> str:
    """What happened, section by section."""
    lines = [f"# {result.name}: the candidate {WORDS.get(result.outcome, result.outcome)}", ""]
    lines += [f"The lock stays {result.old.digest}.", "", *sections(result)]
    return "\n".join(lines)


def sections(result: Recertification) -> list[str]:
    """The lines after the title: the reasons, the culprit, and the difference."""
    lines: list[str] = []
    if result.explanation:
        lines += [*text.block(result.explanation), ""]
    if result.findings:
        lines += [*(f"- {unlinked(finding.what)}; fix: {unlinked(finding.fix)}" for finding in result.findings), ""]
    lines += [*_broken(result), *_culprit(result)]
    lines += _training(result)
    if result.reproducer:
        lines += ["A reproducer that needs only uv:", "", f"    uv run --no-project {result.reproducer}", ""]
    if result.advisory:
        lines += ["## Draft of an advisory", "", *text.block(result.advisory.read_text(), "toml"), ""]
    if difference := result.difference:
        lines += [f"## What changed ({len(difference.rows)} distributions, {difference.total})", ""]
        lines += [*(f"- {unlinked(line)}" for line in difference.words()), ""]
    return lines


def _training(result: Recertification) -> Iterator[str]:
    if result.training:
        yield from ("## Training", "", unlinked(str(result.training)), "")
    elif result.not_trained:
        yield from ("## Training", "", f"Not compared: {unlinked(result.not_trained)}", "")
    if result.picture:
        yield from (f"A picture of both: {result.picture}", "")


def _broken(result: Recertification) -> Iterator[str]:
    if result.red:
        yield from ("## What broke", "")
        for probe in result.red:
            yield f"- **{unlinked(probe.name)}** {probe.outcome}: {unlinked(probe.reason or 'no reason given')}"
            if probe.matters:
                yield f"  It matters: {unlinked(probe.matters)}."
        yield ""
    if result.worse:
        yield from ("## What became worse", "", *(f"- {unlinked(str(regression))}" for regression in result.worse), "")


def _culprit(result: Recertification) -> Iterator[str]:
    if breaking := result.breaking:
        yield from ("## The culprit", "", *(f"- {unlinked(str(change))}" for change in breaking.culprits))
        yield from (f"- {unlinked(str(change))}, because they require it" for change in breaking.dependencies)
        yield from ("", f"Proved by running both sets: {unlinked(breaking.trial.reason)}", "")
    elif result.no_culprit:
        yield from ("## The culprit", "", f"Not found: {unlinked(result.no_culprit)}", "")
