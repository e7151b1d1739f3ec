"""Sizes and bounds as people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

Kind = TypeVar("Kind", bound=str)
Limit = TypeVar("Limit")

SIGNS = {"at_most": "≤", "at_least": "≥", "equals": "="}


def size(count: float) -> str:
    """A number of bytes: `14 MB`, or `2.5 kB` up to half a megabyte."""
    return f"{count / 1e6:.0f} MB" if count > 5e5 else f"{count / 1e3:.1f} kB"


def size_change(count: float) -> str:
    """A difference in bytes: `+1.4 MB`."""
    return f"{count / 1e6:+.1f} MB"


def bounds(limits: Mapping[Kind, Limit] | None, number: Callable[[Limit], str]) -> str:
    """The bounds of a measurement, by kind: `≤ 0.1`. `number` formats each limit."""
    return " ".join(f"{SIGNS[kind]} {number(limit)}" for kind, limit in (limits or {}).items())
