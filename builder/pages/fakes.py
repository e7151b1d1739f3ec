"""Machines that do not exist: what each part says on them, in the documents."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from builder.base.project import Project
from builder.intent import stack
from builder.lock import lockfile
from builder.pages import cells, evidence, suite
from builder.pages.cells import DASH, Markdown
from builder.pages.records import Model, Record

BREAK = "<br>"
REASON = 140  # characters of a reason in a cell; a probe with rows names each of them
COLUMNS = ("GPU, driver", "`vetted use`", "compose gives `train`", "`vetted preflight`", "suite", "certificate")


class Check(Model):
    """A line of `vetted preflight`."""

    level: str
    says: str


class Container(Model):
    """What compose gives a container: parts of the driver, and CUDA_VISIBLE_DEVICES."""

    driver: list[str]
    visible: str


class FakeMachine(Model):
    """What is said on a machine that does not exist. `chosen`: None where `vetted use` refuses, and `reason` is why.

    `hardware`: as a certificate would name it, or why `vetted certify` does not begin.
    """

    title: str
    gpus: list[str]
    driver: str
    chosen: str | None
    reason: str
    container: Container | None
    preflight: list[Check]
    hardware: str


class Attempt(Model):
    """A run of the suite for a certificate. `red` and `not_run`: probes by the reason. `whole`: all were asked."""

    whole: bool
    passed: list[str]
    red: dict[str, list[str]]
    not_run: dict[str, list[str]]
    certified: bool


class Attempts(Model):
    """Those on machines that do not exist, by their title: measured by themselves, because they take half an hour."""

    date: str
    machine: str
    command: str
    suite: str
    lock: str
    by_machine: dict[str, Attempt]


class FakeGpus(Record):
    FILE = "fake-gpus"

    stack: str
    machines: list[FakeMachine]
    attempts: Attempts | None = None


def fakes(project: Project) -> str:
    """A row for each machine: the answers of use, compose, preflight, suite and certify."""
    record = evidence.read(project, FakeGpus)
    if record is None:
        return suite.NOT_MEASURED
    attempts = record.attempts.by_machine if record.attempts else {}
    rows = [
        [
            _named(machine), _chosen(machine), _container(machine.container),
            cells.joined([f"{check.level}: {check.says}" for check in machine.preflight], BREAK),
            _suite(attempts.get(machine.title)), _certificate(machine, attempts.get(machine.title)),
        ]
        for machine in record.machines
    ]  # fmt: skip
    return f"{_sources(project, record)}\n\n{cells.table([Markdown(name) for name in COLUMNS], rows)}"


def _sources(project: Project, record: FakeGpus) -> str:
    source = f"Preflight, suite and certificate are those of {cells.code(record.stack)}. {suite.measured(record)}."
    if (tried := record.attempts) is None:
        return f"{source} The suite has not run on them yet."
    known = record.stack in stack.names(project) and tried.lock == lockfile.load(project, record.stack).digest
    older = suite.older_suite(project, tried.suite) + ("" if known else ", an earlier lock")
    return (
        f"{source} Suite and certificate: on {cells.escaped(tried.date)} ({cells.escaped(tried.machine)}) by "
        f"{cells.code(tried.command)}; suite {cells.short(tried.suite)}{older}."
    )


def _named(machine: FakeMachine) -> Markdown:
    return cells.joined([machine.title, *([machine.driver] if machine.driver else [])], BREAK)


def _chosen(machine: FakeMachine) -> Markdown:
    return cells.code(machine.chosen) if machine.chosen else cells.escaped(f"refuses: {machine.reason}")


def _container(container: Container | None) -> Markdown:
    if container is None:
        return Markdown("no GPU")
    visible = cells.code(f"CUDA_VISIBLE_DEVICES={container.visible}")
    return Markdown(f"the driver's {cells.joined(container.driver, ' and ')}; {visible}")


def _suite(attempt: Attempt | None) -> Markdown:
    return cells.joined(_outcomes(attempt), BREAK) if attempt else DASH


def _outcomes(attempt: Attempt) -> Iterator[Markdown]:
    if not attempt.whole:
        yield Markdown("some probes alone:")
    yield Markdown(f"passed: {cells.codes(attempt.passed) or 'none'}")
    for word, reasons in (("red", attempt.red), ("not run", attempt.not_run)):
        for reason, probes in reasons.items():
            yield Markdown(f"{len(probes)} {word}: {cells.escaped(textwrap.shorten(reason, REASON, placeholder=' …'))}")


def _certificate(machine: FakeMachine, attempt: Attempt | None) -> Markdown:
    if attempt is None:
        return DASH if machine.driver else cells.escaped(machine.hardware)
    return Markdown(f"{'**issued**' if attempt.certified else 'none'} for {cells.escaped(machine.hardware)}")
