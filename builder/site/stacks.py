"""Everything that the page shows of a stack: its lock, image, GPUs, certificates, and the advisories that touch it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from builder.base.project import Project
from builder.certify.assessment import Assessments
from builder.intent.advisory import Advisory
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.pages import gpus, images, matrix
from builder.pages.records import Image
from builder.site import certificates
from builder.site.certificates import Certificate, Unreadable
from builder.trajectory import record
from builder.trajectory.record import Record


@dataclass(frozen=True)
class StackPage:
    """A stack. `image`: what was measured of its image; `image_today`: whether a build would make that image today.

    `gpus`: GPU -> its verdict in words; empty for a stack without kernels. `advisories`: those that match the lock in
    some context, or with certainty. `records`: its golden trajectories.
    """

    lock: Lock
    versions: Mapping[str, str]
    image: Image | None
    image_today: bool
    platforms: Mapping[str, str]
    gpus: Mapping[str, str]
    current: Sequence[Certificate]
    unreadable: Sequence[Unreadable]
    earlier: Sequence[Certificate]
    advisories: Sequence[Advisory]
    records: Sequence[Record] = ()

    @property
    def name(self) -> str:
        return self.lock.name

    @property
    def page(self) -> str:
        return f"stacks/{self.name}.html"

    @property
    def badge(self) -> str:
        return f"badges/{self.name}.svg"

    @cached_property
    def certified(self) -> Sequence[Certificate]:
        return [entry for entry in self.current if entry.state == "certified"]

    @property
    def built(self) -> str:
        """Whether its image was built: the day, and whether a build would make the same one today."""
        if self.image is None:
            return "not built"
        return f"built {self.image.date}{'' if self.image_today else images.OLDER}"

    def before(self, entry: Certificate) -> list[Certificate]:
        """The earlier certificates from the same file as this one, the oldest first."""
        return [past for past in reversed(self.earlier) if past.name.rpartition("-")[0] == entry.name]


def read(project: Project, name: str, scratch: Path, assessments: Assessments | None = None) -> StackPage:
    """Everything of a stack.

    Raises BadInputError for a broken lock or a broken record of trajectories; a broken certificate is shown as such.
    """
    lock, assessments = lockfile.load(project, name), assessments or Assessments(project)
    terms = assessments.terms(lock)
    current, unreadable = certificates.current(lock, assessments)
    image = images.measured(project).get(lock.image)
    places = [f"{entry.hardware} ({entry.about})" for entry in current if entry.state == "certified"]
    return StackPage(
        lock=lock,
        versions=matrix.versions(lock),
        image=image,
        image_today=image is not None and image.inputs == terms.inputs,
        platforms=matrix.other_platforms(project, name),
        gpus=gpus.of_stack(project, lock, places),
        current=current,
        unreadable=unreadable,
        earlier=certificates.earlier(project, terms, current, scratch),
        advisories=terms.matching,
        records=record.of_stack(project, name),
    )
