"""Who asks for a name that is gone, and the first release of it that does without: doctor/know/uses/.

A release that no longer asks for the old place of a name is the better way out than an old release of what it calls.
"""

from __future__ import annotations

from typing import NamedTuple

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.know import owners


class Caller(NamedTuple):
    """A package that used a name, and the first release that does without it."""

    package: str
    release: str
    evident: bool  # it is installed, in the traceback, or named in the error


def of_name(case: Case, name: str) -> list[Caller]:
    """The packages that asked for `module:name`, `callee(keyword` or `requires package`; the evident ones first.

    One that is installed in a later release does not ask for it any more; one that is not installed asks for nothing.
    """
    frames = owners.frames(case.error)
    callers = []
    for package, uses in case.knowledge.uses.items():
        release, installed = uses.get(name), case.version(package)
        if release is None or (installed is None and case.environment.complete):
            continue
        if installed is not None and versions.within(f"<{release}", installed) is False:
            continue
        named = package in frames or aliases.spelled(package).search(case.error) is not None
        callers.append(Caller(package, release, named or installed is not None))
    # The caller of the last frame raised it; of others it is only known that they are there.
    return sorted(callers, key=lambda caller: (not caller.evident, -_last(frames, caller.package), caller.package))


def only(case: Case, name: str, *, alone: bool = False) -> Caller | None:
    """The one that asks for a name, where there is evidence for it; with `alone`, also the only one that ever did."""
    callers = of_name(case, name)
    evident = [caller for caller in callers if caller.evident]
    if evident:
        return evident[0]
    return callers[0] if alone and len(callers) == 1 else None


def _last(frames: list[str], package: str) -> int:
    return max((place for place, frame in enumerate(frames, start=1) if frame == package), default=0)
