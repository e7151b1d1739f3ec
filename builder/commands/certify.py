"""From an image to its certificate: certify."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import project
from builder.base.project import Project
from builder.base.text import word
from builder.certify import catalogue, certify
from builder.certify.certify import Certification, Options
from builder.commands import own_config, usage
from builder.commands.common import AsJson, Device, EngineName, OneStack, answering_engine, print_json, refuse
from builder.image import daemon
from builder.intent import advisory
from builder.intent.advisory import Advisory
from builder.lock import audit, lockfile
from builder.lock.lockfile import Lock
from builder.pages import generate
from builder.publish import runner, signing


def certify_(
    context: typer.Context,
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
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your config of `trl grpo` or `vetted train`: run the probes that apply to it, and train a tiny model "
            "of your architecture with your combination of options. A report, no certificate.",
            show_default=False,
        ),
    ] = None,
    model_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --config: the config.json of its model.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run real GRPO jobs on a stack. Write the certificate."""
    if probe and not config:
        usage.refuse(context, ("key",), "signs a certificate, and --probe gives none")
    home = project.find()
    own = own_config.chosen(config, model_config, excluded={"--probe": probe, "--key": key, "--force": force})
    lock = lockfile.load(home, name)
    if device == Device.cuda and lock.stack.device == "cpu":
        raise typer.BadParameter(f"{name} is a cpu stack: its lock has no CUDA", param_hint="--device")
    catalogue.require(home.smoke, probe or [])  # a misspelt one is reported before an image is built
    options = Options(device or lock.stack.device, engine_name or answering_engine(), tuple(probe or ()), force)
    advisories = advisory.load_all(home)  # a broken one is reported before any work begins
    with home.holding(name) as scratch:
        refuse(name, audit.stale(lock))
        if own:
            own_config.examine(home, lock, options, own, scratch, advisories, as_json=as_json)
            return
        if key:
            signing.public(key, scratch)  # one that cannot sign is reported before any work begins
        certification = certify.certified(home, lock, options)
        if certification is None:
            certification = _run(home, lock, options, key, scratch, quiet=as_json)
        elif key and certification.certificate and not runner.path(certification.certificate).exists():
            console.note("certified already, but not signed: --force runs again and signs the result")
        _refresh_documents(home)
    if as_json:
        print_json(_as_json(name, certification))
    elif certification.reused:
        console.out.print(f"{name} is certified already, unchanged and unexpired: nothing is rerun")
        console.out.print(f"  {home.relative(_file(certification))}")
        console.out.print(f"  vetted show {word(name)} prints it, --force runs again")
    else:
        _print(home, lock, options, certification, advisories)
    if certification.statement.predicate.result != "PASSED" or certification.doubts:
        raise typer.Exit(1)


def _run(home: Project, lock: Lock, options: Options, key: str | None, scratch: Path, *, quiet: bool) -> Certification:
    """Run the suite, and sign the certificate when there is a key."""
    if options.engine == EngineName.docker:
        daemon.docker()  # an engine that does not answer is reported before any work begins
    with console.spinner(f"{lock.name}: checking the lock"):
        refuse(lock.name, audit.sound(lock, scratch))
    if not quiet:
        console.err.print(
            f"{lock.stack.title}: {len(lock.python)} distributions and {len(lock.debian)} Debian packages locked, "
            f"engine {options.engine}, device {options.device}"
        )
    _stale_documents(home).touch()
    with console.Working(lock.name) as work:
        certification = certify.run(home, lock, options, scratch, work.step, work.event)
    if certification.certificate and key:
        runner.sign(certification.certificate, key, scratch)
    return certification


def _stale_documents(home: Project) -> Path:
    """A mark for the next run, in case this one is killed between a certificate and the documents that show it."""
    return home.state / "stale-documents"


def _refresh_documents(home: Project) -> None:
    if _stale_documents(home).exists():
        with home.holding(".documents") as scratch:
            generate.refresh(home, scratch)
        _stale_documents(home).unlink(missing_ok=True)


def _file(certification: Certification) -> Path:
    """The certificate, or the report."""
    file = certification.certificate or certification.report
    assert file is not None
    return file


def _as_json(name: str, certification: Certification) -> dict[str, object]:
    return {
        "stack": name, "result": certification.statement.predicate.result, "reused": certification.reused,
        "certificate": str(certification.certificate) if certification.certificate else None,
        "report": str(certification.report) if certification.report else None,
        "statement": json.loads(certification.statement.to_json()),
    }  # fmt: skip


def _print(
    home: Project, lock: Lock, options: Options, certification: Certification, advisories: Sequence[Advisory]
) -> None:
    predicate, file = certification.statement.predicate, home.relative(_file(certification))
    console.out.print(console.results_table(predicate.probes))
    for line in console.reasons(predicate.probes, lock.versions, advisories):
        console.out.print(line)
    for doubt in certification.doubts:
        console.out.print(f"doubt: {doubt}")
    console.out.print()
    if certification.certificate:
        subject = certification.statement.subject[0]
        console.out.print(f"certified: {subject.name}, sha256:{subject.digest.sha256 if subject.digest else ''}")
        console.out.print(f"  {file}")
    elif predicate.result == "PASSED":
        why = certify.shortcoming(lock, options) or "there is a doubt"
        console.out.print(f"passed; {why}, so this is a report and no certificate")
        console.out.print(f"  {file}")
    else:
        console.out.print("not certified")
        console.out.print(f"  report: {file}")
