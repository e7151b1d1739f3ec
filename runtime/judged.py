"""The record of what `vetted use` judged on the host, mounted at /run/vetted with the certificates behind it.

It is believed where its lock and its runtime are those that the image itself carries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "run/vetted"
RECORD, CERTIFICATES = "certificates.json", "certificates"

TEXT = r"[^\x00-\x1f\x7f-\x9f]+"  # it is printed: no control characters
DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
FILE = r"[\w-]+\.json"


@dataclass(frozen=True)
class Certificate:
    hardware: str  # the class of machine it was earned on
    issued: str  # a day, as in 2026-11-21
    expires: str  # the last day
    file: str


@dataclass(frozen=True)
class Record:
    stack: str
    lock: str
    runtime: str
    judged: str  # a day
    certificates: tuple[Certificate, ...]

    def of(self, stack: Mapping[str, Any]) -> bool:
        """Is it a record of the image that says this of itself?"""
        return (self.stack, self.lock, self.runtime) == tuple(stack.get(name) for name in ("stack", "lock", "runtime"))


def read(root: Path) -> Record | None:
    """The record; None where there is none, or what is there is no record."""
    try:
        document = json.loads((root / FOLDER / RECORD).read_text(encoding="utf-8"))
        return Record(
            _field(document, "stack", TEXT),
            _field(document, "lock", TEXT),
            _field(document, "runtime", TEXT),
            _field(document, "judged", DAY),
            tuple(
                Certificate(
                    _field(one, "hardware", TEXT), _field(one, "issued", DAY), _field(one, "expires", DAY),
                    _field(one, "file", FILE),
                )
                for one in document["certificates"]
            ),
        )  # fmt: skip
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _field(document: Any, name: str, pattern: str) -> str:
    """Raises KeyError, TypeError or ValueError where the document has no such field."""
    value = document[name]
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ValueError(name)
    return value


def files(root: Path, stack: Mapping[str, Any]) -> list[Path]:
    """The certificates behind the record of this image."""
    said = read(root)
    if said is None or not said.of(stack):
        return []
    paths = [root / FOLDER / CERTIFICATES / one.file for one in said.certificates]
    return [path for path in paths if path.is_file()]
