"""The command `vetted`: what people type, and what they read."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from builder import (
    advisory,
    audit,
    bake,
    build,
    bundle,
    bundled,
    certificate,
    certify,
    console,
    control,
    docs,
    engine,
    errors,
    evidence,
    lock,
    machine,
    project,
    render,
    resolve,
    stack,
    suite,
)
from builder.advisory import Advisory
from builder.audit import Finding
from builder.build import Step
from builder.certify import Outcome, Request
from builder.lock import Lock
from builder.project import Project

app = typer.Typer(
    help="Images for GRPO training that were proven to train: locked, built bit for bit, run, certified.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)

Stacks = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STACK]...", help="Stacks; all of them when none is named.", show_default=False),
]
OneStack = Annotated[
    str, typer.Argument(metavar="STACK", help="The stack, a folder in lockfiles/.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


class EngineName(StrEnum):
    docker = "docker"
    host = "host"


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _selected(home: Project, stacks: list[str] | None) -> list[str]:
    selected = stacks or stack.names(home)
    if not selected:
        raise errors.BadInputError("the project holds no stack", next_step="write lockfiles/<name>/stack.toml")
    for name in selected:
        stack.load(home, name)  # an unknown or broken one is said before any work begins
    return selected


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """The matrix: every stack, its versions, and where it was certified."""
    home = project.find()
    rows = []
    for name in stack.names(home):
        held = lock.load(home, name)
        where = docs.certified_where(home, held)
        rows.append(
            {"stack": name, "device": held.stack.device, "versions": docs.versions(held), "certified_on": where}
        )
    if as_json:
        _print_json(rows)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("stack", *docs.COLUMNS, "certified on"):
        table.add_column(column, overflow="fold")
    for row in rows:
        held_versions = row["versions"]
        assert isinstance(held_versions, dict)
        table.add_row(str(row["stack"]), *held_versions.values(), "\n".join(row["certified_on"]) or "not certified")
    console.out.print(table)


def _print_findings(name: str, findings: list[Finding]) -> None:
    for finding in findings:
        console.out.print(f"{name}: {finding.what}")
        if finding.got:
            console.out.print(f"  expected {finding.expected}\n  got      {finding.got}")
        console.out.print(f"  fix: {finding.fix}")


@app.command("lock")
def lock_(
    stacks: Stacks = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 when a lock is stale or unsound.")
    ] = False,
    upgrade: Annotated[
        list[str] | None,
        typer.Option(help="Upgrade a distribution, or `debian`, or `all`; may be repeated.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Resolve stacks to exact files with hashes, and audit the result."""
    home = project.find()
    answer: dict[str, Any] = {}
    for name in _selected(home, stacks):
        wanted = stack.load(home, name)
        changed = False
        with home.holding(name) as scratch:
            if not check:
                with console.spinner(f"{name}: resolving"):
                    asked = None if upgrade is None else [] if "all" in upgrade else upgrade
                    changed = resolve.make(home, name, wanted, scratch, asked)
            held = lock.load(home, name)
            with console.spinner(f"{name}: auditing"):
                findings = audit.sound(held, scratch)
        answer[name] = {
            "changed": changed, "digest": held.digest, "findings": [dataclasses.asdict(f) for f in findings],
        }  # fmt: skip
        if not as_json:
            _print_findings(name, findings)
            if not findings:
                state = "sound" if check else "locked" if changed else "unchanged"
                console.out.print(
                    f"{name}: {state}: {len(held.python)} distributions, {len(held.debian)} Debian packages"
                )
                console.out.print(f"  {held.digest}")
    if as_json:
        _print_json(answer)
    if any(row["findings"] for row in answer.values()):
        raise typer.Exit(1)


