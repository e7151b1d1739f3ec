"""What the stack's Python runs for a test may fail on purpose: with which error."""

from __future__ import annotations

from typing import Any


def error_of(attempt: Any, *arguments: Any) -> str:
    """The error that a call ends with, or "none"."""
    try:
        attempt(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"
