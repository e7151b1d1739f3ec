"""Strict JSON: a document is read only if every program reads the same in it.

Of a repeated key, some programs take the first value and some the last; Go's ignore the case of keys. A document that
one program checks and another reads must not depend on that, so such documents are refused.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

DEEPEST = 100  # levels; no document that this project reads has more than a dozen


def loads(data: bytes) -> Any:
    """Read a document. Raises ValueError when two programs might read it differently."""
    if data.startswith(b"\xef\xbb\xbf"):
        raise ValueError("begins with a byte order mark")
    text = data.decode("utf-8")
    try:
        document = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
        )  # fmt: skip
    except RecursionError as error:
        raise ValueError(f"nested deeper than {DEEPEST} levels") from error
    _check(document)
    return document


def load_object(data: bytes) -> dict[str, Any]:
    """Read a document that must be an object. Raises ValueError."""
    document = loads(data)
    if not isinstance(document, dict):
        raise ValueError("is not an object")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    spellings: dict[str, str] = {}
    for key, _ in pairs:
        # casefold() equates at least what Go's decoder equates: the long s and s, the Kelvin sign and k.
        folded = key.casefold()
        if folded in spellings:
            raise ValueError(f"has the keys {spellings[folded]!a} and {key!a}, which some programs take for the same")
        spellings[folded] = key
    return dict(pairs)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"has {name}, which is not JSON")


def _float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"has a number that is too large: {text[:20]}")
    return number


def _int(text: str) -> int:
    _float(text)
    return int(text)


def _check(value: Any) -> None:
    """Raises ValueError when a value is nested too deeply, or contains half of a surrogate pair."""
    level = [value]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                item.encode()  # UnicodeEncodeError is a ValueError
            elif isinstance(item, dict):
                below += [*item, *item.values()]
            elif isinstance(item, list):
                below += item
        if not below:
            return
        level = below
    raise ValueError(f"nested deeper than {DEEPEST} levels")
