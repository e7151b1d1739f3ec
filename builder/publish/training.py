"""Judge the folder of a training run by its run certificate: every doubt is a sentence.

The certificate is not signed, so it is no proof of who trained what. What can be checked is checked: that it is about
exactly these files, and that the recorded numbers of every step lead, by this project's bounds, to what it says.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from builder.base import errors, reading, strictjson
from builder.base.project import Project, sha256_file
from builder.certify import certificate, judgement
from builder.certify.certificate import Statement
from builder.intent import stack
from builder.lock import lockfile
from builder.publish.runstatement import Check, Predicate, Row, RunStatement, Table

NAME = "run-certificate.json"
CONTAINER = "/runs/"  # what a container calls the folder runs/ of the project
RECORDS = ("config.yaml", "run.json", "metrics.jsonl", "monitor.json")  # what a certificate must be about, if there
ROWS = "monitor*.jsonl"
OUTCOMES = ("passed", "advice", "alarm")
LONGEST = 1 << 30  # bytes of the numbers of a run: a kilobyte for each step and rank


@dataclass(frozen=True)
class RunVerdict:
    """The judgement of a run. `alarms` and `advice` are what its monitor saw; `doubts` are about the certificate."""

    folder: str
    statement: RunStatement
    doubts: tuple[str, ...]
    alarms: tuple[str, ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Is there no doubt about the certificate, and no alarm in the run?"""
        return not self.doubts and not self.alarms


def found(project: Project, name: str) -> Path | None:
    """The folder of a training run, if that is what `name` says, here or in a container."""
    paths = [Path(name), project.root / name.lstrip("/")] if name.startswith(CONTAINER) else [Path(name)]
    return next((path for path in paths if _is_run(path)), None)


def _is_run(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in (NAME, "run.json", "monitor.jsonl"))


def judge(project: Project, folder: Path) -> RunVerdict:
    """Judge a run. Raises BadInputError when it has no certificate that can be read."""
    statement = _read(folder)
    predicate = statement.predicate
    table = checks(project)
    doubts = [*_files(folder, statement), *_bounds(predicate, table)]
    if not doubts:
        doubts += _numbers(folder, predicate, table.rows)
    if predicate.monitorFailure:
        doubts.append(f"the monitor failed during the run and saw only a part of it: {predicate.monitorFailure}")
    sentences = {row.name: f"{row.name}: {row.asks}" for row in table.rows}
    shown = {check.name: f"{sentences.get(check.name, check.name)} {_worst(check)}" for check in predicate.checks}
    return RunVerdict(
        str(folder), statement, tuple(doubts),
        alarms=tuple(shown.get(name, name) for name in predicate.failedTests),
        advice=tuple(shown.get(name, name) for name in predicate.warnedTests),
        notes=tuple(_image(project, folder, predicate)),
    )  # fmt: skip


def checks(project: Project) -> Table:
    """The monitor's table of checks, read from its source and not run."""
    source = project.runtime / "monitor" / "checks.py"
    tree = ast.parse(reading.text(source, project.relative(source)))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "TABLE" for t in node.targets):
            table = ast.literal_eval(node.value)
            digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()
            return Table(TypeAdapter(list[Row]).validate_python(table), digest)
    raise errors.BadInputError(
        f"{project.relative(source)} has no TABLE", next_step=f"git checkout {project.relative(source)}"
    )


