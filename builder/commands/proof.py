"""From an image to its certificate: certify, controls, show."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import errors, project, sources, text
from builder.base.project import Project
from builder.certify import certificate, certify, control, judgement
from builder.certify.certify import Certification, Options
from builder.commands.common import AsJson, Device, EngineName, OneStack, print_json, refuse
from builder.image import daemon
from builder.intent import advisory, stack
from builder.intent.advisory import Advisory
from builder.lock import audit, lockfile
from builder.lock.lockfile import Lock
from builder.pages import evidence, generate
from builder.publish import runner, signing

WIDE = 400  # characters of what a certificate says in one line


def certify_(
    name: OneStack,
    engine_name: Annotated[
        EngineName | None,
        typer.Option(
            "--engine",
            help="docker: in the image. host: the lock, in a virtual environment.",
            show_default="docker where one answers",
        ),
    ] = None,
    device: Annotated[Device | None, typer.Option(help="Default: the stack's.", show_default=False)] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(help="Only this probe, without a certificate. May be repeated.", show_default=False),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run even when a certificate is unchanged and unexpired.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Sign the certificate with this private cosign key.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run real GRPO jobs on a stack. Write the certificate."""
    home = project.find()
    lock = lockfile.load(home, name)
    if device == Device.cuda and lock.stack.device == "cpu":
        raise typer.BadParameter(f"{name} is a cpu stack: its lock holds no CUDA", param_hint="--device")
    chosen = engine_name or answering_engine()
    request = Options(device or lock.stack.device, chosen, tuple(probe or ()), force)
    advisories = advisory.load_all(home)  # a broken one is said before any work begins
    with home.holding(name) as scratch:
        refuse(name, audit.stale(lock))
        if key:
            signing.public(key, scratch)  # one that cannot sign is said before any work begins
        outcome = certify.certified(home, lock, request)
        if outcome and key and outcome.certificate and not runner.path(outcome.certificate).exists():
            console.note("certified already, and not signed: --force runs again, and signs what it measured")
        if outcome is None:
            if chosen == EngineName.docker:
                daemon.docker()  # whether one answers is said before any work begins
            with console.spinner(f"{name}: checking the lock"):
                refuse(name, audit.sound(lock, scratch))
            if not as_json:
                _print_head(lock, request)
            _stale_documents(home).touch()
            with console.Working(name) as work:
                outcome = certify.run(home, lock, request, scratch, work.step, work.event)
            if outcome.certificate and key:
                runner.sign(outcome.certificate, key, scratch)
        if _stale_documents(home).exists():
            with home.holding("documents") as documents:
                generate.refresh(home, documents)
            _stale_documents(home).unlink(missing_ok=True)
    _print_outcome(home, lock, request, outcome, advisories, as_json)
    if outcome.statement.predicate.result != "PASSED" or outcome.doubts:
        raise typer.Exit(1)


def _stale_documents(home: Project) -> Path:
    """A mark that outlives a kill between a certificate and the documents that show it: the next run brings them up."""
    return home.state / "stale-documents"


def answering_engine() -> EngineName:
    """Docker where it answers; the host, and a line that says so, where it does not."""
    try:
        daemon.docker()
    except errors.MissingToolError:
        console.note("no Docker engine answers: certifying the lock on this host, in a virtual environment")
        return EngineName.host
    return EngineName.docker


def _print_head(lock: Lock, request: Options) -> None:
    console.err.print(
        f"{lock.stack.title}: {len(lock.python)} distributions and {len(lock.debian)} Debian packages locked, "
        f"engine {request.engine}, device {request.device}"
    )


def _print_outcome(
    home: Project, lock: Lock, request: Options, outcome: Certification, advisories: Sequence[Advisory], as_json: bool
) -> None:
    name, predicate = lock.name, outcome.statement.predicate
    written = outcome.certificate or outcome.report
    assert written is not None
    if as_json:
        print_json(
            {
                "stack": name, "result": predicate.result, "reused": outcome.reused,
                "certificate": str(outcome.certificate) if outcome.certificate else None,
                "report": str(outcome.report) if outcome.report else None,
                "statement": json.loads(outcome.statement.to_json()),
            }
        )  # fmt: skip
        return
    if outcome.reused:
        console.out.print(f"{name} is certified already: same subject, same suite, same hardware; nothing to do")
        console.out.print(f"  {home.relative(written)}\n  vetted show {name} prints it, --force runs again")
        return
    console.out.print(console.results_table(predicate.probes))
    for line in console.reasons(predicate.probes, lock.versions, advisories):
        console.out.print(line)
    for doubt in outcome.doubts:
        console.out.print(f"doubt: {doubt}")
    subject = outcome.statement.subject[0]
    console.out.print()
    if outcome.certificate:
        console.out.print(f"certified: {subject.name}, sha256:{subject.digest.sha256 if subject.digest else ''}")
        console.out.print(f"  {home.relative(written)}")
    elif predicate.result == "PASSED":
        why = certify.shortcoming(lock, request) or "something speaks against it"
        console.out.print(f"passed; {why}, so this is a report and no certificate")
        console.out.print(f"  {home.relative(written)}")
    else:
        console.out.print("not certified")
        console.out.print(f"  report: {home.relative(written)}")


