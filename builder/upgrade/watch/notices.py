"""What becomes of the certificates of a stack: each is reported before the day on which it no longer holds."""

from __future__ import annotations

import dataclasses
import datetime

from builder.base.project import Project
from builder.certify import certificate, judgement
from builder.lock.lockfile import Lock

NOTICE = datetime.timedelta(days=14)  # before a certificate expires


def of(project: Project, lock: Lock, day: datetime.date) -> list[str]:
    """A sentence for each certificate that does not hold on that day, or soon will not; and where there is none."""
    statements = certificate.of_stack(project, lock.name)
    if not statements:
        return ["there is no certificate"]
    terms = dataclasses.replace(judgement.terms(project, lock), day=day)
    notices = []
    for name, statement in statements.items():
        doubts = judgement.doubts(statement, terms)
        notices += [f"{name}: {doubt.splitlines()[0]}" for doubt in doubts]
        expires = statement.predicate.expires
        if not doubts and expires and expires - day <= NOTICE:
            left = (expires - day).days
            notices.append(f"{name}: it expires on {expires}, {f'in {left} days' if left else 'today'}: certify again")
    return notices