def _read(folder: Path) -> RunStatement:
    path = folder / NAME
    try:
        document = strictjson.load_object(reading.content(path, str(path)))
        if document.pop("_type", None) != certificate.STATEMENT:
            raise ValueError("it is no in-toto statement")
        return RunStatement.model_validate(document)
    except FileNotFoundError as error:
        raise errors.BadInputError(
            f"{folder} has no {NAME}",
            cause="the run has not ended, or it ran with --no-monitor",
            next_step=f"wait until it has ended, or start it again without --no-monitor: see {folder}/run.json",
        ) from error
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise _damaged(path, f"{where}: {error.errors()[0]['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error).splitlines()[0]) from error


def _damaged(path: Path, reason: str) -> errors.BadInputError:
    return errors.BadInputError(
        f"{path} is no run certificate: {reason}",
        cause="the file was edited or cut short",
        next_step=f"docker compose run --rm shell python -m runtime.monitor.certificate {path.parent} writes it again",
    )


def _files(folder: Path, statement: RunStatement) -> Iterator[str]:
    names = [entry.name for entry in statement.subject]
    if len(set(names)) != len(names):
        yield "it names a file twice"
    for entry in statement.subject:
        path = folder / entry.name
        if PurePosixPath(entry.name).is_absolute() or ".." in PurePosixPath(entry.name).parts:
            yield f"it names a file outside the run: {entry.name}"
        elif entry.digest is None:
            yield f"it gives no digest of {entry.name}"
        elif path.is_symlink() or not path.is_file():
            yield f"{entry.name} is not there"
        elif sha256_file(path) != f"sha256:{entry.digest.sha256}":
            yield f"{entry.name} is not the file that the run wrote\nusual cause: the run was resumed, or it was edited"
    present = [name for name in RECORDS if (folder / name).is_file()]
    present += sorted(path.name for path in folder.glob(ROWS))
    for name in present:
        if name not in names:
            yield f"it says nothing about {name}"
    if "monitor.jsonl" not in present:
        yield "monitor.jsonl is not there: the numbers of the steps"


def _bounds(predicate: Predicate, table: Table) -> Iterator[str]:
    monitor = predicate.resource("monitor")
    if monitor is None or monitor.sha256 != table.digest:
        yield "it was judged by other bounds than this project's\nnext: verify it with the Vetted of its image"


def _numbers(folder: Path, predicate: Predicate, table: Sequence[Row]) -> Iterator[str]:
    """What the rows say otherwise than the certificate."""
    rows = [row for path in sorted(folder.glob(ROWS)) for row in _rows(path)]
    claimed = {check.name: check for check in predicate.checks}
    outcomes: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
    for entry in table:
        name, values = entry.name, [_number(row.get(entry.column)) for row in rows]
        read = [value for value in values if value is not None]
        check = claimed.pop(name, None)
        if not read:
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
    lists = (predicate.passedTests, predicate.warnedTests, predicate.failedTests)
    for outcome, names in zip(OUTCOMES, lists, strict=True):
        if sorted(names) != sorted(outcomes[outcome]):
            yield f"its list of {outcome} checks is not what the steps say"
    result = "FAILED" if outcomes["alarm"] or predicate.monitorFailure else "WARNED" if outcomes["advice"] else "PASSED"
    if predicate.result != result:
        yield f"it says {predicate.result}, and the steps say {result}"
    if predicate.steps.get("judged") != len({row["step"] for row in rows}):
        yield "it counts other steps than were recorded"


def _level(entry: Row, rows: Sequence[Mapping[str, Any]]) -> str:
    """The level of a check that was broken: advice if it recovers, and had recovered on every rank at the end."""
    values = ((_rank(row), _number(row.get(entry.column))) for row in rows)
    last = {rank: value for rank, value in values if value is not None}
    return "advice" if entry.recovers and not any(map(entry.broken_by, last.values())) else entry.level


def _extreme(check: Check, entry: Row, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Whether the bound is the table's, and the worst number and the first breach those of the rows."""
    values = [(row["step"], value) for row in rows if (value := _number(row.get(entry.column))) is not None]
    worst = math.nan if any(math.isnan(value) for _, value in values) else max(value for _, value in values)
    broken = [step for step, value in values if entry.broken_by(value)]
    shown = worst if math.isfinite(worst) else str(worst)
    true = check.model_copy(update={"at_most": entry.at_most, "worst": shown, "first": min(broken, default=None)})
    if _worst(check) != _worst(true):
        yield f"{entry.name}: it says {_worst(check)}, and the steps say {_worst(true)}"


def _rank(row: Mapping[str, Any]) -> int:
    value = row.get("rank")
    return value if isinstance(value, int) else 0


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in reading.text(path, str(path), most=LONGEST).splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield row


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _worst(check: Check) -> str:
    worst = f"{check.worst:.3g}" if isinstance(check.worst, int | float) else str(check.worst)
    since = f", from step {check.first}" if check.first is not None else ""
    return f"worst {worst}, bound {check.at_most:g}{since}"


def _image(project: Project, folder: Path, predicate: Predicate) -> Iterator[str]:
    """What is known of the image: the certificates that lie beside the run, judged by today's terms."""
    if predicate.image is None:
        yield "it ran in no image whose digest is known: what was installed is only listed"
        return
    name, digest = predicate.image
    beside = sorted((folder / "certificates").glob("*.json"))
    for statement in map(certificate.read, beside):
        yield from _certificate(project, statement, digest)
    if not beside:
        yield f"no certificate of its image lies beside it\nnext: vetted verify {name}@{digest} --key cosign.pub"


def _certificate(project: Project, statement: Statement, digest: str) -> Iterator[str]:
    lock = statement.resource("lock").digest
    for name in stack.names(project):
        locked = lockfile.load(project, name)
        if lock and locked.digest == f"sha256:{lock.sha256}":
            doubts = judgement.doubts(statement, judgement.terms(project, locked), digest)
            standing = f"does not hold: {doubts[0].splitlines()[0]}" if doubts else "holds"
            yield f"the certificate of its image, {name} on {statement.hardware}, {standing}"
            return
    yield "the certificate of its image is of a lock that this project has not"
