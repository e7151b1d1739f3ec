"""`[extends]` in stack.toml: the parent of a stack that `vetted extend` made."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from builder.base.tomlfile import Line, Table

DEBIAN_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
# An address in stack.toml has no password: people commit the file.
GIT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*) @ git\+(https|ssh|file)://(git@)?[^@\s]+@(?P<commit>[0-9a-f]{40})"
)


def _debian(value: str) -> str:
    if not DEBIAN_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not the name of a Debian package")
    return value


def _git(value: str) -> str:
    if not GIT.fullmatch(value):
        raise ValueError(
            f"{value[:40]!r}… must be `NAME @ git+https://HOST/PATH@COMMIT`, with all 40 digits of the commit"
        )
    return value


class Extends(Table):
    """The parent. Its overrides and patches are copied into the stack; its lock is a part of this one, unchanged."""

    stack: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+_-]*$")]
    """The parent's name."""
    title: Line
    """The parent's title: its layers are in the image as they are, and one of them has the title."""
    lock: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    """The digest of the parent's lock, which is a part of this stack's lock and stays as it is."""
    debian: list[Annotated[str, AfterValidator(_debian)]] = Field(default_factory=list)
    """Own Debian packages."""
    git: list[Annotated[str, AfterValidator(_git)]] = Field(default_factory=list)
    """Where the archives in `sources/`, beside stack.toml, come from: `NAME @ git+https://HOST/PATH@COMMIT`."""
    allow_old: list[str] = Field(default_factory=list)
    """Own packages that may be far behind their newest release."""
