"""What the day says about a certificate. It alone changes while nothing else does, so no answer of it is ever kept."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from builder.certify.certificate import LIFETIME


def doubts(issued: datetime.date | None, expires: datetime.date | None, day: datetime.date) -> Iterator[str]:
    """What speaks against a certificate with these dates on a day, a sentence each."""
    if issued is None or expires is None:
        yield "it has no expiry date: certify again"
    elif issued > day:
        yield f"it was issued on {issued}, which is not yet"
    elif expires != issued + LIFETIME:
        yield f"it expires on {expires}, not {LIFETIME.days} days after {issued}"
    elif day > expires:
        yield f"it expired on {expires}: certify again"
