"""What the commands share: arguments, JSON, and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from builder import console
from builder.base import errors
from builder.base.project import Project
from builder.console import print_json as print_json
from builder.image import daemon
from builder.intent import stack
from builder.lock.audit import AuditFinding
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


class OnePlatform(StrEnum):
    amd64 = "amd64"
    arm64 = "arm64"


class PlatformName(StrEnum):
    amd64 = "amd64"
    arm64 = "arm64"
    all = "all"


def changes_json(changes: Iterable[Change]) -> list[dict[str, str | None]]:
    """Changes from a good lock to a bad one, as JSON."""
    return [{"name": change.name, "good": change.old, "bad": change.new} for change in changes]


def selected(home: Project, stacks: list[str] | None) -> list[str]:
    chosen = list(dict.fromkeys(stacks or stack.names(home)))
    if not chosen:
        raise errors.BadInputError("the project has no stack", next_step="write lockfiles/<name>/stack.toml")
    for name in chosen:
        stack.load(home, name)  # an unknown or broken one is reported before any work begins
    return chosen


def refuse(name: str, findings: list[AuditFinding]) -> None:
    """Raise for a stack whose lock is stale or unsound: it is neither built nor run."""
    for finding in findings:
        if finding.got:
            raise errors.NetworkError(
                f"{name}: {finding.what}\nexpected {finding.expected}\ngot      {finding.got}",
                cause="the lock was edited, or the index serves other bytes than when it was locked",
                next_step=finding.fix,
            )
    if findings:
        raise errors.VettedError(
            "\n".join(f"{name}: {finding.what}" for finding in findings), next_step=findings[0].fix
        )


def answering_engine() -> EngineName:
    """Docker if it answers; otherwise the host, and a line says so."""
    try:
        daemon.docker()
    except errors.MissingToolError:
        console.note("no Docker engine answers: certifying the lock on this host, in a virtual environment")
        return EngineName.host
    return EngineName.docker
