"""Where a stack is certified: its committed certificates that are valid for today's lock, suite and image."""

from __future__ import annotations

import dataclasses
import datetime

from builder.base.project import Project
from builder.certify import certificate, judgement
from builder.certify.certificate import Statement
from builder.certify.judgement import Terms
from builder.lock.lockfile import Lock


def certified_on(project: Project, lock: Lock, day: datetime.date | None = None) -> list[str]:
    """The hardware on which a stack is certified, each with what the certificate is about: the image, or the lock.

    With a day, a certificate that expired before it says so. Documents give none: they stay the same from day to day.
    """
    statements = certificate.of_stack(project, lock.name).values()
    if not statements:
        return []
    terms, places = judgement.terms(project, lock), []
    for statement in statements:
        if not doubts(statement, terms):
            subject = "image" if statement.resource(certificate.INPUTS).digest else "lock"
            lapsed = day and statement.lapsed(day)
            places.append(f"{statement.hardware} ({subject})" + (f", {lapsed}" if lapsed else ""))
    return places


def doubts(statement: Statement, terms: Terms) -> list[str]:
    """The doubts about a certificate, except that it has expired."""
    last = min(statement.predicate.expires or terms.day, terms.day)
    # Other terms would compute the digest of the inputs again, which takes longer than everything else.
    return judgement.doubts(statement, terms if last == terms.day else dataclasses.replace(terms, day=last))
