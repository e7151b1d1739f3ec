"""The two ends of a bisection over packages, as a person names them.

An end is a stack, a control (`controls/<name>`, or `controls/<name>/twin`), a file of pins (a lock, or the output of
`pip freeze`), or requirements such as `trl==0.14.0` that the good end is moved to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import ValidationError

from builder.base import errors, pins, reading
from builder.base.project import Project
from builder.base.text import word
from builder.certify import control
from builder.intent.stack import Patch, Stack
from builder.lock import lockfile, resolve
from builder.lock.lockfile import Entry, Lock

CONTROLS = "controls/"


def read(project: Project, text: str, scratch: Path, *, python: str, good: Lock | None = None) -> Lock:
    """The lock of the end that `text` names.

    `python` is the Python version for a file of pins without a good end. Raises BadInputError; NetworkError and others
    from uv.
    """
    if text.startswith(CONTROLS):
        name, _, side = text.removeprefix(CONTROLS).partition("/")
        locked = control.load(project, name)
        if side not in ("", "twin"):
            raise errors.BadInputError(f"{text}: a control has no {side!r}", next_step=f"{CONTROLS}{word(name)}/twin")
        return locked.twin if side else locked.bad
    if Path(text).is_file():
        return _from_file(Path(text), scratch, good.stack if good else None, python)
    if "==" in text:
        return _moved(text, scratch, good)
    if "/" in text or text.endswith(".txt"):
        raise errors.BadInputError(f"there is no file {text}", next_step=f"ls -l {word(text)}")
    return lockfile.load(project, text)


def assemble(
    name: str, stack: Stack, entries: Sequence[Entry], build: Sequence[Entry], like: Lock | None,
    patches: Sequence[tuple[Patch, Path]],
) -> Lock:  # fmt: skip
    """A lock that is installed on the host and never written to a file. Its system libraries are those of `like`."""
    stack = stack.model_copy(update={"patch": [patch for patch, _ in patches]})
    debian, epoch = (like.debian, like.epoch) if like else ((), resolve.EPOCH[stack.debian])
    files = tuple(path for _, path in patches)
    return lockfile.assemble(name, stack, tuple(entries), tuple(build), debian, epoch, "", files)


def patches_for(entries: Sequence[Entry], ends: Sequence[Lock]) -> list[tuple[Patch, Path]]:
    """The patches of those distributions that have the version of the end that patches them."""
    versions = {entry.name: entry.version for entry in entries}
    patches: dict[str, tuple[Patch, Path]] = {}
    for end in ends:
        for patch, path in zip(end.stack.patch, end.patches, strict=True):
            name = canonicalize_name(patch.package)
            if versions.get(name) == end.versions.get(name):
                patches[patch.file] = (patch, path)
    return list(patches.values())


def _from_file(path: Path, scratch: Path, like: Stack | None, python: str) -> Lock:
    versions = _pins(path)
    requires = pins.lines(dict(sorted(versions.items())))
    if like is not None:
        stack = like.model_copy(update={"title": path.name, "requires": requires, "patch": []})
    else:
        cuda = any(name.startswith("nvidia-") for name in versions)
        stack = Stack(
            title=path.name, device="cuda" if cuda else "cpu", python=python, debian="bookworm", requires=requires
        )
    entries, build = resolve.exactly(stack, scratch, requires)
    return assemble(path.stem, stack, entries, build, None, [])


def _pins(path: Path) -> Mapping[str, str]:
    """The version of each distribution in a file of pins. Raises BadInputError for any other requirement."""
    versions: dict[str, str] = {}
    lines = reading.text(path, str(path), "pip freeze > FILE").splitlines()
    for number, line in enumerate(lines, start=1):
        requirement = line.partition("#")[0].partition("--hash")[0].strip().removesuffix("\\").strip()
        if not requirement:
            continue
        pin = pins.read(requirement)
        if not pin:
            raise errors.BadInputError(
                f"{path}, line {number}: not a pinned distribution: {requirement[:80]!r}",
                cause="an editable install, a URL or an option, which another machine cannot install",
                next_step="leave that line out, or write it as name==version",
            )
        versions |= pin
    if not versions:
        raise errors.BadInputError(f"{path} pins nothing", next_step="pip freeze > FILE")
    return versions


def _moved(text: str, scratch: Path, good: Lock | None) -> Lock:
    if good is None:
        raise errors.BadInputError(
            f"{text!r} says what to move, and not from where", next_step="name a stack or a file"
        )
    # A file of pins does not say what a person asked for: everything may move, and stays where it can.
    packages = dict(good.stack.packages) if good.intent else {name: name for name in good.versions}
    for line in text.split():
        try:
            packages[canonicalize_name(Requirement(line).name)] = line
        except InvalidRequirement as error:
            raise errors.BadInputError(
                f"{line!r} is neither a stack, nor a file, nor a requirement", next_step="trl==1.16.0, for example"
            ) from error
    try:
        stack = Stack.model_validate({**dict(good.stack), "requires": list(packages.values())})
    except ValidationError as error:
        raise errors.BadInputError(
            f"{text!r}: {error.errors()[0]['msg'].removeprefix('Value error, ')}", next_step="trl==1.16.0, for example"
        ) from error
    entries, build = resolve.python(stack, scratch, good, None)
    return assemble(text, stack, entries, build, good, patches_for(entries, [good]))
