"""The verdict of `vetted use` on this image: which certificates are valid, mounted read-only at /run/vetted.

The host judges, because it has the keys and the tool. The verdict counts only if its lock and runtime are the image's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "run/vetted"
VERDICT, CERTIFICATES = "certificates.json", "certificates"

TEXT = r"[^\x00-\x1f\x7f-\x9f]+"  # no control characters: it is printed
DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
FILE = r"[\w-]+\.json"


@dataclass(frozen=True)
class Certificate:
    """One valid certificate. `issued` and `expires` (its last day) are ISO dates, such as 2026-11-21."""

    hardware: str  # the hardware class it is valid for
    issued: str
    expires: str
    file: str


@dataclass(frozen=True)
class Verdict:
    """The certificates of one image, as of the day `judged` (an ISO date)."""

    stack: str
    lock: str
    runtime: str
    judged: str
    certificates: tuple[Certificate, ...]

    def applies_to(self, description: Mapping[str, Any]) -> bool:
        """Whether it judges the image with this description (stack.json)."""
        return (self.stack, self.lock, self.runtime) == tuple(
            description.get(name) for name in ("stack", "lock", "runtime")
        )


def read(root: Path) -> Verdict | None:
    """The verdict, or None if there is none or it is malformed."""
    try:
        document = json.loads((root / FOLDER / VERDICT).read_text(encoding="utf-8"))
        return Verdict(
            _field(document, "stack", TEXT),
            _field(document, "lock", TEXT),
            _field(document, "runtime", TEXT),
            _field(document, "judged", DAY),
            tuple(_certificate(entry) for entry in document["certificates"]),
        )
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _certificate(entry: Any) -> Certificate:
    return Certificate(
        _field(entry, "hardware", TEXT),
        _field(entry, "issued", DAY),
        _field(entry, "expires", DAY),
        _field(entry, "file", FILE),
    )


def _field(document: Any, name: str, pattern: str) -> str:
    """Raises KeyError, TypeError or ValueError if the document has no such field."""
    value = document[name]
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ValueError(name)
    return value


def certificate_files(root: Path, description: Mapping[str, Any]) -> list[Path]:
    """The certificates of the image with this description (stack.json)."""
    verdict = read(root)
    if verdict is None or not verdict.applies_to(description):
        return []
    paths = [root / FOLDER / CERTIFICATES / certificate.file for certificate in verdict.certificates]
    return [path for path in paths if path.is_file()]
