"""What `vetted extend` makes of packages that other projects require, in the documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from builder.base.project import Project
from builder.intent import stack
from builder.lock import lockfile
from builder.pages import cells, evidence, suite
from builder.pages.cells import DASH, Markdown
from builder.pages.records import Bytes, Count, Model, Record, Seconds

Outcome = Literal["newest", "behind", "refused", "wrong"]
WORDS: dict[Outcome, str] = {
    "newest": "newest",
    "behind": "an earlier one, and it says so",
    "refused": "refused, and the reason is named",
    "wrong": "**wrong**",
}
TIMES = 1.5  # the bytes of the layer over those of its wheels, at most; where it is missed, the documents say so
WITHIN_S = 180.0  # building and certifying, at most; the same
COLUMNS = ("package", "from", "release", "newest", "", "in the way, or the reason", "seconds")


class Tried(Model):
    """A package by itself. `newest`: as pip finds it for the same Python. `days`: between the two releases.

    `pins`: those of the parent that are in the way. `reason`: of a refusal or of a wrong answer, where no pin is.
    """

    package: str
    project: str
    outcome: Outcome
    version: str
    newest: str
    days: Count | None
    pins: list[str]
    reason: str
    seconds: Seconds


class Imports(Model):
    """Seconds of an import, with bytecode and without."""

    with_: Seconds = Field(alias="with")
    without: Seconds


class Together(Model):
    """An extension by all that were taken: locked, built and certified, where the parent was built before.

    `without`: what does not fit beside the others. `load`: of the machine, when the build began. `layers_kept`: the
    parent's layers are in its image as they were.
    """

    packages: Count
    distributions: Count
    without: list[str]
    lock_s: Seconds
    build_s: Seconds
    certify_s: Seconds
    load: float
    certified: bool
    passed: Count
    layers_kept: bool
    layer_bytes: Bytes
    files_bytes: Bytes
    bytecode_bytes: Count
    imports_s: dict[str, Imports]


class Extensions(Record):
    FILE = "extensions"

    stack: str
    lock: str
    packages: list[Tried]
    traps: list[Tried]
    together: Together | None = None


def results(project: Project) -> str:
    """A row for each package and each trap, and the numbers of all together."""
    record = evidence.read(project, Extensions)
    if record is None:
        return suite.NOT_MEASURED
    known = record.stack in stack.names(project) and record.lock == lockfile.load(project, record.stack).digest
    older = "" if known else ", an earlier lock"
    head = f"On {cells.code(record.stack)}{older}. {suite.measured(record)}."
    parts = [
        head,
        f"{_counted(record.packages)}\n\n{_table(record.packages)}",
        f"Where a resolver alone takes a release of long ago: {_counted(record.traps)}\n\n{_table(record.traps)}",
    ]
    if record.together:
        parts.append(_together(record.together))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _counted(rows: Sequence[Tried]) -> str:
    counts = Counter(row.outcome for row in rows)
    return f"**{len(rows)} packages**: " + ", ".join(f"{counts[kind]} {words}" for kind, words in WORDS.items()) + "."


def _table(rows: Sequence[Tried]) -> str:
    return cells.table([Markdown(name) for name in COLUMNS], [_row(row) for row in rows])


def _row(row: Tried) -> list[object]:
    distance = f" ({row.days} days)" if row.days is not None and row.outcome != "newest" else ""
    return [
        cells.code(row.package), row.project, row.version or DASH, row.newest or DASH,
        Markdown(WORDS[row.outcome].partition(",")[0] + distance),
        cells.codes(row.pins) or row.reason, f"{row.seconds:.0f}",
    ]  # fmt: skip


def _together(all_: Together) -> str:
    ratio = all_.layer_bytes / all_.files_bytes
    bytecode = all_.bytecode_bytes / all_.files_bytes
    seconds = all_.build_s + all_.certify_s
    without = f", without {cells.codes(all_.without)}" if all_.without else ""
    size = (
        f"Its layer: {cells.size(all_.layer_bytes)}, of {cells.size(all_.files_bytes)} of files: **{ratio:.2f}**, "
        f"{bytecode:.2f} of it bytecode (at most {TIMES}{'' if ratio <= TIMES else ': missed'})."
    )
    time = (
        f"Built in {all_.build_s:.0f} s, and {'certified' if all_.certified else '**not certified**'} "
        f"({all_.passed} probes passed) in {all_.certify_s:.0f} s: {seconds:.0f} s (at most {WITHIN_S:.0f}"
        f"{'' if seconds <= WITHIN_S else ': missed'}), at a load of {all_.load:.1f} before."
    )
    imports = "; ".join(
        f"{cells.code(module)} {each.without:.1f} s and not {each.with_:.1f} s"
        for module, each in all_.imports_s.items()
    )
    lines = [
        f"{all_.packages} together{without}: {all_.distributions} distributions, locked in {all_.lock_s:.0f} s.",
        size,
        *([f"An import takes without bytecode: {imports}."] if imports else []),
        f"The parent's layers are {'the same' if all_.layers_kept else '**not** the same'}.",
        time,
    ]
    return "\n".join(f"- {line}" for line in lines)
