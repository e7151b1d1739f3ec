"""Every way a command can end badly, each with its own exit code.

0 yes · 1 the answer is no · 2 usage · 3 bad input file · 4 missing tool or engine · 5 network or registry ·
6 disk or permission. A message says what happened, the usual cause, and the next command to type.
"""

from __future__ import annotations

import errno
import re
from typing import ClassVar


class VettedError(Exception):
    """The answer is no: a tool that did run refused."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [self.what]
        if self.cause:
            lines.append(f"usual cause: {self.cause}")
        if self.next_step:
            lines.append(f"next: {self.next_step}")
        return "\n".join(lines)


class BadInputError(VettedError):
    """A file that a person wrote, or a lock, cannot be used as it is."""

    exit_code = 3


class MissingToolError(VettedError):
    """A program or the Docker engine is not there."""

    exit_code = 4


class NetworkError(VettedError):
    """An index, mirror or registry could not be reached, or served other bytes than the locked ones."""

    exit_code = 5


class StorageError(VettedError):
    """The disk is full, or a file may not be written."""

    exit_code = 6


HASH_MISMATCH = re.compile(
    r"Hash mismatch for `(?P<package>[^`]+)`\s+Expected:\s+(?P<expected>\S+)\s+Computed:\s+(?P<got>\S+)"
)
# Of Docker's clients and of BuildKit's, when the daemon is not there, or goes away while they talk to it.
NO_DAEMON = re.compile(
    r"Cannot connect to the Docker daemon|Is the docker daemon running|error during connect: |Docker daemon socket"
    r"|error waiting for container: unexpected EOF|Unavailable: (error reading from server|closing transport)"
)
NO_HOME = re.compile(r"\$HOME is not defined|(mkdir \.docker|directory `\.uv_cache`): permission denied", re.IGNORECASE)
# What apt and dpkg-deb say of a package that is there.
CORRUPT = re.compile(
    r"dpkg-deb.*(unexpected end of file|not a Debian format archive|decompressing archive)"
    r"|fetch (copy|file):.*?(Hash Sum mismatch|unexpected size)",
    re.DOTALL,
)
MISREAD = re.compile(r"Failed to fetch (copy|file):")  # apt splits its sources at spaces
REPLACED = re.compile(r"Failed to fetch https?:.*?(Hash Sum mismatch|unexpected size)", re.DOTALL)
NO_SPACE = re.compile(r"No space left on device|ENOSPC|disk quota exceeded", re.IGNORECASE)
UNREACHABLE = re.compile(
    r"Failed to fetch|error sending request|Temporary failure|Could not resolve|Could not connect|dns error"
    r"|Unable to connect|Connection refused|connection timed out|Request failed after|Network is unreachable"
    r"|failed to lookup address|Unable to fetch",
    re.IGNORECASE,
)
DENIED = re.compile(r"Permission denied|Read-only file system|Operation not permitted", re.IGNORECASE)


def from_tool(what: str, output: str, *, next_step: str = "") -> VettedError:
    """The error that fits what a tool printed before it failed."""
    if mismatch := HASH_MISMATCH.search(output):
        return NetworkError(
            f"{mismatch['package']}: the file that was served is not the locked one\n"
            f"expected {mismatch['expected']}\ngot      {mismatch['got']}",
            cause="the lock was edited, or the index serves other bytes than on the day of the lock",
            next_step="git diff lockfiles/, then `vetted lock --check`",
        )
    if NO_SPACE.search(output):
        return disk_full(what)
    tail = "\n".join(line for line in output.strip().splitlines()[-12:])
    if found := _of_this_machine(what, output, tail):
        return found
    if UNREACHABLE.search(output):
        return NetworkError(
            f"{what}: the network did not answer\n{tail}",
            cause="no route to the package index or mirror, or a proxy or CA bundle that is not set",
            next_step="set HTTPS_PROXY, SSL_CERT_FILE or UV_DEFAULT_INDEX for your network, then run this again",
        )
    if DENIED.search(output):
        return StorageError(f"{what}: not permitted\n{tail}", cause="a file or folder that belongs to another user")
    return VettedError(f"{what} failed\n{tail}", next_step=next_step)


def _of_this_machine(what: str, output: str, tail: str) -> VettedError | None:
    """The error of a tool that lacks something here, in words that may sound like the network's."""
    if NO_DAEMON.search(output):
        denied = DENIED.search(output)
        said = "does not let this user in" if denied else "is not there, or went away"
        return MissingToolError(
            f"{what}: the Docker engine {said}\n{tail}",
            cause="this user is not in the group docker" if denied else "the engine was stopped, restarted or killed",
            next_step="docker info; when that answers, run this again",
        )
    if NO_HOME.search(output):
        return StorageError(
            f"{what}: there is no home folder\n{tail}",
            cause="HOME is not set, as in a service or a container of another user",
            next_step="export HOME=/some/folder that this user may write to, then run this again",
        )
    if CORRUPT.search(output):
        return StorageError(
            f"{what}: a Debian package is damaged\n{tail}",
            cause="a file below .vetted/debs was cut short or changed",
            next_step="rm -r .vetted/debs, then run this again",
        )
    if MISREAD.search(output):
        return StorageError(
            f"{what}: apt cannot read the packages that lie here\n{tail}",
            cause="a space or another special character in the path of this project",
            next_step="move the project, or set VETTED_STATE to a folder with a plain path",
        )
    if REPLACED.search(output):
        return NetworkError(
            f"{what}: the Debian mirror serves other bytes than its index says\n{tail}",
            cause="the mirror is being updated, or a proxy changes what it passes on",
            next_step="run this again in some minutes, or set VETTED_DEBIAN_MIRROR to another mirror",
        )
    return None


def disk_full(what: str) -> StorageError:
    return StorageError(
        f"{what}: no space left on the disk; what was there before is untouched",
        cause="a stack needs about 3 GB in .vetted/ and as much for Docker",
        next_step="df -h .vetted; free some space or set VETTED_STATE to a larger disk",
    )


UNREACHED = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL)


def from_os(error: OSError) -> VettedError:
    """What an operating system error means for the person at the terminal."""
    where = str(error.filename or "a file")
    if isinstance(error, ConnectionError | TimeoutError) or error.errno in UNREACHED:
        return NetworkError(
            f"the network did not answer: {error.strerror or error}",
            cause="no route to the host, or nobody listens there",
            next_step="set HTTPS_PROXY for your network, then run this again",
        )
    if error.errno == errno.ENOENT:
        return StorageError(
            f"{where} does not exist" if error.filename else "a file or the current folder does not exist any more",
            cause="it was moved or deleted meanwhile",
            next_step="git status" if error.filename else "cd to your clone of Vetted",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(where)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(
            f"{where}: {error.strerror}",
            cause="the file belongs to another user, or the disk is mounted read-only",
            next_step=f"ls -ld {where}",
        )
    return StorageError(f"{where}: {error.strerror or error}")