@app.command("render")
def render_(
    stacks: Stacks = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 with a diff when a file is stale.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Render the Dockerfiles from the locks, and the generated parts of the documents."""
    home = project.find()
    differences: dict[str, str] = {}
    for name in _selected(home, stacks):
        held = lock.load(home, name)
        with home.holding(name) as scratch:
            difference = render.difference(home, held)
            if difference:
                differences[home.relative(home.dockerfile(name))] = difference
                if not check:
                    project.write(home.dockerfile(name), render.dockerfile(home, held), scratch)
    if not stacks:
        with home.holding("documents") as scratch:
            changed = docs.stale(home) if check else docs.refresh(home, scratch)
        differences.update({home.relative(path): "is stale\n" for path in changed})
    if as_json:
        _print_json({"changed": differences})
    elif not differences:
        console.out.print("everything rendered is up to date")
    for where, difference in differences.items() if not as_json else ():
        if check:
            print(difference if difference.startswith("---") else f"{where} {difference}", end="")
        else:
            console.out.print(f"rendered {where}")
    if check and differences:
        console.note("next: vetted render")
        raise typer.Exit(1)


@app.command("build")
def build_(
    name: OneStack,
    prove: Annotated[bool, typer.Option("--prove", help="Build twice without cache and compare every digest.")] = False,
    output: Annotated[Path | None, typer.Option(help="Copy the OCI layout to this folder.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Build the image of a stack's lock: an OCI layout, the same bytes wherever it is built."""
    home = project.find()
    held = lock.load(home, name)
    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise errors.StorageError(f"{output} exists and is not an empty folder", next_step="choose another --output")
    with home.holding(name) as scratch:
        _refuse(name, audit.stale(held))
        with console.Working(name) as work:
            if prove:
                _print_proof(build.prove(home, held, scratch, work.step), as_json)
                return
            built = build.build(home, held, scratch, work.step)
        if output is not None:
            shutil.copytree(built.image.layout, output, dirs_exist_ok=True)
    if as_json:
        _print_json(
            {
                "stack": name, "manifest": built.image.manifest, "config": built.image.config,
                "layers": [layer.digest for layer in built.image.layers], "bytes": built.image.size,
                "layout": str(output or built.image.layout), "buildkit": built.buildkit,
            }
        )  # fmt: skip
        return
    console.out.print(f"{name}: {built.image.manifest}")
    where = home.relative(output or built.image.layout)
    console.out.print(f"  {len(built.image.layers)} layers, {built.image.size / 1e6:.0f} MB to pull, in {where}")


@app.command("bake")
def bake_(
    names: Stacks = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only write the bake file and what it names, for a BuildKit elsewhere.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build the images of several stacks at once with `docker buildx bake`."""
    home = project.find()
    locks = [lock.load(home, name) for name in names or stack.names(home)]
    if not prepare:
        engine.docker()  # whether one answers is said before any work begins
    with home.holding("bake") as scratch, ExitStack() as held:
        for one in locks:
            held.enter_context(home.holding(one.name))
            _refuse(one.name, audit.stale(one))
        with console.Working("bake") as work:
            path = bake.prepare(home, locks, scratch, work.step)
            built = {} if prepare else bake.run(home, locks, path, scratch, work.step)
    if prepare:
        command = f"docker buildx bake --builder NAME --file {home.relative(path)}"
        if as_json:
            _print_json({"file": str(path), "targets": [bake.name(one) for one in locks], "command": command})
        else:
            console.out.print(f"{home.relative(path)}: {', '.join(bake.name(one) for one in locks)}\n  {command}")
        return
    if as_json:
        _print_json({name: {"manifest": made.image.manifest, "bytes": made.image.size} for name, made in built.items()})
        return
    for name, made in built.items():
        console.out.print(f"{name}: {made.image.manifest}, {made.image.size / 1e6:.0f} MB to pull")


def _print_proof(proof: build.Proof, as_json: bool) -> None:
    if as_json:
        _print_json(
            {
                "identical": proof.difference is None, "first": proof.first, "second": proof.second,
                "difference": dataclasses.asdict(proof.difference) if proof.difference else None,
            }
        )  # fmt: skip
    elif proof.difference is None:
        console.out.print(f"identical: two builds without cache gave {proof.first}")
        console.out.print("  manifest, config and every layer have the same digest")
    else:
        console.out.print(f"different: {proof.difference}")
    if proof.difference is not None:
        raise typer.Exit(1)


def _refuse(name: str, findings: list[Finding]) -> None:
    """A stack whose lock is stale or unsound is neither built nor run."""
    for finding in findings:
        if finding.got:
            raise errors.NetworkError(
                f"{name}: {finding.what}\nexpected {finding.expected}\ngot      {finding.got}",
                cause="the lock was edited, or the index serves other bytes than on the day of the lock",
                next_step=finding.fix,
            )
    if findings:
        raise errors.VettedError(
            "\n".join(f"{name}: {finding.what}" for finding in findings), next_step=findings[0].fix
        )


@app.command("certify")
def certify_(
    name: OneStack,
    engine_name: Annotated[
        EngineName | None,
        typer.Option(
            "--engine",
            help="docker: in the image; host: the lock, in a virtual environment.",
            show_default="docker where one answers",
        ),
    ] = None,
    device: Annotated[Device | None, typer.Option(help="Default: the stack's.", show_default=False)] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(help="Only this probe, may be repeated; issues no certificate.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run even if a certificate says it all already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run real GRPO jobs on a stack and write the certificate that they earned."""
    home = project.find()
    held = lock.load(home, name)
    if device == Device.cuda and held.stack.device == "cpu":
        raise typer.BadParameter(f"{name} is a cpu stack: its lock holds no CUDA", param_hint="--device")
    chosen = engine_name or _answering_engine()
    request = Request(device or held.stack.device, chosen, tuple(probe or ()), force)
    advisories = advisory.load_all(home)  # a broken one is said before any work begins
    with home.holding(name) as scratch:
        _refuse(name, audit.stale(held))
        outcome = certify.certified(home, held, request)
        if outcome is None:
            if chosen == EngineName.docker:
                engine.docker()  # whether one answers is said before any work begins
            with console.spinner(f"{name}: checking the lock"):
                _refuse(name, audit.sound(held, scratch))
            if not as_json:
                _print_head(held, request)
            with console.Working(name) as work:
                outcome = certify.run(home, held, request, scratch, work.step, work.event)
            if outcome.certificate:
                with home.holding("documents") as documents:
                    docs.refresh(home, documents)
    _print_outcome(home, held, request, outcome, advisories, as_json)
    if outcome.statement.predicate.result != "PASSED":
        raise typer.Exit(1)


def _answering_engine() -> EngineName:
    try:
        engine.docker()
    except errors.MissingToolError:
        console.note("no Docker engine answers: certifying the lock on this host, in a virtual environment")
        return EngineName.host
    return EngineName.docker


def _print_head(held: Lock, request: Request) -> None:
    console.err.print(
        f"{held.stack.title}: {len(held.python)} distributions and {len(held.debian)} Debian packages locked, "
        f"engine {request.engine}, device {request.device}"
    )


def _print_outcome(
    home: Project, held: Lock, request: Request, outcome: Outcome, advisories: Sequence[Advisory], as_json: bool
) -> None:
    name, predicate = held.name, outcome.statement.predicate
    written = outcome.certificate or outcome.report
    assert written is not None
    if as_json:
        _print_json(
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
    for line in console.reasons(predicate.probes, held.versions, advisories):
        console.out.print(line)
    subject = outcome.statement.subject[0]
    console.out.print()
    if outcome.certificate:
        console.out.print(f"certified: {subject.name}, sha256:{subject.digest.sha256 if subject.digest else ''}")
        console.out.print(f"  {home.relative(written)}")
    elif predicate.result == "PASSED":
        why = certify.shortcoming(held, request)
        console.out.print(f"passed; {why}, so this is a report and no certificate")
        console.out.print(f"  {home.relative(written)}")
    else:
        console.out.print("not certified")
        console.out.print(f"  report: {home.relative(written)}")


@app.command("bundle")
def bundle_(
    name: OneStack,
    output: Annotated[Path, typer.Option(help="The folder to write to.", show_default=False)],
    part_size: Annotated[str, typer.Option(help="The most bytes of a part: K, M or G.")] = "60M",
    have: Annotated[
        Path | None,
        typer.Option(metavar="FREEZE", help="`pip freeze` of the host: what it has is left out.", show_default=False),
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="The host's Python, such as 3.12.", show_default="the stack's")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write all that a host without a network needs to run the suite on a stack, in parts that can be carried."""
    home = project.find()
    held = lock.load(home, name)
    try:
        size = bundle.parse_size(part_size)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--part-size") from error
    if python is not None and not re.fullmatch(r"3\.[0-9]{1,2}", python):
        raise typer.BadParameter(f"{python!r} is not a version such as 3.12", param_hint="--python")
    host = bundle.read_have(have) if have else {}
    with home.holding(name) as scratch:
        _refuse(name, audit.stale(held))
        with console.Working(name) as work:
            made = bundle.make(
                home, held, output, scratch, size, python or held.stack.python, host,
                lambda what: work.step(Step(0, 0, what)),
            )  # fmt: skip
    if as_json:
        _print_json(
            {
                "stack": name, "output": str(output), "manifest": made.digest, "parts": made.parts, "bytes": made.size,
                "python": made.contents.python, "left_out": made.contents.left_out,
            }
        )  # fmt: skip
        return
    carried, without = len(made.contents.distributions), len(made.contents.left_out)
    console.out.print(f"{name}: {made.parts} parts, {made.size / 1e6:.0f} MB, in {output}")
    console.out.print(f"  {carried} distributions for Python {made.contents.python}, {without} left out")
    command = f"python{made.contents.python} {output.name}/{bundle.ENTRY}"
    console.out.print(f"next: copy the folder to the host, and there: {command}")


@app.command("run-bundle", hidden=True)
def run_bundle(
    host: Annotated[Path, typer.Option()],
    device: Annotated[Device, typer.Option()],
    probe: Annotated[list[str] | None, typer.Option()] = None,
    as_json: AsJson = False,
) -> None:
    """What the entry script of a bundle hands over to: install, run the suite, write the statement."""
    home = project.find()
    held, contents = bundled.read(home)
    request = Request(device, bundled.ENGINE, tuple(probe or ()))
    machine.hardware(device)  # a GPU that is not there is said before any work begins
    advisories = advisory.load_all(home)
    with home.holding(held.name) as scratch, console.Working(held.name) as work:
        statement, where, earned = bundled.run(home, held, contents, request, host, scratch, work.step, work.event)
    different = statement.resource(certificate.DIFFERENCES).annotations or {}
    if as_json:
        _print_json(
            {
                "stack": held.name, "certified": earned, "file": str(where), "differences": different,
                "statement": json.loads(statement.to_json()),
            }
        )  # fmt: skip
    else:
        console.out.print(console.results_table(statement.predicate.probes))
        for line in console.reasons(statement.predicate.probes, held.versions, advisories):
            console.out.print(line)
        console.out.print()
        for row in bundled.summary(different):
            console.out.print(f"differs from the lock: {row}")
        console.out.print("certified" if earned else "a report, and no certificate")
        console.out.print(f"  {where}")
        if earned:
            back = f"lockfiles/{held.name}/certificates/{device}-{bundled.ENGINE}.json"
            console.out.print(f"next: copy it back to {back}")
    if not statement.earned:
        raise typer.Exit(1)


@app.command("controls")
def controls_(
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.", show_default=False)] = None,
    relock: Annotated[bool, typer.Option("--lock", help="Resolve them anew, and run nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Run every probe, not only those that must fail.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Write docs/evidence/controls.json.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many at a time.", show_default="one per core")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the suite on version sets that are known to be bad, and on their good twins."""
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
        suite.copy(home.smoke, scratch)
        with console.Counting("controls", len(locked)) as work:

            def run(one: control.Locked) -> control.Seen:
                own = scratch / one.name
                own.mkdir()
                seen = control.run(home, one, scratch, own, work.say, full=full)
                shutil.rmtree(own, ignore_errors=True)
                work.done(seen.name, seen.good)
                return seen

            with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
                seen = list(pool.map(run, locked))
        measured = control.measured(seen)
        if record:
            command = " ".join(["vetted controls", *(names or ()), *(["--full"] if full else []), "--record"])
            evidence.record(home, "controls", command, measured, scratch)
            docs.refresh(home, scratch)
    if as_json:
        _print_json(measured)
    else:
        _print_controls(seen, measured, advisories)
    if not all(one.good for one in seen):
        raise typer.Exit(1)


def _print_controls(seen: list[control.Seen], measured: dict[str, Any], advisories: Sequence[Advisory]) -> None:
    console.out.print(console.controls_table(seen))
    for line in console.surprises(seen, advisories):
        console.out.print(line)
    console.out.print()
    console.out.print(
        f"sensitivity   {measured['caught']} of {measured['controls']} controls caught, for the right reason"
    )
    console.out.print(f"false alarms  {measured['false_alarms']} on {measured['controls']} twins")


@app.command("show")
def show(
    name: OneStack,
    engine_name: Annotated[EngineName | None, typer.Option("--engine", show_default="all")] = None,
    as_json: AsJson = False,
) -> None:
    """The certificates of a stack, for people."""
    home = project.find()
    held = lock.load(home, name)
    found = {
        key: statement
        for key, statement in certificate.of_stack(home, name).items()
        if engine_name is None or key.endswith(f"-{engine_name}")
    }
    if as_json:
        _print_json({key: json.loads(statement.to_json()) for key, statement in found.items()})
    elif not found:
        console.out.print(f"{name} is not certified\nnext: vetted certify {name}")
    else:
        for statement in found.values():
            _print_certificate(held, statement)
    if not found:
        raise typer.Exit(1)


def _print_certificate(held: Lock, statement: certificate.Statement) -> None:
    subject = statement.subject[0]
    console.out.print(f"{held.stack.title}", style="bold")
    console.out.print(
        f"  subject   {subject.name}\n            sha256:{subject.digest.sha256 if subject.digest else ''}"
    )
    for resource in statement.predicate.configuration:
        said = ", ".join(
            f"{key} {value}" for key, value in (resource.annotations or {}).items() if key not in ("class", "name")
        )
        named = (resource.annotations or {}).get("name", "")
        digest = f"sha256:{resource.digest.sha256}" if resource.digest else " ".join(filter(None, (str(named), said)))
        console.out.print(f"  {resource.name:<9} {digest}")
    if not docs.is_current(held, statement):
        console.out.print("  this certificate speaks of an earlier lock", style="yellow")
    console.out.print(console.results_table(statement.predicate.probes))
    for name, reason in statement.predicate.notRun.items():
        console.out.print(f"not run: {name}: {reason}")
    console.out.print()


def main() -> None:
    try:
        app(prog_name="vetted")
    except errors.VettedError as error:
        _fail(error)
    except OSError as error:
        _fail(errors.from_os(error))


def _fail(error: errors.VettedError) -> None:
    if "--json" in sys.argv:
        said = {"what": error.what, "cause": error.cause, "next": error.next_step, "exit_code": error.exit_code}
        _print_json({"error": said})
    else:
        console.note(f"vetted: {error}")
    sys.exit(error.exit_code)
