"""What came from elsewhere, fit for a terminal: it moves no cursor, sets no clipboard, and hides nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO


def line(said: str) -> str:
    """One line. What is not printable, a line's end among it, becomes a space: so do control characters and bidi marks.

    Blanks at the beginning stay: they are the report's own.
    """
    return said if said.isprintable() else "".join(one if one.isprintable() else " " for one in said)


def lines(said: Iterable[str]) -> str:
    """A text of these lines; none of them can begin another."""
    return "\n".join(map(line, said))


def text(said: str) -> str:
    """A text whose lines are not told apart any more."""
    return lines(said.split("\n"))


def write(said: str, to: TextIO | None = None) -> None:
    """Print a text of any letters on a terminal of any encoding."""
    out = sys.stdout if to is None else to
    encoding = out.encoding or "utf-8"
    out.write(text(said).encode(encoding, "replace").decode(encoding))
