"""The lock of an extension: the parent's lock, unchanged, and what its own packages need beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.base import errors, pins
from builder.base.project import Project
from builder.base.text import word
from builder.intent.stack import Stack
from builder.lock import audit, debian, index, lockfile, metadata, solver
from builder.lock.index import File
from builder.lock.lockfile import Entry, Lock, Own

Lines = Mapping[str, str]  # normalised name -> requirement
PROOF = "No solution found"  # uv says so before its proof; other errors are of builds
WHEELS, WITHOUT_WHEEL = "--no-build", "no usable wheels"
WORD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Conflict:
    """Why requirements have no solution beside a parent: its pins that are in the way, and uv's words."""

    pins: tuple[str, ...]
    words: str

    @property
    def obstacle(self) -> str:
        """The pins in one line; uv's words where no pin is in the way."""
        return ", ".join(self.pins) or self.words


def base_of(project: Project, stack: Stack, old: Lock | None) -> Lock:
    """The parent's lock: as it is in the extension's own lock, else the project's. Raises BadInputError."""
    extends = stack.extends
    assert extends is not None
    if old and old.stack.extends and old.parent.digest == extends.lock:
        parent = old.parent
    else:
        parent = lockfile.load(project, extends.stack)
    if parent.digest == extends.lock:
        return replace(parent, stack=parent.stack.beside(stack.sources))
    raise errors.BadInputError(
        f"the lock of {extends.stack} is not the one that is extended\n"
        f"expected {extends.lock}\ngot      {parent.digest}",
        cause=f"{extends.stack} was locked anew, and the extension's own lock is missing or was edited",
        next_step="git checkout the extension's lock, or vetted extend again",
    )


def solve(base: Lock, lines: Lines, scratch: Path, keep: Sequence[str] = ()) -> dict[str, str]:
    """The versions of what requirements need beside a parent, by normalised name. `keep`: pins that are preferred.

    Raises BadInputError when there is no solution.
    """
    if not lines:
        return {}
    versions, output = _attempt(base, base.versions, lines, scratch, keep)
    if versions is not None:
        return {name: version for name, version in versions.items() if name not in base.versions}
    clash = conflict(base, lines, scratch)
    what = f"{base.name} has no place for {', '.join(lines.values())}"
    if clash and clash.pins:
        what += f"\n  in the way: {', '.join(clash.pins)} of {base.name}"
    raise errors.BadInputError(
        f"{what}\n  uv: {clash.words if clash else solver.in_short(output)}",
        cause="a requirement excludes a version that the parent has, or no release has a file for its Python",
        next_step="ask for other versions, or extend another stack: vetted list",
    )


def conflict(base: Lock, lines: Lines, scratch: Path) -> Conflict | None:
    """What is in the way of requirements beside a parent; None when nothing is.

    uv resolves them again with the parent's versions as wishes. The pins that are in the way are among those that it
    then leaves; where there is no solution at all, those that its proof names.
    """
    versions, proof = _attempt(base, base.versions, lines, scratch)
    if versions is not None:
        return None
    wishes = pins.lines(base.versions)
    moved, _ = _attempt(base, {}, lines, scratch, wishes)
    if moved is None:
        words = {canonicalize_name(match[0]) for match in WORD.finditer(proof)}
        left = {name: version for name, version in base.versions.items() if name in words}
    else:
        left = {name: version for name, version in base.versions.items() if moved.get(name, version) != version}
        left = _necessary(base, lines, scratch, left)
    return Conflict(_shown(left), solver.in_short(proof))


def _necessary(base: Lock, lines: Lines, scratch: Path, left: Lines) -> dict[str, str]:
    """Those of the pins that uv left which it must leave: it takes the newest of what it moves, with all that needs."""
    gone = dict(left)
    for name in left if len(left) > 1 else ():
        limits = {each: version for each, version in base.versions.items() if each == name or each not in gone}
        if _attempt(base, limits, lines, scratch)[0] is not None:
            del gone[name]
    return gone


def _attempt(
    base: Lock, limits: Lines, lines: Lines, scratch: Path, keep: Sequence[str] = ()
) -> tuple[dict[str, str] | None, str]:
    """A solution, or None and uv's proof. Nothing is built, unless something needed has no wheel: far enough back, a
    resolver finds releases that no longer build, one after the other.
    """
    versions, output = _compile(base.stack, limits, lines, scratch, keep, [WHEELS])
    if versions is None and WITHOUT_WHEEL in output:
        again, other = _compile(base.stack, limits, lines, scratch, keep)
        return again, other if PROOF in other else output
    return versions, output


