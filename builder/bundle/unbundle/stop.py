"""How a run speaks: lines on stderr, and an error that says what happened, the usual cause and what to do next."""

from __future__ import annotations

import sys

# Exit codes.
NO, USAGE, NOT_YET, UNFIT, STORAGE, INTERRUPTED = 1, 2, 3, 4, 6, 130


class StopError(Exception):
    """Ends the run with an exit code."""

    def __init__(self, code: int, what: str, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.code = code
        lines = [what, cause and f"usual cause: {cause}", next_step and f"next: {next_step}"]
        self.text = "\n".join(line for line in lines if line)


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def readable_size(count: float) -> str:
    """As builder/base/quantities.py says it, which does not travel with this file."""
    return f"{count / 1e6:.0f} MB" if count > 5e5 else f"{count / 1e3:.1f} kB"
