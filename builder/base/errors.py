"""Every way that a command can fail, each with its own exit code.

0 yes · 1 the answer is no · 2 usage · 3 bad input file · 4 missing tool or engine · 5 network or registry ·
6 disk or permission · 130 interrupted · 141 nobody reads the answer any longer. A message says what happened, the usual
cause, and the next command to type.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import ClassVar

from builder.base.text import word

ADVICE = re.compile(r"\s*(next|usual cause):", re.IGNORECASE)


class VettedError(Exception):
    """The answer is no, or a tool failed."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.next_step = next_step

    def __str__(self) -> str:
        # What a tool or a registry said is often a part of `what`: it must not look like our own advice.
        first, *rest = self.what.splitlines() or [""]
        lines = [first, *(f"| {line}" if ADVICE.match(line) else line for line in rest)]
        if self.cause:
            lines.append(f"usual cause: {' '.join(self.cause.splitlines())}")
        if self.next_step:
            lines.append(f"next: {' '.join(self.next_step.splitlines())}")
        return "\n".join(lines)


class BadInputError(VettedError):
    """A file that a person wrote, or a lock, cannot be used as it is."""

    exit_code = 3


class MissingToolError(VettedError):
    """A program is not installed, or the Docker engine does not run."""

    exit_code = 4


class NetworkError(VettedError):
    """An index, mirror or registry could not be reached, or served bytes that are not the locked ones."""

    exit_code = 5


class StorageError(VettedError):
    """The disk is full, or a file may not be written."""

    exit_code = 6


class OutputError(StorageError):
    """The answer cannot be written to stdout."""


class ReaderGoneError(OutputError):
    """Whoever read the answer wants no more of it, such as `head`."""

    exit_code = 141


HASH_MISMATCH = re.compile(
    r"Hash mismatch for `(?P<package>[^`]+)`\s+Expected:\s+(?P<expected>\S+)\s+Computed:\s+(?P<got>\S+)"
)
NO_SPACE = re.compile(r"No space left on device|ENOSPC|disk quota exceeded", re.IGNORECASE)
# Docker's clients and BuildKit print these when the daemon is not running, or ends while they talk to it.
NO_DAEMON = re.compile(
    r"Cannot connect to the Docker daemon|Is the docker daemon running|error during connect: |Docker daemon socket"
    r"|error waiting for container: unexpected EOF|Unavailable: (error reading from server|closing transport)"
)
NO_HOME = re.compile(r"\$HOME is not defined|(mkdir \.docker|directory `\.uv_cache`): permission denied", re.IGNORECASE)
DENIED = re.compile(r"Permission denied|Read-only file system|Operation not permitted", re.IGNORECASE)


@dataclass(frozen=True)
class Diagnosis:
    """What it means that a tool's output matches every pattern."""

    patterns: tuple[re.Pattern[str], ...]
    error: type[VettedError]
    problem: str
    cause: str
    next_step: str = ""


