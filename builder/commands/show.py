"""The certificates of a stack: show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from builder import console
from builder.base import project, text
from builder.certify import certificate, judgement
from builder.certify.certificate import Resource, Statement
from builder.commands.common import AsJson, EngineName, OneStack, print_json
from builder.lock import lockfile
from builder.lock.lockfile import Lock

WIDE = 400  # characters of a certificate that are shown in one line


def show_(
    name: OneStack,
    engine_name: Annotated[EngineName | None, typer.Option("--engine", show_default="all")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the certificates of a stack."""
    home = project.find()
    lock = lockfile.load(home, name)
    statements = {
        key: statement
        for key, statement in certificate.of_stack(home, name).items()
        if engine_name is None or key.endswith(f"-{engine_name}")
    }
    if as_json:
        print_json({key: json.loads(statement.to_json()) for key, statement in statements.items()})
    elif not statements:
        console.out.print(f"{name} is not certified\nnext: vetted certify {name}")
    else:
        terms = judgement.terms(home, lock)
        for statement in statements.values():
            _print(lock, statement, judgement.doubts(statement, terms))
    if not statements:
        raise typer.Exit(1)


def _print(lock: Lock, statement: Statement, doubts: Sequence[str]) -> None:
    console.out.print(text.line(lock.stack.title), style="bold")
    for subject in statement.subject:
        digest = f"sha256:{subject.digest.sha256 if subject.digest else ''}"
        console.out.print(f"  subject   {text.line(subject.name, WIDE)}\n            {digest}")
    for resource in statement.predicate.configuration:
        console.out.print(f"  {text.line(resource.name, WIDE):<9} {text.line(_value(resource), WIDE)}")
    predicate = statement.predicate
    if predicate.issued:
        console.out.print(f"  {'issued':<9} {predicate.issued}, expires {predicate.expires}")
    for doubt in doubts:
        console.out.print(f"  not valid: {doubt}", style="yellow")
    console.out.print(console.results_table(predicate.probes))
    for name, reason in predicate.notRun.items():
        console.out.print(text.line(f"not run: {name}: {reason}", WIDE))
    console.out.print()


def _value(resource: Resource) -> str:
    """A resource's digest; without one, its name and annotations."""
    if resource.digest:
        return f"sha256:{resource.digest.sha256}"
    annotations = dict(resource.annotations or {})
    name = str(annotations.pop("name", ""))
    annotations.pop("class", None)
    return " ".join(filter(None, (name, ", ".join(f"{key} {value}" for key, value in annotations.items()))))
