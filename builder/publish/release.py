"""Releases: under which tags an image was published, and when; so that a tag that goes back is noticed.

A registry lets a tag name any image, an older one too, whose certificate may well hold still. `publish` therefore signs
tags and time, and a clone remembers the newest release of every tag that it has seen. A fresh clone has seen nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from filelock import FileLock
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from builder.base import errors, strictjson
from builder.base.project import Project, write

AHEAD = datetime.timedelta(days=1)  # by which the publisher's clock may differ from this one's


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Release(_Model):
    tags: Annotated[tuple[str, ...], Field(min_length=1)]
    issued: AwareDatetime


class Seen(_Model):
    """The newest release of a tag that was seen here."""

    image: str
    issued: AwareDatetime


Memory = TypeAdapter(dict[str, Seen])


def read(predicate: dict[str, Any]) -> Release | None:
    """What a signed statement says; None when it is no release."""
    try:
        return Release.model_validate(predicate)
    except ValidationError:
        return None


def make(tags: Iterable[str], earlier: Iterable[Release]) -> dict[str, Any]:
    """A release under these tags, now; the tags of earlier releases of the same image stay."""
    before = list(earlier)
    now = max([_now(), *(one.issued + datetime.timedelta(microseconds=1) for one in before)])
    names = {*tags, *(tag for one in before for tag in one.tags)}
    return {"tags": sorted(names), "issued": now.isoformat(timespec="microseconds")}


def doubts(
    project: Project, where: str, tag: str, image: str, releases: Iterable[Release], *, allow_rollback: bool
) -> list[str]:
    """What speaks against a tag's naming this image; when nothing does, that it was seen is remembered."""
    known = list(releases)
    if not known:
        return ["no signed release says under which tags it was published, and when: publish it again"]
    here = [one for one in known if tag in one.tags]
    if not here:
        said = ", ".join(sorted({name for one in known for name in one.tags}))
        return [f"it was published under other tags\nexpected {tag}\ngot      {said}"]
    issued = max(one.issued for one in here)
    if issued > _now() + AHEAD:
        return [f"its release is of {issued:%Y-%m-%d %H:%M} UTC, which has not come yet"]
    (project.state / "locks").mkdir(parents=True, exist_ok=True)
    with FileLock(project.state / "locks" / "releases.lock"):
        memory = _load(project)
        seen = memory.get(where)
        if seen and issued < seen.issued and not allow_rollback:
            went_back = [
                "the tag went back to an older release",
                f"seen here {seen.image} of {seen.issued:%Y-%m-%d %H:%M:%S} UTC",
                f"it names  {image} of {issued:%Y-%m-%d %H:%M:%S} UTC",
                "if that is meant: add --allow-rollback",
            ]
            return ["\n".join(went_back)]
        now = Seen(image=image, issued=issued)
        if now != seen:
            memory[where] = now
            write(_path(project), Memory.dump_json(memory, indent=1), project.state / "locks")
    return []


def _path(project: Project) -> Path:
    return project.state / "releases.json"


def _load(project: Project) -> dict[str, Seen]:
    path = _path(project)
    try:
        return Memory.validate_python(strictjson.loads(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except ValueError as error:  # pydantic's is one
        raise errors.BadInputError(
            f"{project.relative(path)} cannot be read",
            cause="it was edited, or cut short",
            next_step=f"rm {project.relative(path)}; which releases were seen here is forgotten with it",
        ) from error


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