# The first that matches counts: several tools speak of the network where something is missing on this machine.
DIAGNOSES = (
    Diagnosis(
        (NO_DAEMON, DENIED), MissingToolError, "the Docker engine refuses this user",
        cause="this user is not in the group docker",
        next_step="docker info; when that answers, run this again",
    ),
    Diagnosis(
        (NO_DAEMON,), MissingToolError, "the Docker engine is not running",
        cause="the engine was stopped, restarted or killed",
        next_step="docker info; when that answers, run this again",
    ),
    Diagnosis(
        (NO_HOME,), StorageError, "HOME is not set",
        cause="a service or a container of another user has no home folder",
        next_step="export HOME=/some/folder that this user may write to, then run this again",
    ),
    Diagnosis(
        (
            re.compile(
                r"dpkg-deb.*(unexpected end of file|not a Debian format archive|decompressing archive)"
                r"|fetch (copy|file):.*?(Hash Sum mismatch|unexpected size)",
                re.DOTALL,
            ),
        ),
        StorageError, "a Debian package is damaged",
        cause="a file below .vetted/debs was cut short or changed",
        next_step="rm -r .vetted/debs, then run this again",
    ),
    Diagnosis(
        (re.compile(r"Unable to locate package"),), BadInputError, "the stack's Debian has no such package",
        cause="a misspelt name, or a package of another release",
        next_step="apt-cache search NAME, or https://packages.debian.org",
    ),
    Diagnosis(
        (re.compile(r"Failed to fetch (copy|file):"),), StorageError, "apt cannot read the downloaded packages",
        cause="a space or another special character in the path of this project: apt splits its sources at spaces",
        next_step="move the project, or set VETTED_STATE to a folder with a plain path",
    ),
    Diagnosis(
        (re.compile(r"Failed to fetch https?:.*?(Hash Sum mismatch|unexpected size)", re.DOTALL),),
        NetworkError, "the Debian mirror serves other bytes than its index lists",
        cause="the mirror is being updated, or a proxy changes what it passes on",
        next_step="run this again in some minutes, or set VETTED_DEBIAN_MIRROR to another mirror",
    ),
    Diagnosis(
        (
            re.compile(
                r"Failed to fetch|error sending request|Temporary failure|Could not resolve|Could not connect|dns error"
                r"|Unable to connect|Connection refused|connection timed out|Request failed after"
                r"|Network is unreachable|failed to lookup address|Unable to fetch",
                re.IGNORECASE,
            ),
        ),
        NetworkError, "the network did not answer",
        cause="no route to the package index or mirror, or a proxy or CA bundle that is not set",
        next_step="set HTTPS_PROXY, SSL_CERT_FILE or UV_DEFAULT_INDEX for your network, then run this again",
    ),
    Diagnosis((DENIED,), StorageError, "not permitted", cause="a file or folder belongs to another user"),
)  # fmt: skip


def from_tool(what: str, output: str, *, next_step: str = "") -> VettedError:
    """The error that fits what a tool printed before it failed. `what` is the step that it failed in."""
    if mismatch := HASH_MISMATCH.search(output):
        return NetworkError(
            f"{mismatch['package']}: the downloaded file is not the locked one\n"
            f"expected {mismatch['expected']}\ngot      {mismatch['got']}",
            cause="the lock was edited, or the index serves other bytes than when it was locked",
            next_step="git diff lockfiles/, then `vetted lock --check`",
        )
    if NO_SPACE.search(output):
        return disk_full(what)
    tail = "\n".join(output.strip().splitlines()[-12:])
    for diagnosis in DIAGNOSES:
        if all(pattern.search(output) for pattern in diagnosis.patterns):
            return diagnosis.error(
                f"{what}: {diagnosis.problem}\n{tail}", cause=diagnosis.cause, next_step=diagnosis.next_step
            )
    return VettedError(f"{what} failed\n{tail}", next_step=next_step)


def disk_full(what: str) -> StorageError:
    return StorageError(
        f"{what}: no space left on the disk; existing files are unchanged",
        cause="a stack needs about 3 GB in .vetted/ and as much for Docker",
        next_step="df -h .vetted; free some space or set VETTED_STATE to a larger disk",
    )


MISPLACED = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP)
UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL)


def from_os(error: OSError) -> VettedError:
    """The error that fits one of the operating system."""
    named = str(error.filename2 or error.filename or "")  # of a rename, what it would have made
    where, why = named or "a file", error.strerror or str(error)
    message = f"{named}: {why}" if named else why
    # Without a name there is nothing to list but where this runs, and who it is.
    look = f"ls -ld {word(named)}" if named else "id; ls -la . .vetted"
    if isinstance(error, ConnectionError | TimeoutError) or error.errno in UNREACHABLE:
        return NetworkError(
            f"the network did not answer: {why}",
            cause="no route to the host, or no server listens there",
            next_step="set HTTPS_PROXY for your network, then run this again",
        )
    if error.errno == errno.ENAMETOOLONG:
        return StorageError(
            f"{where[:60]}…: {error.strerror}",
            cause="a text stands where a path belongs",
            next_step="name another path",
        )
    if error.errno == errno.ENOENT:
        return StorageError(
            f"{error.filename} does not exist" if error.filename else "a file or the current folder no longer exists",
            cause="it was moved or deleted in the meantime",
            next_step="git status" if error.filename else "cd to your clone of Vetted",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(where)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(
            message,
            cause="the file belongs to another user, or the disk is mounted read-only",
            next_step=look,
        )
    if error.errno in MISPLACED:
        return StorageError(
            message,
            cause="a folder stands where a file belongs, or a file where a folder does, or links lead in a circle",
            next_step=f"ls -ld {word(named)}; then name another path" if named else look,
        )
    return StorageError(message)
