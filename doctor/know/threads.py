"""Errors that public threads are about (threads.jsonl): their words, the releases that give them, and what fixed it.

Facts and links alone, each from the threads that it names. What was run or read here is an advisory instead.
"""

from __future__ import annotations

import json
import pkgutil
from functools import cache
from typing import Any, NamedTuple


class Thread(NamedTuple):
    """A line of the file."""

    package: str  # the one at fault
    words: list[str]  # literal pieces of the error text, which has all of them; none where nothing is raised
    affected: dict[str, str]  # ranges by package that give the fault together; "*" where no end is known
    fix: list[dict[str, str]]  # ranges by package that fix it, the best first
    cause: str
    severity: str  # one of finding.SEVERITIES
    note: str  # the hardware or the setting that it takes; "" where it takes none
    urls: list[str]
    sample: str  # a line of such an error, or what goes wrong without one
    confirmed: bool  # somebody tried the fix, or a change that names the error is in that release
    date: str = ""  # when it was written down

    def shows_in(self, text: str) -> bool:
        """Does a text have all its words?"""
        return bool(self.words) and all(word in text for word in self.words)


@cache
def load() -> tuple[Thread, ...]:
    """All threads, in the order of the file."""
    content = pkgutil.get_data("doctor.know", "threads.jsonl")
    assert content is not None
    lines: list[dict[str, Any]] = [json.loads(line) for line in content.splitlines()]
    return tuple(Thread(**line) for line in lines)
