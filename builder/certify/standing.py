"""Where a stack is certified: its committed certificates that are valid for today's lock, suite and image."""

from __future__ import annotations

import datetime

from builder.base.project import Project
from builder.certify.verdicts import Judged, Verdicts
from builder.lock.lockfile import Lock


def certified_on(
    project: Project, lock: Lock, day: datetime.date | None = None, verdicts: Verdicts | None = None
) -> list[str]:
    """The hardware on which a stack is certified, each with what the certificate is about: the image, or the lock.

    Of several certificates about the same, the one that lasts longest counts. With a day, one that expired before it
    says so. Documents give none: they stay the same from day to day. `verdicts`: where several stacks are looked at.
    """
    verdicts, places = verdicts or Verdicts(project), dict[str, Judged]()
    for judged in verdicts.of(lock):
        if not judged.standing(verdicts.terms(lock).day):
            place = f"{judged.hardware} ({judged.about})"
            best = places.get(place, judged)
            places[place] = max(best, judged, key=lambda each: each.expires or datetime.date.min)
    return [place + (_lapsed(judged, day) if day else "") for place, judged in places.items()]


def _lapsed(judged: Judged, day: datetime.date) -> str:
    return f", expired on {judged.expires}" if judged.expires and day > judged.expires else ""
