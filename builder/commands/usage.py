"""A command line that is not understood: what is wrong with it, and the nearest thing that there is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import typer

from builder.base import errors

# Typer exports this class under no name: the parent of BadParameter, of an unknown option and of an unknown command.
ERROR: Any = typer.BadParameter.__mro__[1]

EMPTY = re.compile(r"--[a-z-]+=")


class UsageError(errors.VettedError):
    """An unknown command, option or argument, or options that do not go together."""

    exit_code: ClassVar[int] = 2


def wants_json(argv: Sequence[str]) -> bool:
    """Does this command line ask for JSON? What follows `--` is another program's."""
    ours = list(argv)
    return "--json" in ours[: ours.index("--") if "--" in ours else None]


def empty(argv: Sequence[str]) -> str:
    """What is wrong with a command line that has an empty argument: "" for none. An empty path is the current folder,
    and an empty option none at all: `--key "$KEY"` would not sign, and say nothing. What follows `--` may be empty."""
    ours = list(argv)[: list(argv).index("--") if "--" in argv else None]
    for place, argument in enumerate(ours):
        if not argument or EMPTY.fullmatch(argument):
            option = argument.rstrip("=") or (ours[place - 1] if place else "")
            where = f"the value of {option}" if option.startswith("--") and "=" not in option else "an argument"
            return f"{where} is empty: is a variable of the shell not set?"
    return ""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean NAME?` for a misspelt name, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def refuse(context: typer.Context, parameters: Iterable[str], reason: str) -> None:
    """Raise for the first of these options and arguments that was typed: what has no effect is refused, not ignored.

    `reason` continues a sentence that begins with the option, or with the name that the help has for an argument.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name in parameters and source is not None and source.name == "COMMANDLINE":
            option = parameter.param_type_name == "option"
            names = (*parameter.opts, *parameter.secondary_opts) if option else (str(parameter.metavar),)
            raise ERROR(f"{'/'.join(names).strip('[].')} {reason}", ctx=context)


def explain(error: Any) -> None:
    """Let Typer's error say what is nearest, in the words of the other errors."""
    error.message = error.message.replace("Value error, ", "")  # Pydantic's, about a choice
    option = getattr(error, "option_name", None)
    if option is None or not hasattr(error, "possibilities"):
        return
    root = error.ctx is not None and error.ctx.parent is None
    group = error.ctx is not None and hasattr(error.ctx.command, "list_commands")
    if option == "--json" and group:
        hint = f"; it goes behind the command: {error.ctx.command_path} COMMAND --json"
    elif option in ("--stacks", "--version") and not root:
        hint = f"; it goes before the command: vetted {option}{' DIR COMMAND' if option == '--stacks' else ''}"
    else:
        hint = nearest(option, error.possibilities or ())
    error.message, error.possibilities = f"{error.message}{hint}", None


def as_error(error: Any) -> UsageError:
    """Typer's error for programs; `explain` comes first."""
    command = error.ctx.command_path if error.ctx is not None else "vetted"
    return UsageError(" ".join(error.format_message().split()), next_step=f"{command} --help")
