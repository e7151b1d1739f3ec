"""Changes of a JSON document, place by place, and what of a certificate they may change without being refused."""

from __future__ import annotations

import copy
from typing import Any

Place = tuple[str | int, ...]

# What only the run itself saw. A change is refused if it cannot be true. Otherwise it is a claim of whoever ran the
# suite; a number stays within its bound.
OBSERVED = ("seconds", "peak_memory_mib", "value", "version", "buildkit", "kernel", "cpu")


def meaning(document: Any, path: Place = ()) -> Any:
    """A certificate without what only the run itself saw."""
    if isinstance(document, dict):
        keys = {key: value for key, value in document.items() if not (key in OBSERVED and observed((*path, key)))}
        return {key: meaning(value, (*path, key)) for key, value in keys.items()}
    return [meaning(member, path) for member in document] if isinstance(document, list) else document


def observed(path: Place) -> bool:
    return path[:2] == ("predicate", "probes") or path[:2] == ("predicate", "configuration")


def places(document: Any, path: Place = ()) -> list[Place]:
    """Every place of a document: the document itself, each key, and each member of a list."""
    paths = [path]
    members = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, member in members:
        paths += places(member, (*path, key))
    return paths


def at(document: Any, path: Place) -> Any:
    for key in path:
        document = document[key]
    return document


def put(document: Any, path: Place, value: Any) -> Any:
    """A document with another value at a place, or without it (`...`); the rest is the same objects."""
    if not path:
        return value
    key, changed = path[0], copy.copy(document)
    if value is ... and len(path) == 1:
        del changed[key]
    else:
        changed[key] = put(document[key], path[1:], value)
    return changed


def others(value: Any) -> list[Any]:
    """Values of the same and of other kinds, none of them the same."""
    values: list[Any] = [
        ...,
        None,
        True,
        False,
        0,
        1,
        -1,
        10**9,
        0.5,
        1e300,
        "",
        "x",
        "PASSED",
        "9999-12-31",
        [],
        {},
        [1],
    ]
    if isinstance(value, str):
        values += [value + " ", value.upper(), value[:-1], f"{value}\u200b"]
    if isinstance(value, bool):
        values += [not value]
    elif isinstance(value, int | float):
        values += [value + 1, -value, str(value)]
    elif isinstance(value, list):
        values += [value[1:], value[::-1], value * 2, [*value, *value[:1]]]
    elif isinstance(value, dict):
        values += [{**value, "x": 1}, {key.upper(): member for key, member in value.items()}]
    return [other for other in values if type(other) is not type(value) or other != value]
