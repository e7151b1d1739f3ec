"""The matrix of the first page: stack × hardware × day, each cell certified, audited, built, or not."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from builder.lock import gpus as known
from builder.pages import gpus
from builder.site import certificates
from builder.site.certificates import BEST_FIRST, Certificate
from builder.site.stacks import StackPage

CPU = "CPU"
Span = tuple[datetime.date, datetime.date]


@dataclass(frozen=True)
class Cell:
    """A stack on one kind of hardware. `word`: the answer; `note`: why; `page`: where more is; `spans`: the days on
    which it was certified there; `otherwise`: the word for the other days."""

    word: str
    note: str = ""
    page: str = ""
    spans: Sequence[Span] = ()
    otherwise: str = ""

    @property
    def kind(self) -> str:
        """The word as a class of the style sheet."""
        return self.word.replace(" ", "-")

    @property
    def days(self) -> str:
        """The spans as the page's script reads them."""
        return " ".join(f"{first}/{last}" for first, last in self.spans)


NOT_FOR = Cell("–", "made for other hardware")


def columns(stacks: Iterable[StackPage]) -> list[str]:
    """The hardware: CPUs, the GPUs that are known, and others of certificates by their own name."""
    others = {_column(entry) for stack in stacks for entry in stack.current}
    fixed = [CPU, *(gpu.title for gpu in known.GPUS)]
    return [*fixed, *sorted(others.difference(fixed))]


def row(stack: StackPage, names: Sequence[str]) -> dict[str, Cell]:
    """The cells of a stack, by column."""
    return {name: _cell(stack, name) for name in names}


def _cell(stack: StackPage, column: str) -> Cell:
    base = _base(stack, column)
    here = [entry for entry in stack.current if _column(entry) == column]
    best = min(here, key=lambda entry: BEST_FIRST.index(entry.state), default=None)
    if best is None:
        return base
    spans = [span for entry in here for span in _spans(stack, entry)]
    return Cell(best.state, _note(best, here), best.page if len(here) == 1 else stack.page, spans, base.word)


def _base(stack: StackPage, column: str) -> Cell:
    """What is known without a certificate."""
    if column in stack.gpus:
        return _audited(stack, stack.gpus[column])
    if (column == CPU) == (stack.lock.stack.device == "cpu"):
        return Cell("built" if stack.image else "not built", stack.built)
    return NOT_FOR


def _audited(stack: StackPage, line: str) -> Cell:
    verdict, _, driver = line.removesuffix(f", {gpus.CERTIFIED}").partition(", ")
    if verdict == "absent":
        return Cell("no kernels", "no code for this GPU")
    if driver:
        first = "" if verdict == "native" else "compiles at the first start, "
        return Cell("audited", f"{first}{driver}", "gpus.html")
    return Cell("built" if stack.image else "not built", line)


def _note(best: Certificate, here: Sequence[Certificate]) -> str:
    predicate = best.statement.predicate
    until = {"certified": f"until {predicate.expires}", "expired": f"on {predicate.expires}"}.get(best.state, "")
    alike = sum(entry.state == best.state for entry in here)
    where = best.hardware if alike == 1 else f"{alike} certificates"
    return f"{where}, {until}" if until else where


def _column(entry: Certificate) -> str:
    annotations = entry.statement.resource("hardware").annotations or {}
    if not annotations.get("gpus"):
        return CPU
    places = [entry.hardware]
    return next(
        (gpu.title for gpu in known.GPUS if known.certified(gpu, places)), re.sub(r"^\d+x ", "", entry.hardware)
    )


def _spans(stack: StackPage, entry: Certificate) -> list[Span]:
    """The days on which a certificate, or an earlier one in its place, was in force. What does not hold never was."""
    series = [(past, certificates.span(past)) for past in stack.before(entry)]
    dated = [(datetime.date.fromisoformat(past.commit.day), span[1]) for past, span in series if past.commit and span]
    own = certificates.span(entry)
    if own and entry.state != "does not hold":
        dated.append(own)
    starts = [first for first, _ in dated[1:]]
    ends = [min(last, start) for (_, last), start in zip(dated, starts, strict=False)]
    return [(first, end) for (first, _), end in zip(dated, [*ends, *(last for _, last in dated[-1:])], strict=True)]
