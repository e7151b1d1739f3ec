"""Running the suite on a stack, and issuing the certificate that the run earned."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, machine, sources
from builder.base.project import Project, write
from builder.certify import certificate, engine, hostenv, judgement, suite
from builder.certify.certificate import Differences, Resource, Statement
from builder.certify.judgement import Terms
from builder.certify.suite import Asked, Event, Runner
from builder.image import build, daemon
from builder.image.buildx import Step
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class Request:
    """What a person asked for."""

    device: str
    engine: str  # docker | host
    probes: tuple[str, ...] = ()  # empty: all of them
    force: bool = False


@dataclass(frozen=True)
class Outcome:
    """`statement` is a certificate when `certificate` is set, else a report; `reused` when nothing was run.

    `doubts` are what speaks against a run that passed.
    """

    statement: Statement
    certificate: Path | None
    report: Path | None
    reused: bool
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """What the statement speaks of, how the suite runs in it, and what the engine says of itself."""

    resource: Resource
    runner: Runner
    engine: dict[str, str]
    inputs: str | None = None  # the digest of what an image was made of


def certified(project: Project, lock: Lock, request: Request) -> Outcome | None:
    """The certificate that says already what a run would show: the subject is here, and the key is the same."""
    path = certificate.path(project, lock.name, request.device, request.engine)
    if request.force or shortcoming(lock, request) or not path.is_file():
        return None
    if request.engine == "docker":
        built = build.existing(project, lock)
        subject = built.image.manifest if built else None
    else:
        subject = lock.digest if hostenv.path(project, lock).is_dir() else None
    if subject is None:
        return None
    try:
        statement = certificate.read(path)
    except errors.BadInputError:
        return None  # damaged: run, and write it anew
    if statement.hardware != machine.hardware(request.device).hardware_class:
        return None
    image = subject if request.engine == "docker" else None
    good = judgement.holds(statement, judgement.terms(project, lock), image)
    return Outcome(statement, path, None, reused=True) if good else None


def shortcoming(lock: Lock, request: Request) -> str | None:
    """Why a run that was asked for like this proves too little for a certificate, even when it passes."""
    if request.probes:
        return "only some probes ran"
    if request.device != lock.stack.device:
        return f"the stack is made for {lock.stack.device}, and ran on {request.device}"
    return None


def run(
    project: Project,
    lock: Lock,
    request: Request,
    scratch: Path,
    on_build: Callable[[Step], None],
    on_event: Callable[[Event], None],
) -> Outcome:
    """Build what the lock asks for, run the suite in it, and write the certificate or the report."""
    if reused := certified(project, lock, request):
        return reused
    machine.hardware(request.device)  # a GPU that is not there is said before any work begins
    root = scratch / "suite"
    identity = sources.copy(project.smoke, root)
    prepare = _in_image if request.engine == "docker" else _on_host
    subject = prepare(project, lock, request, root, scratch, on_build)
    statement = examine(lock, request, subject, identity, scratch, on_event)
    doubts = against(statement, judgement.terms(project, lock, root / "smoke"), subject)
    earned = statement.predicate.issued is not None and not doubts
    where = (certificate.path if earned else certificate.report_path)(
        project, lock.name, request.device, request.engine
    )
    where.with_suffix(".dsse").unlink(missing_ok=True)  # its runner signed an earlier one
    write(where, statement.to_json() if earned else statement.undated().to_json(), scratch)
    return Outcome(statement, where if earned else None, None if earned else where, reused=False, doubts=doubts)


def examine(
    lock: Lock,
    request: Request,
    subject: Subject,
    identity: str,
    scratch: Path,
    on_event: Callable[[Event], None],
    differences: Differences | None = None,
) -> Statement:
    """Run the suite, whose digest is `identity`, on a subject, and say what came of it; dated when all has passed."""
    answer = suite.run(subject.runner, Asked(request.device, lock.versions, request.probes), scratch, on_event)
    said = certificate.statement(
        subject=subject.resource, lock=lock.digest, suite=identity, hardware=machine.hardware(request.device),
        engine=subject.engine, python=answer.python, probes=list(answer.results), differences=differences,
        inputs=subject.inputs,
    )  # fmt: skip
    return said.dated(certificate.today()) if said.earned and not shortcoming(lock, request) else said


def against(statement: Statement, terms: Terms, subject: Subject) -> tuple[str, ...]:
    """What speaks against a run that has passed; nothing is asked of one that has not."""
    if statement.predicate.issued is None:
        return ()
    image = subject.resource.digest if subject.inputs else None
    return tuple(judgement.against(statement, terms, f"sha256:{image.sha256}" if image else None))


def _in_image(
    project: Project, lock: Lock, request: Request, root: Path, scratch: Path, on_build: Callable[[Step], None]
) -> Subject:
    docker = daemon.docker()
    engine.remove_leftovers(project, lock.name)
    built = build.build(project, lock, scratch, on_build)
    on_build(Step(0, 0, "loading the image into Docker"))
    loaded = daemon.load(built.image, built.reference)
    label, memory = engine.run_label(project, lock.name), suite.memory_mib()
    return Subject(
        Resource(name=built.reference, digest=certificate.bare(loaded.digest)),
        Runner(engine.in_image(root, label, loaded.reference, lock.stack.python, request.device, memory)),
        {"name": "docker", "version": docker.version, "buildkit": built.buildkit, "kernel": docker.kernel},
        built.inputs,
    )


def _on_host(
    project: Project, lock: Lock, _request: Request, root: Path, scratch: Path, on_build: Callable[[Step], None]
) -> Subject:
    environment = hostenv.prepare(project, lock, scratch, lambda what: on_build(Step(0, 0, what)))
    return on_host(lock, environment, root, scratch)


def on_host(lock: Lock, environment: Path, root: Path, scratch: Path) -> Subject:
    """The lock, in an environment of this host; the suite lies below `root`."""
    return Subject(
        Resource(name=f"lockfiles/{lock.name}", digest=certificate.bare(lock.digest)),
        suite.on_host(environment, root, scratch / "run"),
        {"name": "host", "system": _system(), "kernel": platform.release()},
    )


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()
