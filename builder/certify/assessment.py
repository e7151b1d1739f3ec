"""The certificate files of stacks, judged: each once, and again when anything has changed that decides.

To judge a certificate takes milliseconds, to hash it a tenth of one. So assessments are kept in .vetted/assessments/,
with a seal: a row counts only for a file of the same bytes, and only under the same terms, which are the lock, the
inputs, the suite, the advisories and this tool's own code. A file is hashed again when its inode, its size or one of
its times has changed. A program can set the time of modification, but not the time of the last change (ctime); where
the file system has no such time, every file is hashed. No answer about a day is kept: whether a certificate has expired
is asked anew (dates.py).
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pydantic
from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from builder.base import reading, seal
from builder.base.project import Project, remove, sha256, write
from builder.certify import certificate, dates, description, judgement, refusal
from builder.certify.certificate import Statement
from builder.certify.judgement import Terms
from builder.intent.advisory import Advisory
from builder.lock.lockfile import Lock

SETTLED = 2_000_000_000  # nanoseconds; a younger file may change again in the same tick of the file system's clock
DAY = 86_400_000_000_000  # nanoseconds; the clock of a file server may differ by less
MOST = 8000  # characters of the doubts of a row that is kept; a stranger's file may have any number of doubts
CODE = Path(__file__).parents[1]  # all of this tool: a row is of the code that judged
Say = Callable[[str], None]


class Assessment(BaseModel):
    """What a certificate's file says, and what speaks against it on any day. `name`: of the file, without .json.

    `differs`: it is a report of a run that was not of the lock. `inputs`: those that it was judged by; none for a
    run on a host.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: str
    subject: str
    hardware: str
    about: str  # an image, or a lock alone
    gpus: bool
    passed: int
    result: str
    differs: bool
    inputs: str
    issued: datetime.date | None
    expires: datetime.date | None
    lasting: tuple[str, ...]
    earlier: bool  # of today's lock, and of a suite or inputs that are not today's

    def doubts(self, day: datetime.date) -> list[str]:
        """What speaks against it on a day; nothing if it is valid."""
        return [*self.lasting, *dates.doubts(self.issued, self.expires, day)]

    def standing(self, day: datetime.date) -> list[str]:
        """What speaks against it, except that it has expired."""
        return self.doubts(min(self.expires or day, day))


class _Kept(BaseModel):
    """The file of a stack: its rows, by the hash of what was judged, under the terms with this digest.

    `files`: by the name of a file, its state when it was hashed (_state), and the hash.
    """

    model_config = ConfigDict(extra="forbid")

    terms: str
    rows: dict[str, Assessment]
    files: dict[str, tuple[str, str]]


class Assessments:
    """Judges the certificates of several stacks on one day. The suite and the advisories are read once."""

    def __init__(self, project: Project, say: Say = lambda _: None) -> None:
        self._project = project
        self._say = say
        self._first: Terms | None = None
        self._advisories = ""

    def terms(self, lock: Lock) -> Terms:
        """Today's terms for the certificates of a lock."""
        if self._first is None:
            self._first = judgement.terms(self._project, lock)
            self._advisories = _digest(self._first.advisories)
        first = self._first
        return Terms(self._project, lock, first.suite, first.probes, first.advisories, first.day)

    def of(self, lock: Lock) -> list[Assessment]:
        """Every certificate of a stack, in the order of their names. Raises BadInputError for a file that is none."""
        answer = []
        for path, assessment in self.files(lock):
            if isinstance(assessment, ValueError | RecursionError):
                raise refusal.unreadable(path, assessment) from assessment
            if isinstance(assessment, Exception):
                raise assessment
            if assessment.differs:
                raise refusal.misplaced(self._project.relative(path))
            answer.append(assessment)
        return answer

    def readable(self, lock: Lock) -> tuple[list[Assessment], list[Path]]:
        """Every certificate of a stack, and the files beside them that are none."""
        certificates, others = [], []
        for path, assessment in self.files(lock):
            if isinstance(assessment, Exception) or assessment.differs:
                others.append(path)
            else:
                certificates.append(assessment)
        return certificates, others

    def files(self, lock: Lock) -> Iterator[tuple[Path, Assessment | Exception]]:
        """Every file among the certificates of a stack: judged, or why it cannot be."""
        paths = []
        for path in certificate.files(self._project, lock.name):
            if certificate.NAME.fullmatch(path.stem):
                paths.append(path)
            else:
                yield path, refusal.misnamed(path)
        if not paths:
            return
        terms = self.terms(lock)
        decisive = [_code(), lock.name, lock.image, lock.digest, terms.suite, self._advisories]
        key = sha256(json.dumps(decisive).encode())
        known, kept = self._known(lock.name, key), _Kept(terms=key, rows={}, files={})
        states = {path: _state(path) for path in paths}
        unchanged = {path: _unchanged(known, path, state) for path, state in states.items()}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            hashes = pool.map(_hash, [path for path, digest in unchanged.items() if digest is None])
            for number, (path, state) in enumerate(states.items(), start=1):
                digest = next(hashes) if unchanged[path] is None else unchanged[path]
                row: Assessment | Exception | None = known.rows.get(digest) if digest else None
                # The inputs last: to compute today's takes longer than all the rest.
                if not isinstance(row, Assessment) or row.inputs not in ("", terms.inputs):
                    self._say(f"{lock.name}: judging {number} of {len(paths)}")
                    row = _judged(path, terms)
                if isinstance(row, Assessment):
                    row = row if row.name == path.stem else row.model_copy(update={"name": path.stem})
                    if _small(row):
                        kept.rows[row.sha256] = row
                        if state and digest == row.sha256:
                            kept.files[path.name] = (state, digest)
                yield path, row
        if kept != known:
            self._keep(lock.name, kept)

    def _path(self, stack: str) -> Path:
        return self._project.state / "assessments" / f"{stack}.json"

    def _known(self, stack: str, key: str) -> _Kept:
        """What was kept of a stack under these terms, by this user of this machine."""
        path, nothing = self._path(stack), _Kept(terms=key, rows={}, files={})
        try:
            content = path.read_bytes()
            if seal.intact(path.with_suffix(".seal"), f"assessments of {stack}", sha256(content)):
                kept = _Kept.model_validate_json(content)
                return kept if kept.terms == key else nothing
        except (OSError, ValidationError):
            pass
        return nothing

    def _keep(self, stack: str, kept: _Kept) -> None:
        path = self._path(stack)
        lock, scratch = self._project.state / "locks" / ".assessments.lock", path.parent / ".unfinished"
        # A clone that may only be read, a full disk, another process that keeps its own: judged again next time.
        with suppress(OSError, Timeout):
            for folder in (lock.parent, path.parent):
                folder.mkdir(parents=True, exist_ok=True)
            with FileLock(lock).acquire(timeout=0):
                remove(scratch)  # of a process that was killed
                scratch.mkdir()
                try:
                    device = _device(scratch)
                    kept.files = {name: file for name, file in kept.files.items() if file[0].split()[0] == device}
                    content = kept.model_dump_json().encode()
                    write(path, content, scratch)
                    seal.put(path.with_suffix(".seal"), f"assessments of {stack}", sha256(content), scratch)
                finally:
                    remove(scratch)