def _shown(versions: Lines) -> tuple[str, ...]:
    return tuple(f"{name} {version}" for name, version in sorted(versions.items()))


def _compile(
    stack: Stack, limits: Lines, lines: Lines, scratch: Path, keep: Sequence[str] = (), options: Sequence[str] = ()
) -> tuple[dict[str, str] | None, str]:
    """The versions that uv finds, or None; and what it printed."""
    constraints, target = scratch / "constraints.txt", scratch / "extended.txt"
    constraints.write_text("".join(f"{line}\n" for line in pins.lines(limits)))
    target.write_text("".join(f"{line}\n" for line in keep))  # uv prefers what is in its output file already
    options = ["--constraint", str(constraints), "-o", str(target), *options]
    result = solver.compile_pins(stack, scratch, list(lines.values()), options)
    return (None, result.stderr) if result.returncode != 0 else (pins.read(target.read_text()), result.stderr)


def make(
    project: Project,
    name: str,
    stack: Stack,
    scratch: Path,
    old: Lock | None = None,
    upgrade: Sequence[str] | None = None,
) -> Lock:
    """Resolve an extension. `upgrade` is as for any stack, and moves nothing of the parent's.

    Raises BadInputError when there is no solution beside the parent, or a second CUDA in it; NetworkError.
    """
    extends = stack.extends
    assert extends is not None
    base = base_of(project, stack, old)
    chosen = [lockfile.normalise(each) for each in upgrade or () if each != "debian"]
    if theirs := [each for each in chosen if each in base.versions]:
        raise not_own(base.name, name, theirs[0])
    # An extra of a package that the parent has may need more packages.
    lines = {key: line for key, line in stack.packages.items() if key not in base.versions or Requirement(line).extras}
    kept = (
        {} if upgrade == [] or old is None else {key: old.versions[key] for key in old.own.python if key not in chosen}
    )
    python, sources = _files(base.stack, solve(base, lines, scratch, pins.lines(kept)), scratch)
    build = _build(base, [index.download(file) for file in sources], scratch)
    packages = [entry for entry in old.debian if entry.name in old.own.debian] if old else []
    earlier = old.stack.extends.debian if old and old.stack.extends else []
    if extends.debian != earlier or upgrade == [] or "debian" in (upgrade or ()):
        packages = debian.beside(project, base, extends.debian, scratch)
    if mixed := audit.cuda_majors(stack.device, [*base.python, *python]):
        raise errors.BadInputError(
            f"{name}: {mixed[0].what}",
            cause="an own package brings CUDA libraries, beside what the parent was certified with",
            next_step="ask for a build of it without them, or for the parent's CUDA",
        )
    return lockfile.assemble(
        name,
        stack,
        # In the parent's order, of which its digest is made; what is own comes last.
        (*base.python, *_sorted(python)),
        (*base.build, *_sorted(build)),
        (*base.debian, *_sorted(packages)),
        base.epoch,
        lockfile.intent(stack),
        tuple(project.root / patch.file for patch in stack.patch),
        Own(*(tuple(sorted(each.name for each in kind)) for kind in (python, sources, build, packages))),
    )


def not_own(parent: str, name: str, package: str) -> errors.BadInputError:
    """The error for an upgrade of what an extension has from its parent."""
    return errors.BadInputError(
        f"{package} belongs to {parent}, which {name} extends",
        next_step=f"vetted recertify {word(parent)} --upgrade {word(package)}, then vetted extend {word(parent)} again",
    )


def plain(stack: Stack) -> Stack:
    """The stack without overrides, which keep distributions from being looked up."""
    return stack.model_copy(update={"override": []})


def _files(stack: Stack, versions: Lines, scratch: Path) -> tuple[list[Entry], list[File]]:
    """The files of these versions, and the source distributions among them."""
    if not versions:
        return [], []
    files = [offers[0] for offers in index.offers(plain(stack), scratch, pins.lines(versions))[0].values()]
    entries = [Entry(file.name, file.version, file.sha256) for file in files]
    return entries, [file for file in files if not file.is_wheel]


def _sorted(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.name)


def _build(base: Lock, sources: Sequence[bytes], scratch: Path) -> list[Entry]:
    """What builds the own source distributions, beside what builds the parent's."""
    requirements = sorted({line for source in sources for line in metadata.build_requirements(source)})
    if not requirements:
        return []
    tools = {entry.name: entry.version for entry in base.build}
    versions, output = _compile(plain(base.stack), tools, {line: line for line in requirements}, scratch)
    if versions is None:
        raise errors.from_tool("resolving the build requirements", output)
    return _files(base.stack, {name: each for name, each in versions.items() if name not in tools}, scratch)[0]
