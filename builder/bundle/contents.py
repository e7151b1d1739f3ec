"""bundle.json: what a bundle contains, and which lock and suite it belongs to."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, ValidationError

from builder.base import errors, reading, sources
from builder.base.project import Project, sha256
from builder.base.tomlfile import Table
from builder.certify.certificate import Digest
from builder.lock import lockfile
from builder.lock.lockfile import Lock

CONTENTS = "bundle.json"
WHEELS = "wheels"
DEBS = "debs"


class CarriedFile(Table):
    """One file of a distribution. For the stack's own Python it is the locked file."""

    name: str
    version: str
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9._+!-]+$")]
    sha256: Digest


class Contents(Table):
    """bundle.json. `left_out`: distributions that, by its freeze, the host has at the locked version."""

    stack: str
    lock: str
    suite: str
    python: Annotated[str, Field(pattern=r"^3\.[0-9]{1,2}$")]
    distributions: list[CarriedFile]
    build: list[CarriedFile]
    left_out: list[str]

    def to_json(self) -> str:
        return json.dumps(self.model_dump(), indent=1) + "\n"

    @property
    def digest(self) -> str:
        return sha256(self.to_json().encode())


def read_unpacked(project: Project) -> tuple[Lock, Contents]:
    """The lock and the contents of an unpacked bundle. Raises BadInputError when they do not belong together."""
    again = "unpack the bundle again, into another --to"
    try:
        contents = Contents.model_validate_json(reading.content(project.root / CONTENTS, CONTENTS, again))
    except FileNotFoundError as error:
        raise errors.BadInputError(f"{project.root} is not an unpacked bundle", next_step="python3 run.py") from error
    except (ValidationError, RecursionError) as error:
        raise errors.BadInputError(
            f"{CONTENTS}: {str(error).splitlines()[0]}", cause="another version of Vetted made it", next_step=again
        ) from error
    lock = lockfile.load(project, contents.stack)
    for what, expected, actual in (
        ("lock", contents.lock, lock.digest),
        ("suite", contents.suite, sources.digest(project.smoke)),
    ):
        if expected != actual:
            raise errors.BadInputError(
                f"the {what} is not the one that was bundled\nexpected {expected}\ngot      {actual}",
                cause="an unpacked file was edited",
                next_step=again,
            )
    return lock, contents
