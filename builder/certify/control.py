"""Controls: version sets that are known to be bad, and that the suite must fail, each with a twin that must pass.

A control lies in lockfiles/controls/<name>/: stack.toml with [expect], requirements.txt (its lock), twin.txt (that of
the twin), build.txt and lock.toml. Where a patch makes the control good, the twin is the same set, patched, and there
is no twin.txt. A control is no image: controls are installed on the host, and only the distributions are locked.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.base import errors, reading
from builder.base.project import Project, write
from builder.certify import hostenv, suite
from builder.certify.certificate import ProbeResult
from builder.certify.suite import Request
from builder.intent import stack
from builder.intent.stack import Control, Stack
from builder.lock import lockfile, resolve
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class Locked:
    """A control with the locks of both sides."""

    name: str
    control: Control
    bad: Lock
    twin: Lock


@dataclass(frozen=True)
class Side:
    """What the suite said of one side: the results of the probes that were run."""

    lock: str
    results: tuple[ProbeResult, ...]
    versions: Mapping[str, str] = field(default_factory=dict)

    def of(self, names: Sequence[str]) -> tuple[ProbeResult, ...]:
        return tuple(result for result in self.results if result.name in names)


@dataclass(frozen=True)
class Seen:
    """A control, and what the suite said of it and of its twin."""

    name: str
    title: str
    fails: tuple[str, ...]
    reason: str
    change: str
    bad: Side
    twin: Side
    patches: tuple[str, ...] = ()  # those that make it good; none where another distribution does

    @property
    def caught(self) -> bool:
        """Every probe that must fail did, and for the reason that is expected."""
        found = self.bad.of(self.fails)
        return len(found) == len(self.fails) and all(_red(result) and _says(result, self.reason) for result in found)

    @property
    def false_alarm(self) -> bool:
        """A probe that must fail on the control did not pass on its twin."""
        found = self.twin.of(self.fails)
        return len(found) != len(self.fails) or any(result.outcome != "passed" for result in found)

    @property
    def good(self) -> bool:
        return self.caught and not self.false_alarm


def _red(result: ProbeResult) -> bool:
    return result.outcome not in ("passed", "not-run")


def _says(result: ProbeResult, reason: str) -> bool:
    return reason in f"{result.reason}\n{result.log_tail}"


def load(project: Project, name: str) -> Locked:
    """Read a control and its two locks. Raises BadInputError when one is missing, malformed or stale."""
    wanted = stack.load_control(project, name)
    folder = project.control_dir(name)
    command = f"vetted controls {name} --lock"

    def read(file: str) -> str:
        try:
            return reading.text(folder / file, project.relative(folder / file), command)
        except FileNotFoundError as error:
            raise errors.BadInputError(
                f"{project.relative(folder / file)} is missing",
                cause="the control was never locked",
                next_step=command,
            ) from error

    def entries(file: str) -> tuple[lockfile.Entry, ...]:
        return lockfile.parse(read(file), lockfile.PIN, project.relative(folder / file), command)

    meta = reading.parse_toml(read("lock.toml"), project.relative(folder / "lock.toml"), command)
    if meta != {"intent": lockfile.intent(wanted), "twin": lockfile.intent(wanted.good)}:
        raise errors.BadInputError(
            f"{project.relative(folder / 'stack.toml')} was changed after it was locked", next_step=command
        )

    def assemble(which: str, of: Stack, file: str) -> Lock:
        patches = tuple(project.root / patch.file for patch in of.patch)
        return lockfile.assemble(
            which, of, entries(file), entries("build.txt"), (), resolve.EPOCH[of.debian], lockfile.intent(of), patches
        )

    return Locked(
        name,
        wanted,
        assemble(f"control-{name}", wanted, "requirements.txt"),
        assemble(f"control-{name}-twin", wanted.good, "requirements.txt" if wanted.expect.patch else "twin.txt"),
    )


def make(project: Project, name: str, scratch: Path) -> bool:
    """Resolve a control and its twin and write their locks; True when anything changed.

    The twin keeps every version of the control that fits it: nothing but the change shall tell them apart. One that is
    only patched is the same set, and has no lock of its own.
    """
    wanted = stack.load_control(project, name)
    try:
        old: Locked | None = load(project, name)
    except errors.BadInputError:
        old = None
    bad, bad_build = resolve.python(wanted, scratch, old.bad if old else None, None)
    head = f"# Written by `vetted controls {name} --lock` from stack.toml: do not edit.\n"
    build = {entry.name: entry for entry in bad_build}
    contents: dict[str, str | None] = {"requirements.txt": head + lockfile.format_python(bad), "twin.txt": None}
    if not wanted.expect.patch:
        like = lockfile.assemble(name, wanted, tuple(bad), (), (), 0, "", ())
        twin, twin_build = resolve.python(wanted.good, scratch, like, None)
        build |= {entry.name: entry for entry in twin_build}
        contents["twin.txt"] = head + lockfile.format_python(twin)
    contents["build.txt"] = head + lockfile.format_python(build[key] for key in sorted(build))
    contents["lock.toml"] = head + f'intent = "{lockfile.intent(wanted)}"\ntwin = "{lockfile.intent(wanted.good)}"\n'
    changed = False
    for file, text in contents.items():
        path = project.control_dir(name) / file
        if text is None:
            changed |= path.is_file()
            path.unlink(missing_ok=True)
        elif not path.is_file() or path.read_bytes() != text.encode():
            write(path, text, scratch)
            changed = True
    return changed


def run(
    project: Project, locked: Locked, root: Path, scratch: Path, report: Callable[[str], None], *, full: bool = False
) -> Seen:
    """Run the suite copied below `root` on the control and on its twin.

    Only the probes that must fail are run, or with `full` all of them.
    """
    probes = () if full else tuple(locked.control.expect.fails)
    sides = {}
    for side, lock in (("control", locked.bad), ("twin", locked.twin)):
        own = scratch / side
        own.mkdir()
        report(f"{locked.name}: installing the {side}")
        environment = hostenv.prepare(project, lock, own, lambda _: None, keep=False, cache=scratch / "uv")
        report(f"{locked.name}: running the {side}")
        try:
            answer = suite.run(
                suite.on_host(environment, root, own / "run"),
                Request(locked.control.device, lock.versions, probes),
                own,
                lambda _: None,
            )
        finally:
            shutil.rmtree(environment, ignore_errors=True)
        sides[side] = Side(lock.digest, answer.results, lock.versions)
    expect = locked.control.expect
    return Seen(
        locked.name, locked.control.title, tuple(expect.fails), expect.reason, expect.change,
        sides["control"], sides["twin"], tuple(expect.patch or ()),
    )  # fmt: skip


def measured(seen: Sequence[Seen]) -> dict[str, Any]:
    """What a run of controls showed, as JSON."""
    caught = sum(one.caught for one in seen)
    alarms = sum(one.false_alarm for one in seen)
    return {
        "controls": len(seen),
        "caught": caught,
        "sensitivity": caught / len(seen),
        "false_alarms": alarms,
        "rows": [
            {
                "control": one.name,
                "title": one.title,
                "expected": list(one.fails),
                "reason": one.reason,
                "twin": one.change,
                "patches": list(one.patches),
                "caught": one.caught,
                "false_alarm": one.false_alarm,
                "control_lock": one.bad.lock,
                "twin_lock": one.twin.lock,
                "on_control": [_row(result) for result in one.bad.results],
                "on_twin": [_row(result) for result in one.twin.results],
            }
            for one in seen
        ],
    }


def _row(result: ProbeResult) -> dict[str, Any]:
    headline = result.headline
    return {
        "probe": result.name,
        "outcome": result.outcome,
        "reason": result.reason,
        "seconds": result.seconds,
        "headline": {"name": headline.name, "value": headline.value, "unit": headline.unit} if headline else None,
    }
