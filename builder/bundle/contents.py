"""bundle.json: what a bundle contains, and which lock and suite it belongs to."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, ValidationError

from builder.base import errors, reading, sources
from builder.base.project import Project, sha256
from builder.base.tomlfile import Table
from builder.bundle.unbundle.interpreter import LIBRARIES, PACKAGES
from builder.certify.certificate import Digest
from builder.lock import lockfile
from builder.lock.lockfile import Lock

CONTENTS = "bundle.json"
WHEELS = "wheels"
IMAGE = "image"
MANIFEST, CONFIG = f"{IMAGE}/manifest.json", f"{IMAGE}/config.json"
DEBS = "debs"  # what hostenv.py may need; the stack's Python lies in folders of its own


class CarriedFile(Table):
    """One file of a distribution. For the stack's own Python it is the locked file.

    `record`: the digest of its RECORD, where it is carried hollow: without the files that the host has.
    """

    name: str
    version: str
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9._+!-]+$")]
    sha256: Digest
    record: Digest | None = None


class CarriedLayer(Table):
    """A layer of an image, in a file named after its diff_id. Its cuts, if it has any, lie beside it."""

    diff_id: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    media_type: str

    @property
    def path(self) -> str:
        return f"{IMAGE}/{self.diff_id.removeprefix('sha256:')}"


class CarriedImage(Table):
    """An image: the digest of its manifest, its name, what built it from which inputs, and its layers in order."""

    manifest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    name: str
    buildkit: str
    inputs: str
    layers: list[CarriedLayer]


class Contents(Table):
    """bundle.json. `python`: the version that the files are for; `carried`: whether the bundle has it.

    A bundle has either distributions or an image.
    """

    stack: str
    lock: str
    suite: str
    python: Annotated[str, Field(pattern=r"^3\.[0-9]{1,2}$")]
    carried: bool
    distributions: list[CarriedFile]
    build: list[CarriedFile]
    image: CarriedImage | None = None

    @property
    def hollow(self) -> list[CarriedFile]:
        """The distributions that lack files."""
        return [file for file in self.distributions if file.record]

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
        raise errors.BadInputError(f"{project.root} is not an unpacked bundle", next_step="python3 run.pyz") from error
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
    locked = {entry.sha256 for entry in lock.debian}
    for package in (path for folder in (DEBS, PACKAGES, LIBRARIES) for path in (project.root / folder).glob("*")):
        if package.stem not in locked:
            raise errors.BadInputError(f"{package} is not a locked package", cause="it was added", next_step=again)
    return lock, contents
