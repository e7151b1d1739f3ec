"""Where a stack is certified: its committed certificates that are valid for today's lock, suite and image."""

from __future__ import annotations

import datetime

from builder.base.project import Project
from builder.certify.assessment import Assessment, Assessments
from builder.lock.lockfile import Lock


def certified_on(
    project: Project, lock: Lock, day: datetime.date | None = None, assessments: Assessments | None = None
) -> list[str]:
    """The hardware on which a stack is certified, each with what the certificate is about: the image, or the lock.

    Of several certificates about the same, the one that lasts longest counts. With a day, one that expired before it
    says so. Documents give none: they stay the same from day to day. `assessments`: where several stacks are looked at.
    """
    assessments, places = assessments or Assessments(project), dict[str, Assessment]()
    for assessment in assessments.of(lock):
        if not assessment.standing(assessments.terms(lock).day):
            place = f"{assessment.hardware} ({assessment.about})"
            best = places.get(place, assessment)
            places[place] = max(best, assessment, key=lambda each: each.expires or datetime.date.min)
    return [place + (_lapsed(assessment, day) if day else "") for place, assessment in places.items()]


def earlier_on(project: Project, lock: Lock, assessments: Assessments | None = None) -> list[str]:
    """The hardware on which a stack passed an earlier suite, or in an earlier image, and not yet today's."""
    assessments = assessments or Assessments(project)
    valid, earlier = set(), dict[str, None]()
    for assessment in assessments.of(lock):
        if not assessment.standing(assessments.terms(lock).day):
            valid.add(assessment.hardware)
        elif assessment.earlier:
            earlier[assessment.hardware] = None
    return [f"earlier suite or image: {hardware}" for hardware in earlier if hardware not in valid]


def _lapsed(assessment: Assessment, day: datetime.date) -> str:
    return f", expired on {assessment.expires}" if assessment.expires and day > assessment.expires else ""
