"""Makes a lock: uv resolves the distributions, apt the Debian packages; then the files are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from builder.base import errors, pins
from builder.base.project import Project, write
from builder.intent.stack import Stack
from builder.lock import debian, index, lockfile, metadata, solver
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
    folder = project.stack_dir(name)
    old = _existing(project, name)
    keeps_debian = upgrade is None or (bool(upgrade) and "debian" not in upgrade)
    entries, build = python(stack, scratch, old, upgrade)
    if old and keeps_debian and _base(old.stack) == _base(stack):
        packages = list(old.debian)
    else:
        packages = debian.resolve(stack, scratch)
    head = lockfile.header(name)
    contents = {
        "requirements.txt": head + lockfile.format_python(entries),
        "build.txt": head + lockfile.format_python(build),
        "debian.txt": head + lockfile.format_debian(packages),
    }
    contents["lock.toml"] = head + lockfile.format_meta(lockfile.intent(stack), EPOCH[stack.debian])
    changed = False
    for file, text in contents.items():
        path = folder / file
        if not path.is_file() or path.read_bytes() != text.encode():
            write(path, text, scratch)
            changed = True
    return changed


def _base(stack: Stack) -> tuple[str, tuple[str, ...]]:
    """What decides the base layer of a stack."""
    return stack.debian, debian.packages(stack)


def python(
    stack: Stack, scratch: Path, old: Lock | None, upgrade: Sequence[str] | None
) -> tuple[list[Entry], list[Entry]]:
    """The distributions of a stack, and those that build the source distributions among them."""
    return exactly(stack, scratch, _pins(stack, scratch, old, upgrade))


def exactly(stack: Stack, scratch: Path, requirements: Sequence[str]) -> tuple[list[Entry], list[Entry]]:
    """The files of exactly these pins, and what builds the source distributions among them."""
    best = _best(stack, scratch, requirements)
    return _entries(best), _build_entries(stack, scratch, [file for file in best if not file.is_wheel])


def _existing(project: Project, name: str) -> Lock | None:
    try:
        return lockfile.load(project, name)
    except errors.BadInputError:
        return None


def _best(stack: Stack, scratch: Path, requirements: Sequence[str]) -> list[File]:
    return [files[0] for files in index.offers(stack, scratch, requirements)[0].values()]


def _entries(files: list[File]) -> list[Entry]:
    return sorted((Entry(file.name, file.version, file.sha256) for file in files), key=lambda entry: entry.name)


def _pins(stack: Stack, scratch: Path, old: Lock | None, upgrade: Sequence[str] | None) -> list[str]:
    target = scratch / "resolved.txt"
    options = ["-o", str(target)]
    if old:
        # uv prefers the versions that its output file has already.
        target.write_text("".join(f"{entry.pin}\n" for entry in old.python))
    if upgrade is not None:
        distributions = [package for package in upgrade if package != "debian"]
        unknown = [package for package in distributions if old and lockfile.normalise(package) not in old.versions]
        if unknown:
            raise errors.BadInputError(f"not in this lock: {', '.join(unknown)}", next_step="vetted lock --upgrade all")
        options += [f"--upgrade-package={package}" for package in distributions]
        if not upgrade:
            options.append("--upgrade")
    result = solver.compile_pins(stack, scratch, stack.requires, options)
    if result.returncode != 0:
        raise errors.BadInputError(
            "the stack has no solution\n" + result.stderr.strip(),
            cause="two of its requirements exclude each other",
            next_step="change `requires` in stack.toml, or record an [[override]] with its reason",
        )
    return pins.lines(pins.read(target.read_text()))


def _build_entries(stack: Stack, scratch: Path, sdists: list[File]) -> list[Entry]:
    requirements = sorted({line for sdist in sdists for line in metadata.build_requirements(index.download(sdist))})
    if not requirements:
        return []
    tools = stack.model_copy(update={"override": []})
    target = scratch / "build.txt"
    result = solver.compile_pins(tools, scratch, requirements, ["-o", str(target)])
    if result.returncode != 0:
        raise errors.from_tool("resolving the build requirements", result.output)
    return _entries(_best(tools, scratch, pins.lines(pins.read(target.read_text()))))
