"""The policy that a person writes: which images may run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from builder.base import errors, tomlfile
from builder.base.tomlfile import Line, Table
from builder.publish.reference import parse_repository

# What Python's and Go's regular expressions read alike, once dots, signs and brackets are quoted.
WORDS = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._+()-]*[A-Za-z0-9)])?")


def _repository(value: str) -> str:
    return str(parse_repository(value, insecure=False))


def _hardware(value: str) -> str:
    if not WORDS.fullmatch(value):
        raise ValueError(f"{value!r} is not the name of a GPU or processor, such as 'H200'")
    return value


Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class PolicyFile(Table):
    """policy.toml. Paths are relative to the file."""

    signed_by: Annotated[list[Line], Field(min_length=1)]
    """Files with public keys; any of them may have signed."""
    images: list[Annotated[str, AfterValidator(_repository)]] = Field(default_factory=list)
    """Repositories, HOST/PATH, whose images a cluster asks about."""
    suite_since: Line | None = None
    """A commit or tag of this project: the suites of it and of every later commit count. Default: today's alone."""
    hardware: list[Annotated[str, AfterValidator(_hardware)]] = Field(default_factory=list)
    """Whole words; the certificate must have been earned on one of them. Default: any."""
    device: Literal["cpu", "cuda"] | None = None
    """Whether it must have been earned with or without a GPU. Default: either."""
    withdrawn: list[Digest] = Field(default_factory=list)
    """Locks that may not run, whatever their certificate says."""


def read(path: Path) -> PolicyFile:
    """Read a policy. Raises BadInputError."""
    try:
        return tomlfile.read(PolicyFile, path, str(path))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise errors.BadInputError(
            f"there is no policy {path}", next_step="docs/how-to/admission.md has one to copy"
        ) from error
