"""Running the suite on a stack, and issuing the certificate that the run earned."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from builder import build, certificate, engine, errors, hostenv, machine, process
from builder.build import Step
from builder.certificate import ProbeResult, Resource, Statement
from builder.lock import Lock
from builder.project import Project, write

Event = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What a person asked for."""

    device: str
    engine: str  # docker | host
    probes: tuple[str, ...] = ()  # empty: all of them
    force: bool = False


@dataclass(frozen=True)
class Outcome:
    """`statement` is a certificate when `certificate` is set, else a report; `reused` when nothing was run."""

    statement: Statement
    certificate: Path | None
    report: Path | None
    reused: bool


@dataclass(frozen=True)
class _Subject:
    resource: Resource
    command: list[str]
    engine: dict[str, str]
    environment: dict[str, str]


def suite_digest(smoke: Path) -> str:
    """The identity of the suite: every file in smoke/, by path and content."""
    digest = hashlib.sha256()
    for file in sorted(smoke.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(smoke)}\0{len(content)}\0".encode())
        digest.update(content)
    return "sha256:" + digest.hexdigest()


def certified(project: Project, held: Lock, request: Request) -> Outcome | None:
    """The certificate that says already what a run would show: the subject is here, and the key is the same."""
    path = certificate.path(project, held.name, request.device, request.engine)
    if request.force or request.probes or not path.is_file():
        return None
    if request.engine == "docker":
        built = build.existing(project, held)
        subject = built.image.manifest if built else None
    else:
        subject = held.digest if hostenv.path(project, held).is_dir() else None
    if subject is None:
        return None
    try:
        statement = certificate.read(path)
    except errors.BadInputError:
        return None  # damaged: run, and write it anew
    hardware = machine.hardware(request.device).hardware_class
    key = tuple(part.removeprefix("sha256:") for part in (subject, suite_digest(project.smoke), hardware))
    return Outcome(statement, path, None, reused=True) if statement.key == key else None


def run(
    project: Project,
    held: Lock,
    request: Request,
    scratch: Path,
    on_build: Callable[[Step], None],
    on_event: Callable[[Event], None],
) -> Outcome:
    """Build what the lock asks for, run the suite in it, and write the certificate or the report."""
    if reused := certified(project, held, request):
        return reused
    hardware = machine.hardware(request.device)
    # A copy, so that what is certified is what ran even if somebody edits smoke/ meanwhile.
    root = scratch / "suite"
    shutil.copytree(project.smoke, root / "smoke", ignore=shutil.ignore_patterns("__pycache__"))
    suite = suite_digest(root / "smoke")
    prepare = _in_image if request.engine == "docker" else _on_host
    subject = prepare(project, held, root, scratch, on_build)
    probes, python = _suite(held, request, subject, scratch, on_event)
    statement = certificate.statement(
        subject=subject.resource, lock=held.digest, suite=suite, hardware=hardware, engine=subject.engine,
        python=python, probes=probes,
    )  # fmt: skip
    earned = statement.predicate.result == "PASSED" and not request.probes
    where = (certificate.path if earned else certificate.report_path)(
        project, held.name, request.device, request.engine
    )
    write(where, statement.to_json(), scratch)
    return Outcome(statement, where if earned else None, None if earned else where, reused=False)


def _in_image(project: Project, held: Lock, suite: Path, scratch: Path, on_build: Callable[[Step], None]) -> _Subject:
    docker = engine.docker()
    engine.remove_leftovers(held.name)
    built = build.build(project, held, scratch, on_build)
    on_build(Step(0, 0, "loading the image into Docker"))
    digest = engine.load(built.image, built.reference)
    return _Subject(
        Resource(name=built.reference, digest=certificate.bare(digest)),
        engine.in_image(suite, held.name, built.reference, _memory_mib()),
        {"name": "docker", "version": docker.version, "buildkit": built.buildkit, "kernel": docker.kernel},
        {},
    )


def _on_host(project: Project, held: Lock, suite: Path, scratch: Path, on_build: Callable[[Step], None]) -> _Subject:
    environment = hostenv.prepare(project, held, scratch, lambda what: on_build(Step(0, 0, what)))
    temporary = scratch / "run"
    temporary.mkdir()
    return _Subject(
        Resource(name=f"lockfiles/{held.name}", digest=certificate.bare(held.digest)),
        engine.on_host(environment),
        {"name": "host", "system": _system(), "kernel": platform.release()},
        {
            **hostenv.environment(environment),
            "PYTHONPATH": str(suite),
            "TMPDIR": str(temporary),
            "PYTHONDONTWRITEBYTECODE": "",
        },
    )


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _memory_mib() -> int:
    """What the suite may use: the machine's memory less room for the machine itself."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(total - 2048, total * 3 // 4)


def _suite(
    held: Lock, request: Request, subject: _Subject, scratch: Path, on_event: Callable[[Event], None]
) -> tuple[list[ProbeResult], str]:
    """Run the suite and collect what it reports; the results and the stack's Python version."""
    asked = {
        "device": request.device,
        "probes": list(request.probes) or None,
        "distributions": held.versions,
        "seed": 0,
        "memory_mib": _memory_mib(),
    }
    results: list[ProbeResult] = []
    python, expected, finished = held.stack.python, [], False
    log = scratch / "suite.log"
    with (
        log.open("wb") as stderr,
        process.running(
            subject.command, env=subject.environment, stdin=subprocess.PIPE, stderr=stderr, cwd=scratch
        ) as child,
    ):
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(asked) + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; its exit code and its log say why
        for line in child.stdout:
            event = _event(line)
            if event is None:
                continue
            try:
                if event["event"] == "start":
                    python, expected = event["python"], event["probes"]
                elif event["event"] == "end":
                    results.append(_result(event))
                finished |= event["event"] == "finish"
                on_event(event)
            except KeyError as error:
                raise errors.VettedError(
                    f"the suite's runner sent an event without {error}: {line.strip()[:200]}",
                    cause="smoke/ and builder/ are of different versions",
                    next_step="git status smoke builder",
                ) from error
        code = child.wait()
    said = log.read_text(errors="replace")
    if code == 3 and not expected:
        raise errors.BadInputError(
            said.strip().splitlines()[-1] if said.strip() else "the suite refused the request",
            next_step=f"vetted certify {held.name}, without --probe",
        )
    missing = [name for name in expected if name not in {result.name for result in results}]
    if not expected or (not finished and not missing):
        raise errors.from_tool(f"running the suite ({Path(subject.command[0]).name}, exit code {code})", said)
    # A runner that died took its remaining probes with it: they have not passed.
    results += [
        ProbeResult(name=name, outcome="crashed", reason=f"the suite's runner ended early (exit code {code})",
                    log_tail=said[-4000:] or None)
        for name in missing
    ]  # fmt: skip
    return results, python


def _event(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _result(event: Event) -> ProbeResult:
    data = {key: value for key, value in event.items() if key not in ("event", "probe")}
    try:
        return ProbeResult.model_validate({"name": event["probe"], **data})
    except ValidationError as error:
        # Not a number, say: a result that cannot be written down is not a pass.
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        seconds = event.get("seconds")
        return ProbeResult(
            name=event["probe"],
            outcome="failed",
            reason=f"its result cannot be recorded: {where}: {first['msg']}",
            seconds=seconds if isinstance(seconds, float) and math.isfinite(seconds) else 0.0,
        )
