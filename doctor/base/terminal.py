"""Text from elsewhere, made fit for a terminal: it moves no cursor, sets no clipboard and hides nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TextIO


class Progress:
    """One line that is written again and again on a terminal; elsewhere its first text alone is a line of its own."""

    def __init__(self, to: TextIO) -> None:
        self._to, self._shown = to, ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._to.isatty():
            self._to.write(f"\r{' ' * len(self._shown)}\r")

    def show(self, content: str) -> None:
        """Show a text in place of the last one."""
        if self._to.isatty():
            self._to.write(f"\r{line(content).ljust(len(self._shown))}")
        elif not self._shown:
            self._to.write(f"{line(content)}\n")
        self._shown = line(content)
        self._to.flush()


def line(text: str) -> str:
    """One line. Every character that is not printable becomes a space: line ends, control characters and bidi marks.

    Blanks at the beginning stay: they are the report's own.
    """
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def lines(texts: Iterable[str]) -> str:
    """A text of these lines; none of them can begin another."""
    return "\n".join(map(line, texts))


def text(untrusted: str) -> str:
    """A text whose line ends stay: for text that is not checked line by line."""
    return lines(untrusted.split("\n"))


def write(content: str, to: TextIO | None = None) -> None:
    """Print a text of any letters on a terminal of any encoding."""
    out = sys.stdout if to is None else to
    encoding = out.encoding or "utf-8"
    out.write(text(content).encode(encoding, "replace").decode(encoding))


def as_json(value: object) -> str:
    """JSON that every program reads: a half of a surrogate pair, which a file's name may have, becomes U+FFFD."""
    return json.dumps(_whole(value), indent=2)


def _whole(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole(key): _whole(each) for key, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, (list, tuple)) else value
