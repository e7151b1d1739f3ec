"""Where nobody watches: every half minute a line of what is under way, so that a log shows that something is."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Self

from builder.base import text
from builder.console import terminal

SECONDS = 30
WIDTH = 200  # characters of a line
Ended = threading.Event


class Reminder:
    """Says on stderr what is under way, for as long as its block lasts. On a terminal it says nothing."""

    def __init__(self, what: Callable[[], str]) -> None:
        self._what = what
        self._ended = Ended()
        # A daemon: no work goes on only because somebody talks about it.
        self._thread = threading.Thread(target=self._remind, name="reminder", daemon=True)

    def __enter__(self) -> Self:
        if not terminal.err.is_terminal:
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _remind(self) -> None:
        for number in itertools.count(1):
            if self._ended.wait(SECONDS):
                return
            terminal.note(text.line(f"{self._what()}: for {_span(number * SECONDS)}", WIDTH))


def _span(seconds: int) -> str:
    """A time as people say it."""
    hours, minutes = divmod(seconds // 60, 60)
    parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else "", f"{seconds % 60} s"]
    return " ".join(part for part in parts if part and not (part == "0 s" and seconds >= 60))
