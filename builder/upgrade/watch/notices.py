"""What becomes of the certificates of a stack: each is reported before the day on which it no longer holds."""

from __future__ import annotations

import datetime

from builder.base.project import Project
from builder.certify.assessment import Assessments
from builder.lock.lockfile import Lock

NOTICE = datetime.timedelta(days=14)  # before a certificate expires


def of(project: Project, lock: Lock, day: datetime.date) -> list[str]:
    """A sentence for each certificate that does not hold on that day, or soon will not; and where there is none."""
    certificates, others = Assessments(project).readable(lock)
    if not certificates and not others:
        return ["there is no certificate"]
    notices = [
        f"{path.stem}: it is not a certificate of this stack: git checkout {project.relative(path)}" for path in others
    ]
    for assessment in certificates:
        doubts = assessment.doubts(day)
        notices += [f"{assessment.name}: {doubt.splitlines()[0]}" for doubt in doubts]
        expires = assessment.expires
        if not doubts and expires and expires - day <= NOTICE:
            left = (expires - day).days
            when = f"in {left} days" if left else "today"
            notices.append(f"{assessment.name}: it expires on {expires}, {when}: certify again")
    return notices
