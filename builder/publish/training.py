"""Judge the folder of a training run by its run certificate: every doubt is a sentence.

The certificate is not signed, so it is no proof of who trained what. What can be checked is checked: that it is about
exactly these files, that it says what the run's own records say, and that the recorded numbers of every step lead, by
this project's bounds, to what it says.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from builder.base import errors, reading, strictjson, text
from builder.base.project import Project, sha256, sha256_file
from builder.base.text import word
from builder.certify import certificate
from builder.publish import runimage, runnumbers, runrecords
from builder.publish.runstatement import Predicate, Row, RunStatement, Table

NAME = "run-certificate.json"
CONTAINER = "/runs/"  # what a container calls the folder runs/ of the project
# How the path of a run begins. No name of an image begins so: its first part is a host.
PATHS = ("runs/", "/", "./", "../")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
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


def is_path(name: str) -> bool:
    """Is that the path of a folder? What lies in a folder never decides it: anyone can make a folder of any name."""
    return name.startswith(PATHS) or name in (".", "..")


def found(project: Project, name: str) -> Path | None:
    """The folder of a training run, if that is what the path `name` leads to, here or in a container."""
    paths = [Path(name), project.root / name.lstrip("/")] if name.startswith(CONTAINER) else [Path(name)]
    return next((path for path in paths if is_run(path)), None)


def is_run(path: Path) -> bool:
    """Does a training run lie there?"""
    return path.is_dir() and any((path / name).is_file() for name in (NAME, runrecords.RUN, "monitor.jsonl"))


def judge(project: Project, folder: Path) -> RunVerdict:
    """Judge a run. Raises BadInputError when it has no certificate that can be read."""
    statement = _read(folder)
    predicate = statement.predicate
    table = checks(project)
    contents: dict[str, bytes] = {}
    doubts = [*_files(folder, statement, contents), *_bounds(predicate, table)]
    if not doubts:
        records = {name: contents[name] for name in (runrecords.RUN, runrecords.SUMMARY) if name in contents}
        doubts += runrecords.doubts(records, predicate, table)
        doubts += runnumbers.doubts(contents, predicate, table.rows)
    if predicate.monitorFailure:
        doubts.append(f"the monitor failed during the run and saw only a part of it: {predicate.monitorFailure}")
    sentences = {row.name: f"{row.name}: {row.asks}" for row in table.rows}
    shown = {
        check.name: f"{sentences.get(check.name, check.name)} {runnumbers.worst(check)}" for check in predicate.checks
    }
    return RunVerdict(
        str(folder), statement, tuple(doubts),
        alarms=tuple(shown.get(name, name) for name in predicate.failedTests),
        advice=tuple(shown.get(name, name) for name in predicate.warnedTests),
        notes=tuple(runimage.notes(project, folder, predicate)),
    )  # fmt: skip


def checks(project: Project) -> Table:
    """The monitor's table of checks and its blind spots, read from its source and not run."""
    table = _literal(project, "table.py", "TABLE")
    digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()
    blind = _literal(project, "certificate.py", "BLIND")
    return Table(
        TypeAdapter(list[Row]).validate_python(table), digest, TypeAdapter(tuple[str, ...]).validate_python(blind)
    )


def _literal(project: Project, module: str, name: str) -> Any:
    source = project.runtime / "monitor" / module
    for node in ast.parse(reading.text(source, project.relative(source))).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    where = project.relative(source)
    raise errors.BadInputError(f"{where} has no {name}", next_step=f"git checkout {word(where)}")


def _read(folder: Path) -> RunStatement:
    path = folder / NAME
    try:
        document = strictjson.load_object(reading.content(path, str(path)))
        _refuse_lines(document)
        if document.pop("_type", None) != certificate.STATEMENT:
            raise ValueError("it is no in-toto statement")
        return RunStatement.model_validate(document)
    except FileNotFoundError as error:
        record = folder / runrecords.RUN
        raise errors.BadInputError(
            f"{folder} has no {NAME}",
            cause="the run has not ended, or it ran with --no-monitor",
            next_step=f"wait until it has ended, or start it again without --no-monitor: see {word(record)}",
        ) from error
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise _damaged(path, f"{where}: {error.errors()[0]['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error).splitlines()[0]) from error


def _refuse_lines(document: object) -> None:
    """Raises ValueError for a text, or a name, that ends its line or commands a terminal: a person reads them."""
    if isinstance(document, str) and (len(document.splitlines()) > 1 or CONTROL.search(document)):
        raise ValueError(f"a text in it has a line break or a control character: {document[:40]!a}")
    if isinstance(document, dict):
        _refuse_lines([*document, *document.values()])
    elif isinstance(document, list):
        for each in document:
            _refuse_lines(each)


def _damaged(path: Path, reason: str) -> errors.BadInputError:
    return errors.BadInputError(
        f"{path} is no run certificate: {text.line(reason, 300)}",
        cause="the file was edited or cut short",
        next_step=f"to write it again: {_again(path.parent)}",
    )


def _again(folder: Path) -> str:
    """The command that writes the certificate of a run again, in its image or beside one's own script."""
    if (folder / runrecords.RUN).is_file():
        return f"docker compose run --rm shell python -m runtime.monitor.certificate {word(folder)}"
    return f"PYTHONPATH=vetted_monitor.zip python -m vetted_monitor.certificate {word(folder)}"


def _files(folder: Path, statement: RunStatement, contents: dict[str, bytes]) -> Iterator[str]:
    """Doubts about the files of the run. Adds to `contents` the records, as they were when they were compared: they are
    not read again."""
    named = [entry.name for entry in statement.subject]
    if len(set(named)) != len(named):
        yield "it names a file twice"
    for entry in statement.subject:
        path, shown = folder / entry.name, text.line(entry.name)
        if PurePosixPath(entry.name).is_absolute() or ".." in PurePosixPath(entry.name).parts:
            yield f"it names a file outside the run: {shown}"
        elif entry.digest is None:
            yield f"it gives no digest of {shown}"
        elif path.is_symlink() or not path.is_file():
            yield f"{shown} is not there"
        elif _digest(path, entry.name, contents) != f"sha256:{entry.digest.sha256}":
            yield f"{shown} is not the file that the run wrote\nusual cause: the run was resumed, or it was edited"
    for name in runrecords.names(folder):
        if name not in named:
            again = _again(folder)
            yield f"it says nothing about {text.line(name)}\nusual cause: it was saved after training\nnext: {again}"
    if not (folder / "monitor.jsonl").is_file():
        yield "monitor.jsonl is not there: the numbers of the steps"


def _digest(path: Path, name: str, contents: dict[str, bytes]) -> str:
    if name not in (runrecords.RUN, runrecords.SUMMARY) and not fnmatch(name, runrecords.ROWS):
        return sha256_file(path)
    contents[name] = reading.content(path, str(path), most=LONGEST)
    return sha256(contents[name])


def _bounds(predicate: Predicate, table: Table) -> Iterator[str]:
    monitor = predicate.resource("monitor")
    if monitor is None or monitor.sha256 != table.digest:
        yield "it was judged by other bounds than this project's\nnext: verify it with the Vetted of its image"
