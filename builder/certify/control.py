"""Controls: version sets that are known to be bad, which the suite must fail, each with a twin that must pass.

The folder lockfiles/controls/<name>/ has stack.toml with [expect], requirements.txt (the control's lock), twin.txt (the
twin's lock), build.txt and lock.toml. If patches make the control good, the twin is the same set with the patches, and
there is no twin.txt. Controls have no image: they are installed on the host, and only their distributions are locked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from builder.base import errors, reading
from builder.base.project import Project, write
from builder.base.text import word
from builder.certify import hostenv, suite
from builder.certify.cache import Cache
from builder.certify.certificate import ProbeResult
from builder.intent import stack
from builder.intent.stack import Control, Stack
from builder.lock import lockfile, resolve
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class Locked:
    """A control, its lock, and the lock of its twin."""

    name: str
    control: Control
    bad: Lock
    twin: Lock


@dataclass(frozen=True)
class Side:
    """The results on one side: a control or a twin. The same set may be a side of several controls."""

    lock: str  # its digest
    results: tuple[ProbeResult, ...]
    versions: Mapping[str, str] = field(default_factory=dict)

    def of(self, names: Sequence[str]) -> tuple[ProbeResult, ...]:
        """The results of these probes."""
        return tuple(result for result in self.results if result.name in names)


@dataclass(frozen=True)
class ControlResult:
    """The results of a control and of its twin."""

    name: str
    title: str
    fails: tuple[str, ...]  # the probes that must fail on the control, and pass on the twin
    reason: str  # the text that their reasons or logs must contain
    change: str  # what makes the control good
    bad: Side
    twin: Side
    patches: tuple[str, ...] = ()  # the patches that make it good; none if a distribution does

    @property
    def caught(self) -> bool:
        """Whether every probe that must fail did, for the expected reason."""
        results = self.bad.of(self.fails)
        return len(results) == len(self.fails) and all(
            _failed(result) and _mentions(result, self.reason) for result in results
        )

    @property
    def false_alarm(self) -> bool:
        """Whether a probe that must fail on the control did not pass on its twin."""
        results = self.twin.of(self.fails)
        return len(results) != len(self.fails) or any(result.outcome != "passed" for result in results)

    @property
    def good(self) -> bool:
        """Whether the suite tells the control from its twin."""
        return self.caught and not self.false_alarm


def _failed(result: ProbeResult) -> bool:
    return result.outcome not in ("passed", "not-run")


def _mentions(result: ProbeResult, reason: str) -> bool:
    return reason in f"{result.reason}\n{result.log_tail}"


def load(project: Project, name: str) -> Locked:
    """Read a control and its two locks. Raises BadInputError when one is missing, malformed or stale."""
    control = stack.load_control(project, name)
    folder = project.control_dir(name)
    command = f"vetted controls {word(name)} --lock"

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
    if meta != {"intent": lockfile.intent(control), "twin": lockfile.intent(control.good)}:
        raise errors.BadInputError(
            f"{project.relative(folder / 'stack.toml')} was changed after it was locked", next_step=command
        )

    def assemble(lock_name: str, stack_: Stack, file: str) -> Lock:
        patches = tuple(project.root / patch.file for patch in stack_.patch)
        epoch, digest = resolve.EPOCH[stack_.debian], lockfile.intent(stack_)
        return lockfile.assemble(lock_name, stack_, entries(file), entries("build.txt"), (), epoch, digest, patches)

    return Locked(
        name,
        control,
        assemble(f"control-{name}", control, "requirements.txt"),
        assemble(f"control-{name}-twin", control.good, "requirements.txt" if control.expect.patch else "twin.txt"),
    )


def make(project: Project, name: str, scratch: Path) -> bool:
    """Resolve a control and its twin and write their locks; True when anything changed.

    The twin keeps the control's versions wherever they fit: they should differ in nothing but the change. A twin that
    is only patched is the same set and has no lock of its own.
    """
    control = stack.load_control(project, name)
    try:
        old: Locked | None = load(project, name)
    except errors.BadInputError:
        old = None
    bad, bad_build = resolve.python(control, scratch, old.bad if old else None, None)
    head = f"# Written by `vetted controls {word(name)} --lock` from stack.toml: do not edit.\n"
    build = {entry.name: entry for entry in bad_build}
    contents: dict[str, str | None] = {"requirements.txt": head + lockfile.format_python(bad), "twin.txt": None}
    if not control.expect.patch:
        like = lockfile.assemble(name, control, tuple(bad), (), (), 0, "", ())
        twin, twin_build = resolve.python(control.good, scratch, like, None)
        build |= {entry.name: entry for entry in twin_build}
        contents["twin.txt"] = head + lockfile.format_python(twin)
    contents["build.txt"] = head + lockfile.format_python(build[key] for key in sorted(build))
    contents["lock.toml"] = head + f'intent = "{lockfile.intent(control)}"\ntwin = "{lockfile.intent(control.good)}"\n'
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


@dataclass(frozen=True)
class Run:
    """A run of the suite on the set of one side or more: it is installed once, and asked all their probes."""

    lock: Lock
    probes: tuple[str, ...]  # empty: all of them


def runs(controls: Sequence[Locked], *, full: bool) -> list[Run]:
    """The runs that these controls and their twins need: of the probes that must fail, or of all (`full`)."""
    locks: dict[str, Lock] = {}
    probes: dict[str, dict[str, None]] = {}
    for locked in controls:
        for lock in (locked.bad, locked.twin):
            locks.setdefault(lock.digest, lock)
            probes.setdefault(lock.digest, {}).update(dict.fromkeys(locked.control.expect.fails))
    return [Run(lock, () if full else tuple(probes[digest])) for digest, lock in locks.items()]


def run(project: Project, run_: Run, root: Path, scratch: Path, report: Callable[[str], None], cache: Cache) -> Side:
    """Run the suite that lies below `root` on a set. Nobody else may use `scratch`."""
    lock = run_.lock
    report(f"{lock.name}: installing")
    with hostenv.temporary(project, lock, scratch, lambda _: None, cache) as environment:
        report(f"{lock.name}: running")
        runner = suite.on_host(environment, root, scratch / "run")
        answer = suite.run(
            runner, suite.Request(lock.stack.device, lock.versions, run_.probes), scratch, lambda _: None
        )
    return Side(lock.digest, answer.results, lock.versions)


def result(locked: Locked, sides: Mapping[str, Side], *, full: bool) -> ControlResult:
    """The results of a control and its twin, from those of all sides by the digests of their locks."""
    expect = locked.control.expect

    def side(lock: Lock) -> Side:
        every = sides[lock.digest]
        return every if full else replace(every, results=every.of(expect.fails))

    return ControlResult(
        locked.name, locked.control.title, tuple(expect.fails), expect.reason, expect.change,
        side(locked.bad), side(locked.twin), tuple(expect.patch or ()),
    )  # fmt: skip


class Headline(TypedDict):
    """The number that stands for a probe."""

    name: str
    value: float | int | str | bool | None
    unit: str


class ProbeRow(TypedDict):
    """The result of a probe, as JSON."""

    probe: str
    outcome: str
    reason: str | None
    seconds: float
    headline: Headline | None


class Row(TypedDict):
    """The results of a control and of its twin, as JSON."""

    control: str
    title: str
    expected: list[str]
    reason: str
    twin: str
    patches: list[str]
    caught: bool
    false_alarm: bool
    control_lock: str
    twin_lock: str
    on_control: list[ProbeRow]
    on_twin: list[ProbeRow]


class Summary(TypedDict):
    """The results of several controls, as JSON: how many there are, and how many of them the suite caught."""

    controls: int
    caught: int
    sensitivity: float
    false_alarms: int
    rows: list[Row]


def summary(results: Sequence[ControlResult]) -> Summary:
    """The results of a run of controls, as docs/evidence/ records them."""
    caught = sum(result.caught for result in results)
    return {
        "controls": len(results),
        "caught": caught,
        "sensitivity": caught / len(results),
        "false_alarms": sum(result.false_alarm for result in results),
        "rows": [_row(result) for result in results],
    }


def _row(result: ControlResult) -> Row:
    return {
        "control": result.name,
        "title": result.title,
        "expected": list(result.fails),
        "reason": result.reason,
        "twin": result.change,
        "patches": list(result.patches),
        "caught": result.caught,
        "false_alarm": result.false_alarm,
        "control_lock": result.bad.lock,
        "twin_lock": result.twin.lock,
        "on_control": [_probe_row(probe) for probe in result.bad.results],
        "on_twin": [_probe_row(probe) for probe in result.twin.results],
    }


def _probe_row(result: ProbeResult) -> ProbeRow:
    headline = result.headline
    return {
        "probe": result.name,
        "outcome": result.outcome,
        "reason": result.reason,
        "seconds": result.seconds,
        "headline": {"name": headline.name, "value": headline.value, "unit": headline.unit} if headline else None,
    }
