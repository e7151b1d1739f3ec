"""Running the suite on a stack, and issuing the certificate that the run earned."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, machine, sources
from builder.base.machine import Hardware
from builder.base.project import Project, write
from builder.certify import certificate, compiler, engine, hostenv, judgement, suite
from builder.certify.certificate import Differences, Resource, Statement
from builder.certify.judgement import Terms
from builder.certify.suite import Runner
from builder.certify.transcript import Answer, Event
from builder.image import build, daemon
from builder.image.buildx import BuildStep
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class Options:
    """The options of `vetted certify`."""

    device: str
    engine: str  # docker | host
    probes: tuple[str, ...] = ()  # empty: all of them
    force: bool = False


@dataclass(frozen=True)
class Certification:
    """The statement about a stack: a certificate, where `certificate` is its file, or else a report.

    `reused`: nothing was run. `doubts`: the doubts about a run that passed.
    """

    statement: Statement
    certificate: Path | None
    report: Path | None
    reused: bool
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """What a statement is about, how the suite runs in it, and the engine's description."""

    resource: Resource
    runner: Runner
    engine: dict[str, str]
    inputs: str | None = None  # the digest of everything that an image is made of


def certified(project: Project, lock: Lock, options: Options) -> Certification | None:
    """The certificate that makes a run needless: its subject is here, it holds today, and the hardware is the same."""
    path = certificate.path(project, lock.name, options.device, options.engine)
    if options.force or shortcoming(lock, options) or not path.is_file():
        return None
    if options.engine == "docker":
        built = build.existing(project, lock)
        subject = built.image.manifest if built else None
    else:
        subject = lock.digest if hostenv.path(project, lock).is_dir() else None
    if subject is None:
        return None
    try:
        statement = certificate.read(path)
    except errors.BadInputError:
        return None  # damaged: a run writes a new one
    if statement.hardware != machine.hardware(options.device).hardware_class:
        return None
    image = subject if options.engine == "docker" else None
    if not judgement.is_valid(statement, judgement.terms(project, lock), image):
        return None
    return Certification(statement, path, None, reused=True)


def shortcoming(lock: Lock, options: Options) -> str | None:
    """Why a run with these options proves too little for a certificate, even when it passes; None when it does not."""
    if options.probes:
        return "only some probes ran"
    if options.device != lock.stack.device:
        return f"the stack is made for {lock.stack.device}, and ran on {options.device}"
    return None


def run(
    project: Project,
    lock: Lock,
    options: Options,
    scratch: Path,
    on_build: Callable[[BuildStep], None],
    on_event: Callable[[Event], None],
) -> Certification:
    """Build the image or environment of a lock, run the suite in it, and write the certificate or the report."""
    if reused := certified(project, lock, options):
        return reused
    machine.hardware(options.device)  # a missing GPU is an error before any work begins
    root = scratch / "suite"
    identity = sources.copy(project.smoke, root)
    place = subject(project, lock, options, root, scratch, on_build)
    statement = examine(lock, options, place, identity, scratch, on_event)
    doubts = doubts_about(statement, judgement.terms(project, lock, root / "smoke"), place)
    earned = statement.predicate.issued is not None and not doubts
    where = (certificate.path if earned else certificate.report_path)(
        project, lock.name, options.device, options.engine
    )
    where.with_suffix(".dsse").unlink(missing_ok=True)  # the signature of an earlier one
    write(where, statement.to_json() if earned else statement.undated().to_json(), scratch)
    return Certification(statement, where if earned else None, None if earned else where, reused=False, doubts=doubts)


def examine(
    lock: Lock,
    options: Options,
    subject: Subject,
    identity: str,
    scratch: Path,
    on_event: Callable[[Event], None],
    differences: Differences | None = None,
) -> Statement:
    """Run the suite, whose digest is `identity`, on a subject; the statement is dated when everything has passed."""
    answer = suite.run(subject.runner, suite.Request(options.device, lock.versions, options.probes), scratch, on_event)
    hardware = machine.hardware(options.device)
    return stated(lock, options, subject, identity, answer, hardware, certificate.today(), differences)


def stated(
    lock: Lock, options: Options, subject: Subject, identity: str, answer: Answer, hardware: Hardware,
    day: datetime.date, differences: Differences | None = None,
) -> Statement:  # fmt: skip
    """The statement about a run that ended on `day`; dated when everything has passed."""
    statement = certificate.statement(
        subject=subject.resource, lock=lock.digest, suite=identity, hardware=hardware, engine=subject.engine,
        python=answer.python, probes=list(answer.results), differences=differences, inputs=subject.inputs,
    )  # fmt: skip
    return statement.dated(day) if statement.earned and not shortcoming(lock, options) else statement


def doubts_about(statement: Statement, terms: Terms, subject: Subject) -> tuple[str, ...]:
    """The doubts about a run that has passed. A run that has not passed needs no judgement."""
    if statement.predicate.issued is None:
        return ()
    image = subject.resource.digest if subject.inputs else None
    return tuple(judgement.doubts(statement, terms, f"sha256:{image.sha256}" if image else None))


def subject(
    project: Project, lock: Lock, options: Options, root: Path, scratch: Path, on_build: Callable[[BuildStep], None]
) -> Subject:
    """Build the image or environment of a lock, for a suite that lies below `root`."""
    prepare = _in_image if options.engine == "docker" else _on_host
    return prepare(project, lock, options, root, scratch, on_build)


def _in_image(
    project: Project, lock: Lock, options: Options, root: Path, scratch: Path, on_build: Callable[[BuildStep], None]
) -> Subject:
    docker = daemon.docker()
    engine.remove_leftovers(project, lock.name)
    built = build.build(project, lock, scratch, on_build)
    on_build(BuildStep(0, 0, "loading the image into Docker"))
    loaded = daemon.load(built.image, built.reference)
    label, memory = engine.run_label(project, lock.name), suite.memory_mib()
    return Subject(
        Resource(name=built.reference, digest=certificate.bare(loaded.digest)),
        Runner(engine.in_image(root, label, loaded.reference, lock.stack.python, options.device, memory)),
        {"name": "docker", "version": docker.version, "buildkit": built.buildkit, "kernel": docker.kernel},
        built.inputs,
    )


def _on_host(
    project: Project, lock: Lock, options: Options, root: Path, scratch: Path, on_build: Callable[[BuildStep], None]
) -> Subject:
    environment = hostenv.prepare(project, lock, scratch, lambda message: on_build(BuildStep(0, 0, message)))
    if options.device == "cuda":
        compiler.require(lock, environment)
    return on_host(lock, environment, root, scratch)


def on_host(lock: Lock, environment: Path, root: Path, scratch: Path) -> Subject:
    """The subject of a lock's environment on this host; the suite lies below `root`."""
    return Subject(
        Resource(name=f"lockfiles/{lock.name}", digest=certificate.bare(lock.digest)),
        suite.on_host(environment, root, scratch / "run"),
        {"name": "host", "system": system(), "kernel": platform.release()},
    )


def system() -> str:
    """The name of this machine's system."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()
