"""A set of names as short hashes: small enough to ship, and enough to ask whether a name is among them.

Of a hundred thousand names, one in two hundred of others seems to be among them: what rests on it is a guess.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

BYTES = 3  # of a hash


def of(name: str) -> bytes:
    """The hash of a name."""
    return hashlib.sha256(name.encode()).digest()[:BYTES]


def pack(names: Iterable[str]) -> str:
    """The set as text."""
    return base64.b64encode(b"".join(sorted(set(map(of, names))))).decode()


def unpack(text: str) -> frozenset[bytes]:
    """The hashes in a text."""
    content = base64.b64decode(text)
    return frozenset(content[place : place + BYTES] for place in range(0, len(content), BYTES))
