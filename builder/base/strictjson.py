"""Strict JSON: a document is read only if every reader of it sees the same.

Of a repeated key one reader takes the first, another the last; Go's also match keys without regard to case. What was
checked by one program and read by another must not depend on that, so such documents are refused.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

DEEPEST = 100  # levels; nothing that this project reads has more than a dozen


def loads(data: bytes) -> Any:
    """Read a document. Raises ValueError when two readers might differ on it."""
    if data.startswith(b"\xef\xbb\xbf"):
        raise ValueError("begins with a byte order mark")
    text = data.decode("utf-8")
    try:
        read = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
        )  # fmt: skip
    except RecursionError as error:
        raise ValueError(f"nested deeper than {DEEPEST} levels") from error
    _check(read)
    return read


def load_object(data: bytes) -> dict[str, Any]:
    """Read a document that must be an object. Raises ValueError."""
    read = loads(data)
    if not isinstance(read, dict):
        raise ValueError("is not an object")
    return read


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, str] = {}
    for key, _ in pairs:
        # casefold() equates at least what Go's decoder does: the long s is an s, the Kelvin sign a k.
        folded = key.casefold()
        if folded in seen:
            raise ValueError(f"has the keys {seen[folded]!a} and {key!a}, which some readers take for the same")
        seen[folded] = key
    return dict(pairs)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}, which is no JSON")


def _float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"holds a number that is too large: {text[:20]}")
    return number


def _int(text: str) -> int:
    _float(text)
    return int(text)


def _check(value: Any) -> None:
    """Raises ValueError when it is nested too deeply, or holds half of a surrogate pair."""
    level = [value]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for one in level:
            if isinstance(one, str):
                one.encode()  # UnicodeEncodeError is a ValueError
            elif isinstance(one, dict):
                below += [*one, *one.values()]
            elif isinstance(one, list):
                below += one
        if not below:
            return
        level = below
    raise ValueError(f"nested deeper than {DEEPEST} levels")
