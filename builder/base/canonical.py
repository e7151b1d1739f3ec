"""JSON as this project writes it: the bytes of `json.dumps(document, indent=2)` and a line break at the end.

The standard library indents in Python, piece by piece. To write a certificate takes it 4 ms and this module 1 ms, and a
certificate is written again whenever one is read. A test holds the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

STEP = "  "


def dumps(document: object) -> str:
    """Raises ValueError for a number that JSON lacks, TypeError for anything that is no JSON."""
    return _written(document, "\n") + "\n"


def _written(value: object, margin: str) -> str:
    """`margin`: a line break, and the indentation of what surrounds the value."""
    if scalar := SCALARS.get(type(value)):
        return scalar(value)
    inner = margin + STEP
    if isinstance(value, dict):
        # Most members are scalars: they are written here, which takes half the time of a call for each.
        members = [
            f"{_quoted(key)}: {scalar(each) if (scalar := SCALARS.get(type(each))) else _written(each, inner)}"
            for key, each in value.items()
        ]
        return f"{{{inner}{f',{inner}'.join(members)}{margin}}}" if members else "{}"
    if isinstance(value, list):
        entries = [_written(each, inner) for each in value]
        return f"[{inner}{f',{inner}'.join(entries)}{margin}]" if entries else "[]"
    raise TypeError(f"{type(value).__name__} is nothing of JSON")


def _number(value: float) -> str:
    if math.isfinite(value):
        return float.__repr__(value)
    raise ValueError(f"{value} is no number of JSON")


# By the exact type: to Python, a bool is an int.
SCALARS: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    int: int.__repr__,
    float: _number,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
}
