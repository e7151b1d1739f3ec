"""Releases: under which tags an image was published, and when; a tag that goes back to an older one is noticed.

A registry lets a tag name any image, even an older one whose certificate still holds. So `publish` signs tags and time,
and a clone remembers the newest release of every tag that it has seen. A fresh clone has seen nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from filelock import FileLock
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from builder.base import errors, strictjson, text
from builder.base.project import Project, write
from builder.base.text import word

AHEAD = datetime.timedelta(days=1)  # by which the publisher's clock may differ from this one's


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Release(_Model):
    """The predicate of a release statement."""

    tags: Annotated[tuple[str, ...], Field(min_length=1)]
    issued: AwareDatetime


class SeenRelease(_Model):
    """The newest release of a tag that this clone has seen."""

    image: str
    issued: AwareDatetime


Memory = TypeAdapter(dict[str, SeenRelease])


def read(predicate: dict[str, Any]) -> Release | None:
    """Parse the predicate of a signed statement; None when it is no release."""
    try:
        return Release.model_validate(predicate)
    except ValidationError:
        return None


def make(tags: Iterable[str], earlier: Iterable[Release]) -> dict[str, Any]:
    """The predicate of a release under these tags, now; the tags of earlier releases of the same image stay."""
    before = list(earlier)
    now = max([_now(), *(release.issued + datetime.timedelta(microseconds=1) for release in before)])
    names = {*tags, *(tag for release in before for tag in release.tags)}
    return {"tags": sorted(names), "issued": now.isoformat(timespec="microseconds")}


def doubts(
    project: Project, where: str, tag: str, image: str, releases: Iterable[Release], *, allow_rollback: bool
) -> list[str]:
    """The doubts that a tag names this image rightly; when there are none, the release is remembered.

    `where`: the tag's full reference. Raises BadInputError when the memory cannot be read.
    """
    signed = list(releases)
    if not signed:
        return ["no signed release says under which tags it was published, and when: publish it again"]
    matches = [release for release in signed if tag in release.tags]
    if not matches:
        others = ", ".join(sorted({name for release in signed for name in release.tags}))
        return [f"it was published under other tags\nexpected {tag}\ngot      {text.line(others)}"]
    issued = max(release.issued for release in matches)
    if issued > _now() + AHEAD:
        return [f"its release is of {issued:%Y-%m-%d %H:%M} UTC, which has not come yet"]
    (project.state / "locks").mkdir(parents=True, exist_ok=True)
    with FileLock(project.state / "locks" / ".releases.lock"):
        memory = _load(project)
        newest = memory.get(where)
        if newest and issued < newest.issued and not allow_rollback:
            went_back = [
                "the tag went back to an older release",
                f"seen here {newest.image} of {newest.issued:%Y-%m-%d %H:%M:%S} UTC",
                f"it names  {image} of {issued:%Y-%m-%d %H:%M:%S} UTC",
                "if that is meant: add --allow-rollback",
            ]
            return ["\n".join(went_back)]
        now = SeenRelease(image=image, issued=issued)
        if now != newest:
            memory[where] = now
            write(_path(project), Memory.dump_json(memory, indent=1), project.state / "locks")
    return []


def _path(project: Project) -> Path:
    return project.state / "releases.json"


def _load(project: Project) -> dict[str, SeenRelease]:
    path = _path(project)
    try:
        return Memory.validate_python(strictjson.loads(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except ValueError as error:  # pydantic's is one
        raise errors.BadInputError(
            f"{project.relative(path)} cannot be read",
            cause="it was edited, or cut short",
            next_step=f"rm {word(project.relative(path))}; which releases were seen here is forgotten with it",
        ) from error


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
