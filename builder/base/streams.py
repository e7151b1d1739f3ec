"""The standard streams, so that none of them ends a command with a traceback, whatever it is connected to.

An answer that cannot be written is an error: of the disk, or 141 as for every program whose reader has gone. What is
said on stderr is lost without one: no work is worth less because nobody could follow it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from builder.base import errors

NAMES = ("stdin", "stdout", "stderr")


def prepare() -> None:
    """Replace the standard streams of this process; one that is closed becomes the null device."""
    for number, name in enumerate(NAMES):
        if getattr(sys, name) is None:
            _discard(number)  # else the next file that is opened gets this number, and is written to
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    sys.stdout, sys.stderr = _like(sys.stdout, Answer), _like(sys.stderr, Notes)


def abandon() -> None:
    """Write no more to stdout, not even what is still in its buffer."""
    _discard(1)


def _discard(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)


class Answer(io.TextIOWrapper):
    """stdout. Raises OutputError, and ReaderGoneError for a pipe that nobody reads any longer."""

    def write(self, text: str) -> int:
        with _failing():
            return super().write(text)

    def flush(self) -> None:
        with _failing():
            super().flush()


class Notes(io.TextIOWrapper):
    """stderr. What cannot be written is lost."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            _discard(2)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            _discard(2)


@contextmanager
def _failing() -> Iterator[None]:
    # Not as an OSError: Typer and Rich end the process for a broken pipe, each in its own way.
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise errors.ReaderGoneError("nobody reads the answer any longer") from error
        raise errors.OutputError(
            f"the answer could not be written to stdout: {error.strerror}",
            cause="the disk that stdout goes to is full",
            next_step="df -h; free some space, then run this again",
        ) from error


def _like(stream: object, kind: type[io.TextIOWrapper]) -> io.TextIOWrapper:
    """The stream as another class. A terminal may have no letter for ≤ or for a name."""
    assert isinstance(stream, io.TextIOWrapper)
    encoding, lines, through = stream.encoding, stream.line_buffering, stream.write_through
    return kind(stream.detach(), encoding, "backslashreplace", line_buffering=lines, write_through=through)
