"""What the commands share: arguments, JSON, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from builder.base import errors
from builder.base.project import Project
from builder.intent import stack
from builder.lock.audit import Finding
from builder.lock.change import Change

Stacks = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STACK]...", help="Stacks. Default: all.", show_default=False),
]
OneStack = Annotated[
    str, typer.Argument(metavar="STACK", help="The stack: a folder in lockfiles/.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


class EngineName(StrEnum):
    docker = "docker"
    host = "host"


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def changes_json(changes: Iterable[Change]) -> list[dict[str, str | None]]:
    """Changes from a good lock to a bad one, as JSON."""
    return [{"name": change.name, "good": change.old, "bad": change.new} for change in changes]


def selected(home: Project, stacks: list[str] | None) -> list[str]:
    chosen = stacks or stack.names(home)
    if not chosen:
        raise errors.BadInputError("the project holds no stack", next_step="write lockfiles/<name>/stack.toml")
    for name in chosen:
        stack.load(home, name)  # an unknown or broken one is said before any work begins
    return chosen


def refuse(name: str, findings: list[Finding]) -> None:
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
