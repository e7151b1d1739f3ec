"""The numbers of a run's steps against its certificate: they are judged again, by this project's bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

from builder.base import text
from builder.publish import runrecords
from builder.publish.runstatement import Check, Predicate, Row

OUTCOMES = ("passed", "advice", "alarm")


def doubts(contents: Mapping[str, bytes], predicate: Predicate, table: Sequence[Row]) -> Iterator[str]:
    """What the rows say otherwise than the certificate."""
    rows: list[dict[str, Any]] = []
    for file in sorted(name for name in contents if fnmatch(name, runrecords.ROWS)):
        try:
            rows += _rows(contents[file])
        except runrecords.TwiceError:
            yield f"{text.line(file)} has a key twice: programs differ on what it says"
            return
        except UnicodeDecodeError:
            yield f"{text.line(file)} is not text"
            return
    names = [check.name for check in predicate.checks]
    yield from (f"it names a check twice: {name}" for name in sorted({name for name in names if names.count(name) > 1}))
    claimed = {check.name: check for check in predicate.checks}
    outcomes: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
    silent = []
    for entry in table:
        name, values = entry.name, [_number(row.get(entry.column)) for row in rows]
        read = [value for value in values if value is not None]
        check = claimed.pop(name, None)
        if not read:
            silent.append(name)
            if check is not None or name not in predicate.notRun:
                yield f"{name}: it says {check.outcome if check else 'nothing'}, and no step has a number for it"
            continue
        broken = sum(map(entry.broken_by, read))
        outcome: str = _level(entry, rows) if broken else "passed"
        outcomes[outcome].append(name)
        if check is None:
            yield f"{name}: it says nothing, and the steps say {outcome}"
        elif (check.outcome, check.findings, check.steps) != (outcome, broken, len(read)):
            yield f"{name}: it says {check.outcome}, and the steps say {outcome}, in {broken} of {len(read)}"
        else:
            yield from _extreme(check, entry, rows)
    yield from (f"{name}: this project's monitor has no such check" for name in claimed)
    yield from _lists(predicate, outcomes, silent)
    steps = sorted({row["step"] for row in rows})
    if predicate.steps != ({"first": steps[0], "last": steps[-1], "judged": len(steps)} if steps else {"judged": 0}):
        yield "it counts other steps than were recorded"


def _lists(predicate: Predicate, outcomes: Mapping[str, Sequence[str]], silent: Sequence[str]) -> Iterator[str]:
    """What its lists and its result say otherwise than the rows. `silent`: the checks that no row has a number for."""
    lists = (predicate.passedTests, predicate.warnedTests, predicate.failedTests)
    for outcome, names in zip(OUTCOMES, lists, strict=True):
        if sorted(names) != sorted(outcomes[outcome]):
            yield f"its list of {outcome} checks is not what the steps say"
    if sorted(predicate.notRun) != sorted(silent):
        yield "its list of checks that do not apply is not what the steps say"
    result = "FAILED" if outcomes["alarm"] or predicate.monitorFailure else "WARNED" if outcomes["advice"] else "PASSED"
    if predicate.result != result:
        yield f"it says {predicate.result}, and the steps say {result}"


def _level(entry: Row, rows: Sequence[Mapping[str, Any]]) -> str:
    """The level of a check that was broken: advice if it recovers, and had recovered on every rank at the end."""
    values = ((_rank(row), _number(row.get(entry.column))) for row in rows)
    last = {rank: value for rank, value in values if value is not None}
    return "advice" if entry.recovers and not any(map(entry.broken_by, last.values())) else entry.level


def _extreme(check: Check, entry: Row, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Whether the bound is the table's, and the worst number and the first breach those of the rows."""
    values = [(row["step"], value) for row in rows if (value := _number(row.get(entry.column))) is not None]
    extreme = math.nan if any(math.isnan(value) for _, value in values) else max(value for _, value in values)
    broken = [step for step, value in values if entry.broken_by(value)]
    shown = extreme if math.isfinite(extreme) else str(extreme)
    true = check.model_copy(update={"at_most": entry.at_most, "worst": shown, "first": min(broken, default=None)})
    if check != true:
        said, so = worst(check), worst(true)
        if said == so:  # they differ in a digit that is not shown
            said, so = f"worst {check.worst!r}", f"worst {true.worst!r}"
        yield f"{entry.name}: it says {said}, and the steps say {so}"
    if check.column != entry.column:
        yield f"{entry.name}: it says column {check.column}, and the monitor's is {entry.column}"


def _rank(row: Mapping[str, Any]) -> int:
    value = row.get("rank")
    return value if isinstance(value, int) else 0


def _rows(content: bytes) -> Iterator[dict[str, Any]]:
    """The rows that are whole. Raises TwiceError and UnicodeDecodeError."""
    for line in content.decode().splitlines():
        try:
            row = runrecords.load(line)
        except runrecords.TwiceError:
            raise
        except ValueError:
            continue  # a row that was cut short when the run was killed
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield row


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def worst(check: Check) -> str:
    """The worst number of a check, its bound, and since when the bound was broken, in words."""
    number = f"{check.worst:.3g}" if isinstance(check.worst, int | float) else str(check.worst)
    since = f", from step {check.first}" if check.first is not None else ""
    return f"worst {number}, bound {check.at_most:g}{since}"
