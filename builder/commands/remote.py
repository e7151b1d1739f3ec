"""What the commands that reach a registry share: options, and the registry's name."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.publish.reference import Repository, parse_repository

Insecure = Annotated[bool, typer.Option("--insecure", help="Use HTTP. A registry on this machine always does.")]
AllowRollback = Annotated[
    bool, typer.Option("--allow-rollback", help="Accept an older release than this machine has seen.")
]


def repository(where: str, insecure: bool, option: str = "--registry") -> Repository:
    try:
        return parse_repository(where, insecure=insecure)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
