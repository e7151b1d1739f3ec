"""The matrix of the first page: stack × hardware × day, each cell certified, audited, built, or not."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from builder.lock import gpus as known
from builder.pages import gpus
from builder.site import certificates
from builder.site.certificates import Certificate
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
    places = {(entry.assessment.gpus, entry.hardware) for stack in stacks for entry in stack.current}
    others = {_column(gpus, hardware) for gpus, hardware in places}
    fixed = [CPU, *(gpu.title for gpu in known.GPUS)]
    return [*fixed, *sorted(others.difference(fixed))]


def row(stack: StackPage, names: Sequence[str]) -> dict[str, Cell]:
    """The cells of a stack, by column."""
    by_column: dict[str, list[Certificate]] = {}
    for entry in stack.current:
        by_column.setdefault(_column(entry.assessment.gpus, entry.hardware), []).append(entry)
    return {name: _cell(stack, name, by_column.get(name, [])) for name in names}


def _cell(stack: StackPage, column: str, here: Sequence[Certificate]) -> Cell:
    base, best = _base(stack, column), certificates.best(here)
    if best is None:
        return base
    spans = _joined(span for entry in here for span in _spans(stack, entry))
    return Cell(best.state, _note(best, here), best.page if len(here) == 1 else stack.page, spans, base.word)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """The same days in as few spans as possible: the page has them in every cell."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + datetime.timedelta(days=1):
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


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
    expires = best.assessment.expires
    until = {"certified": f"until {expires}", "expired": f"on {expires}"}.get(best.state, "")
    alike = sum(entry.state == best.state for entry in here)
    where = f"{best.hardware} ({best.about})" if alike == 1 else f"{alike} certificates"
    return f"{where}, {until}" if until else where


@cache
def _column(gpus: bool, hardware: str) -> str:
    if not gpus:
        return CPU
    return next((gpu.title for gpu in known.GPUS if known.certified(gpu, [hardware])), re.sub(r"^\d+x ", "", hardware))


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
