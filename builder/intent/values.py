"""What the values of a stack.toml must look like. Each returns its value, or raises ValueError for the reader."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from builder.base import pins, tomlfile
from builder.intent.platform import AMD64

NAME = re.compile(r"[a-z0-9][a-z0-9.+_-]{0,99}")  # a file system has room for 255, and an image's tag for 128


def requirement(value: str) -> str:
    """A requirement on a package of an index."""
    try:
        parsed = Requirement(tomlfile.one_line(value))
    except InvalidRequirement as error:
        raise ValueError(f"{value!r} is not a requirement: {str(error).splitlines()[0]}") from error
    if parsed.url:
        raise ValueError(f"{value!r} names a URL; a lock names no host: pin a version instead")
    return value


def pinned(value: str) -> str:
    """A bare name, or an exact version."""
    parsed = Requirement(requirement(value))
    if parsed.specifier and pins.exact(parsed) is None:
        raise ValueError(f"{value!r}: write an exact version (name==1.2.3), or the bare name to let the lock choose")
    return value


def name(value: str) -> str:
    """The name of a stack, a package, or a file."""
    if not NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a name: lower-case letters, digits and . + _ - only")
    return value


def patch_file(value: str) -> str:
    """The path of a patch of the project."""
    path = Path(value)
    if path.is_absolute() or ".." in path.parts or path.parts[:2] != ("images", "patches"):
        raise ValueError(f"{value!r} must lie under images/patches/, without ..")
    if len(path.parts) != 5:
        raise ValueError(f"{value!r} must be images/patches/<package>/<version>/<name>.patch")
    if not all(NAME.fullmatch(part) for part in path.parts) or path.suffix != ".patch":
        raise ValueError(f"{value!r} must be a plain path that ends in .patch")
    return value


def one_change(value: dict[str, str]) -> dict[str, str]:
    """One distribution and its version."""
    if len(value) != 1:
        raise ValueError("must be one distribution and its version: the change that makes the control good")
    for package, version in value.items():
        pinned(f"{name(package)}=={version}")
    return value


def platforms(value: list[str]) -> list[str]:
    """The platforms of a stack, amd64 first."""
    if value[:1] != [AMD64.name] or len(set(value)) != len(value):
        raise ValueError(
            f"{value!r}: {AMD64.name} comes first, because certificates are for it; each stands there once"
        )
    return value


def one_or_more(value: object) -> object:
    """A text alone counts as a list of one."""
    return [value] if isinstance(value, str) else value
