"""`pip freeze` of a host: what it has already, a bundle can leave out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.base import errors, pins, reading
from builder.lock.lockfile import Lock

COMMAND = "on the host: python3 -m pip freeze > freeze.txt"


def parse(text: str, where: str) -> dict[str, str]:
    """Normalised name to version, from `pip freeze` or `uv pip freeze`. Raises BadInputError.

    An entry without a version (an editable install, a URL) may be any version, so it is passed over.
    """
    versions: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.partition(" #")[0].strip()
        if not line or line.startswith(("#", "-")):
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise errors.BadInputError(
                f"{where}, line {number}: not what `pip freeze` prints: {line[:80]!r}",
                cause="the file holds something else, or other output got into it",
                next_step=COMMAND,
            ) from error
        if (version := pins.exact(requirement)) is not None:
            versions[canonicalize_name(requirement.name)] = version
    return versions


def read(path: Path) -> dict[str, str]:
    """The versions in a freeze. Raises BadInputError."""
    try:
        return parse(reading.text(path, str(path), COMMAND), str(path))
    except FileNotFoundError as error:
        raise errors.BadInputError(f"{path} does not exist", next_step=COMMAND) from error


def left_out(lock: Lock, versions: Mapping[str, str]) -> list[str]:
    """Names that the host has at the locked version and nothing patches: a patch never touches a host's own file."""
    patched = {canonicalize_name(patch.package) for patch in lock.stack.patch}
    return [
        entry.name for entry in lock.python if versions.get(entry.name) == entry.version and entry.name not in patched
    ]