def judge(name: str, content: bytes, terms: Terms) -> Assessment:
    """A certificate of these bytes, judged. Raises ValueError or RecursionError when they are none."""
    return summary(name, content, certificate.parse(content), terms)


def summary(name: str, content: bytes, statement: Statement, terms: Terms) -> Assessment:
    """What a statement says, and what speaks against it. `content`: the bytes that it was read from."""
    predicate, on_host = statement.predicate, description.engine(statement) == "host"
    subject = statement.subject[0].digest if statement.subject else None
    return Assessment(
        name=name, sha256=hashlib.sha256(content).hexdigest(), subject=f"sha256:{subject.sha256}" if subject else "",
        hardware=statement.hardware, about="image" if statement.resource(certificate.INPUTS).digest else "lock",
        gpus=bool((statement.resource("hardware").annotations or {}).get("gpus")),
        passed=len(predicate.passedTests), result=predicate.result,
        differs=bool(statement.resource(certificate.DIFFERENCES).annotations), inputs="" if on_host else terms.inputs,
        issued=predicate.issued, expires=predicate.expires, lasting=tuple(judgement.lasting(statement, terms)),
        earlier=judgement.is_earlier(statement, terms),
    )  # fmt: skip


def _judged(path: Path, terms: Terms) -> Assessment | Exception:
    # Read again: the bytes that are judged are those whose hash is kept, even if the file has changed since.
    try:
        return judge(path.stem, reading.content(path, str(path)), terms)
    except (Exception, RecursionError) as error:
        return error


def _state(path: Path) -> str:
    """What changes with every change of a file; empty where that cannot be told, as just after a change."""
    try:
        status = path.stat()
    except OSError:
        return ""
    settled = time.time_ns() - max(status.st_ctime_ns, status.st_mtime_ns) > SETTLED
    if not settled or not stat.S_ISREG(status.st_mode):
        return ""
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _device(folder: Path) -> str:
    """The device of a folder; empty where a program can set the time of a file's last change, as on FAT."""
    file = folder / "clock"
    file.touch()
    os.utime(file, ns=(0, 0))
    status = file.stat()
    return str(status.st_dev) if time.time_ns() - status.st_ctime_ns < DAY else ""


def _unchanged(known: _Kept, path: Path, state: str) -> str | None:
    """The hash of a file that has not changed since it was hashed; None otherwise."""
    before, digest = known.files.get(path.name, ("", None))
    return digest if state and before == state else None


def _hash(path: Path) -> str | None:
    """The hash of a file; None where it cannot be read, which is reported when it is to be judged."""
    with suppress(Exception):
        return hashlib.sha256(reading.content(path, str(path))).hexdigest()
    return None


def _small(row: Assessment) -> bool:
    return sum(map(len, (row.hardware, *row.lasting))) <= MOST


def _digest(advisories: Sequence[Advisory]) -> str:
    return sha256(json.dumps([advisory.model_dump_json() for advisory in advisories]).encode())


@functools.cache
def _code() -> str:
    """The digest of what judges: this tool, the library that reads certificates, and Python."""
    identity = hashlib.sha256(f"{sys.version} {pydantic.VERSION}".encode())
    files = sorted(CODE.rglob("*.py"))
    for path in files:
        identity.update(path.read_bytes())
    if not files:  # run from an archive: what judged then cannot be told from what judges now
        identity.update(secrets.token_bytes(seal.SIZE))
    return identity.hexdigest()