def controls_(
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.", show_default=False)] = None,
    relock: Annotated[bool, typer.Option("--lock", help="Resolve their locks again. Run nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Run every probe, not just those that must fail.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Write docs/evidence/controls.json.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many at a time.", show_default="one per core")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the suite on known-bad version sets and their good twins."""
    home = project.find()
    selected = names or stack.control_names(home)
    for name in selected:
        stack.load_control(home, name)
    if not selected:
        raise errors.BadInputError("the project holds no control", next_step="git checkout lockfiles/controls")
    if relock:
        for name in selected:
            with home.holding(f"control-{name}") as scratch, console.spinner(f"{name}: resolving"):
                changed = control.make(home, name, scratch)
            console.out.print(f"{name}: {'locked' if changed else 'unchanged'}")
        return
    locked = [control.load(home, name) for name in selected]
    advisories = advisory.load_all(home)
    with home.holding("controls") as scratch:
        sources.copy(home.smoke, scratch)
        with console.Counting("controls", len(locked)) as work:

            def run(one: control.Locked) -> control.ControlResult:
                own = scratch / one.name
                own.mkdir()
                seen = control.run(home, one, scratch, own, work.say, full=full)
                shutil.rmtree(own, ignore_errors=True)
                work.done(seen.name, seen.good)
                return seen

            with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
                seen = list(pool.map(run, locked))
        measured = control.summary(seen)
        if record:
            command = " ".join(["vetted controls", *(names or ()), *(["--full"] if full else []), "--record"])
            evidence.record(home, "controls", command, measured, scratch)
            generate.refresh(home, scratch)
    if as_json:
        print_json(measured)
    else:
        _print_controls(seen, measured, advisories)
    if not all(one.good for one in seen):
        raise typer.Exit(1)


def _print_controls(
    seen: list[control.ControlResult], measured: control.Summary, advisories: Sequence[Advisory]
) -> None:
    console.out.print(console.controls_table(seen))
    for line in console.surprises(seen, advisories):
        console.out.print(line)
    console.out.print()
    console.out.print(
        f"sensitivity   {measured['caught']} of {measured['controls']} controls caught, for the right reason"
    )
    console.out.print(f"false alarms  {measured['false_alarms']} on {measured['controls']} twins")


def show(
    name: OneStack,
    engine_name: Annotated[EngineName | None, typer.Option("--engine", show_default="all")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the certificates of a stack."""
    home = project.find()
    lock = lockfile.load(home, name)
    found = {
        key: statement
        for key, statement in certificate.of_stack(home, name).items()
        if engine_name is None or key.endswith(f"-{engine_name}")
    }
    if as_json:
        print_json({key: json.loads(statement.to_json()) for key, statement in found.items()})
    elif not found:
        console.out.print(f"{name} is not certified\nnext: vetted certify {name}")
    else:
        terms = judgement.terms(home, lock)
        for statement in found.values():
            _print_certificate(lock, statement, judgement.doubts(statement, terms))
    if not found:
        raise typer.Exit(1)


def _print_certificate(lock: Lock, statement: certificate.Statement, doubts: Sequence[str]) -> None:
    console.out.print(text.line(lock.stack.title), style="bold")
    for subject in statement.subject:
        digest = f"sha256:{subject.digest.sha256 if subject.digest else ''}"
        console.out.print(f"  subject   {text.line(subject.name, WIDE)}\n            {digest}")
    for resource in statement.predicate.configuration:
        said = ", ".join(
            f"{key} {value}" for key, value in (resource.annotations or {}).items() if key not in ("class", "name")
        )
        named = (resource.annotations or {}).get("name", "")
        digest = f"sha256:{resource.digest.sha256}" if resource.digest else " ".join(filter(None, (str(named), said)))
        console.out.print(f"  {text.line(resource.name, WIDE):<9} {text.line(digest, WIDE)}")
    predicate = statement.predicate
    if predicate.issued:
        console.out.print(f"  {'issued':<9} {predicate.issued}, expires {predicate.expires}")
    for doubt in doubts:
        console.out.print(f"  does not hold: {doubt}", style="yellow")
    console.out.print(console.results_table(predicate.probes))
    for name, reason in predicate.notRun.items():
        console.out.print(text.line(f"not run: {name}: {reason}", WIDE))
    console.out.print()
