"""Makes a lock: uv resolves the distributions, apt the Debian packages; then the files are written."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from builder.base import errors, pins
from builder.base.project import Project, write
from builder.base.text import word
from builder.intent.platform import AMD64, PLATFORMS, Platform
from builder.intent.stack import Stack
from builder.lock import audit, debian, extension, index, lockfile, metadata, solver
from builder.lock.index import File
from builder.lock.lockfile import Entry, Lock

# SOURCE_DATE_EPOCH, in seconds: the day on which a suite was released, before anything that a build writes. It never
# changes, so that a layer with the same content has the same digest after upgrades and in every stack.
EPOCH = {"bookworm": 1686355200, "trixie": 1754697600}


def make(project: Project, name: str, stack: Stack, scratch: Path, upgrade: Sequence[str] | None) -> bool:
    """Resolve a stack and write its lock; True when anything changed.

    `upgrade`: None keeps every locked version that still fits; an empty one upgrades everything; else only these
    distributions are upgraded, where `debian` is the base layer. Raises BadInputError when the stack has no solution,
    NetworkError.
    """
    keeps_debian = upgrade is None or (bool(upgrade) and "debian" not in upgrade)
    old = _existing(project, name, AMD64)
    if stack.extends:
        return put(project, extension.make(project, name, stack, scratch, old, upgrade), scratch)
    entries, build = python(stack, scratch, old, upgrade)
    contents = {
        "requirements.txt": lockfile.format_python(entries),
        "build.txt": lockfile.format_python(build),
        "debian.txt": lockfile.format_debian(_debian(stack, scratch, old if keeps_debian else None)),
        "lock.toml": lockfile.format_meta(lockfile.intent(stack), EPOCH[stack.debian]),
    }
    for platform in (PLATFORMS[other] for other in stack.platforms[1:]):
        own = stack.on(platform)
        old = _existing(project, name, platform)
        its = _like(entries, own, scratch, None if upgrade == [] else old)
        contents[platform.file("requirements.txt")] = lockfile.format_python(its)
        packages = _debian(own, scratch, old if keeps_debian else None)
        contents[platform.file("debian.txt")] = lockfile.format_debian(packages)
    return _write(project, name, contents, scratch)


def put(project: Project, lock: Lock, scratch: Path) -> bool:
    """Write the lock of a stack for one platform beside its stack.toml; True when anything changed."""
    contents = {
        "requirements.txt": lockfile.format_python(lock.python),
        "build.txt": lockfile.format_python(lock.build),
        "debian.txt": lockfile.format_debian(lock.debian),
        "lock.toml": lockfile.format_meta(lock.intent, lock.epoch, lock.own),
    }
    return _write(project, lock.name, contents, scratch)


def _write(project: Project, name: str, contents: Mapping[str, str], scratch: Path) -> bool:
    changed = False
    for file, text in contents.items():
        path, whole = project.stack_dir(name) / file, lockfile.header(name) + text
        if not path.is_file() or path.read_bytes() != whole.encode():
            write(path, whole, scratch)
            changed = True
    return changed


def _debian(stack: Stack, scratch: Path, old: Lock | None) -> Sequence[Entry]:
    """The packages of the base layer: those of the old lock where they still do."""
    if old and _base(old.stack) == _base(stack) and not audit.lacking(old):
        return old.debian
    return debian.resolve(stack, scratch)


def _base(stack: Stack) -> tuple[str, tuple[str, ...]]:
    """What decides the base layer of a stack."""
    return stack.debian, debian.packages(stack)


def python(
    stack: Stack, scratch: Path, old: Lock | None, upgrade: Sequence[str] | None
) -> tuple[list[Entry], list[Entry]]:
    """The distributions of a stack, and those that build the source distributions among them."""
    return exactly(stack, scratch, _pins(stack, scratch, old, upgrade))


def _like(entries: Sequence[Entry], stack: Stack, scratch: Path, old: Lock | None) -> list[Entry]:
    """The distributions of a stack on another platform: the same versions as these. Raises BadInputError."""
    files = _best(stack, scratch, _pins(stack, scratch, old, None, [entry.pin for entry in entries]))
    known = {entry.sha256 for entry in entries}
    if lacking := [f"{file.name} {file.version}" for file in files if not file.is_wheel and file.sha256 not in known]:
        raise errors.BadInputError(
            f"no wheel for {stack.platform.name}: {', '.join(lacking)}",
            cause="a source distribution is built on amd64, and for another platform only where it is built anyway",
            next_step=f"choose another version in stack.toml, or take {word(stack.platform.name)} out of `platforms`",
        )
    return _entries(files)


def exactly(stack: Stack, scratch: Path, requirements: Sequence[str]) -> tuple[list[Entry], list[Entry]]:
    """The files of exactly these pins, and what builds the source distributions among them."""
    best = _best(stack, scratch, requirements)
    return _entries(best), _build_entries(stack, scratch, [file for file in best if not file.is_wheel])


def _existing(project: Project, name: str, platform: Platform) -> Lock | None:
    try:
        return lockfile.load(project, name, platform)
    except errors.BadInputError:
        return None


def _best(stack: Stack, scratch: Path, requirements: Sequence[str]) -> list[File]:
    return [files[0] for files in index.offers(stack, scratch, requirements)[0].values()]


def _entries(files: list[File]) -> list[Entry]:
    return sorted((Entry(file.name, file.version, file.sha256) for file in files), key=lambda entry: entry.name)


def _pins(
    stack: Stack, scratch: Path, old: Lock | None, upgrade: Sequence[str] | None, constraints: Sequence[str] = ()
) -> list[str]:
    target = scratch / "resolved.txt"
    target.unlink(missing_ok=True)
    limits = scratch / "constraints.txt"
    limits.write_text("".join(f"{line}\n" for line in constraints))
    options = ["-o", str(target), "--constraint", str(limits)]
    if old:
        # uv prefers the versions that its output file has already.
        target.write_text("".join(f"{entry.pin}\n" for entry in old.python))
    if upgrade is not None:
        distributions = [package for package in upgrade if package != "debian"]
        options += [f"--upgrade-package={package}" for package in distributions]
        if not upgrade:
            options.append("--upgrade")
    result = solver.compile_pins(stack, scratch, stack.requires, options)
    if result.returncode != 0:
        raise errors.BadInputError(
            f"the stack has no solution on {stack.platform.name}\n{solver.said(result.stderr)}",
            cause=solver.usual_cause(result.stderr),
            next_step="change `requires` in stack.toml, or record an [[override]] with its reason",
        )
    return pins.lines(pins.read(target.read_text()))


def refuse_upgrade(project: Project, name: str, packages: Sequence[str]) -> None:
    """Raise BadInputError for what no upgrade can move: a version, what is not locked, and a pin of stack.toml."""
    old = _existing(project, name, AMD64)
    if old is None or old.stack.extends:  # an extension says itself what is not its own
        return
    for package in packages:
        if package != "debian":
            _refuse(old, package)


def _refuse(old: Lock, package: str) -> None:
    try:
        requirement = Requirement(package)
    except InvalidRequirement as error:
        raise errors.BadInputError(f"{package!r} is not a package to upgrade", next_step="--upgrade NAME") from error
    name = lockfile.normalise(requirement.name)
    version = pins.exact(requirement)
    if old.stack.pinned.get(name, "") == old.versions.get(name):
        raise errors.BadInputError(
            f"{name} stays at {old.versions[name]}, whatever is upgraded",
            cause="stack.toml pins it",
            next_step=f"vetted recertify {word(old.name)} "
            f"--upgrade {word(name)}{f'=={word(version)}' if version else ''}, or change `requires` in stack.toml",
        )
    if name not in old.versions:
        close = difflib.get_close_matches(name, old.versions, n=1)
        raise errors.BadInputError(
            f"not in this lock: {name}" + (f"; did you mean {close[0]}?" if close else ""),
            next_step=f"vetted lock {word(old.name)} --upgrade {word(close[0])}"
            if close
            else f"vetted outdated {word(old.name)}",
        )
    if requirement.specifier:
        raise errors.BadInputError(
            f"{package!r}: an upgrade takes a name, without a version",
            next_step=f"vetted lock {word(old.name)} --upgrade {word(name)}, "
            f"or write {package!r} into `requires` of stack.toml",
        )


def _build_entries(stack: Stack, scratch: Path, sdists: list[File]) -> list[Entry]:
    lines = (metadata.build_requirements(index.download(sdist), sdist.filename) for sdist in sdists)
    requirements = sorted({line for own in lines for line in own})
    if not requirements:
        return []
    tools = stack.model_copy(update={"override": []})
    target = scratch / "build.txt"
    result = solver.compile_pins(tools, scratch, requirements, ["-o", str(target)])
    if result.returncode != 0:
        raise errors.from_tool("resolving the build requirements", result.output)
    return _entries(_best(tools, scratch, pins.lines(pins.read(target.read_text()))))
