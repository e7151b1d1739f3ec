"""The terminal: the answer on stdout, everything else on stderr, and no text that commands it."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from builder.base import text

NEXT = re.compile(r"^ *next: .*", re.MULTILINE)
COMMAND = re.compile(r"(?<![^ ;`])vetted (?=[a-z])(?!train\b)")  # `vetted train` is a command of images


def typed(message: str) -> str:
    """The commands after `next:` as the user's shell has them: a clone's `vetted` is ./vetted, and not on PATH."""
    command = os.environ.get("VETTED_COMMAND", "")
    if Path(command).name != "vetted":  # a test session was started by ./nox
        return message
    return NEXT.sub(lambda line: COMMAND.sub(lambda _: f"{shlex.quote(command)} ", line[0]), message)


class Console(RichConsole):
    """A console on which text is text, whoever wrote it: no markup, no emoji codes, no commands to the terminal.

    Whatever is printed, in tables and progress lines too, comes as segments through `render`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(typed(each) if isinstance(each, str) else each for each in objects), **options)

    def render_str(self, string: str, **options: Any) -> Text:  # type: ignore[override]
        """Cells are measured by this: what is replaced later takes its place already."""
        return super().render_str(text.printable(string), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            # Control segments are Rich's own: they move the cursor back to a progress line.
            yield segment if segment.control else Segment(text.printable(segment.text), segment.style)


out = Console(width=None if sys.stdout.isatty() else 200)
err = Console(stderr=True)


def verbatim(content: str) -> None:
    """Text of many lines, such as a difference between two files, on stdout."""
    print(text.printable(content), end="")


def note(message: str) -> None:
    """One line for the person, apart from the answer."""
    print(text.printable(typed(message)), file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """The answer of a command for programs, in JSON that every program reads."""
    print(json.dumps(_strict(value), indent=2, allow_nan=False))


def _strict(value: Any) -> Any:
    """The value without what is JSON for Python alone: numbers that are none, and halves of surrogate pairs."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # as a suite writes them
    if isinstance(value, Mapping):
        return {_strict(key): _strict(each) for key, each in value.items()}
    return [_strict(each) for each in value] if isinstance(value, list | tuple) else value
