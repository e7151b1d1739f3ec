"""The command `vetted`: what people type."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from builder import console
from builder.base import errors, streams, text
from builder.commands import usage, version

PLAIN: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": None}

# In the order of the work, which is the order of the help: the command, its function or group, and an example of it.
COMMANDS = {
    "list": ("listing.list_", "vetted list"),
    "lock": ("pipeline.lock_", "vetted lock trl1.16-cpu --upgrade datasets"),
    "extend": ("extend.extend_", "vetted extend trl1.16-cpu mine.txt --name mine"),
    "gpus": ("gpus.gpus_", "vetted gpus trl1.16-cu130"),
    "render": ("render.render_", "vetted render --check"),
    "build": ("pipeline.build_", "vetted build trl1.16-cpu --prove"),
    "bake": ("pipeline.bake_", "vetted bake trl1.16-cpu trl1.16-cu130"),
    "certify": ("certify.certify_", "vetted certify trl1.16-cpu --engine host"),
    "fleet": ("fleet.fleet_", "vetted fleet trl1.16-cpu trl1.16-cu130 --on slurm --gpus h200:2"),
    "show": ("show.show_", "vetted show trl1.16-cpu"),
    "controls": ("controls.controls_", "vetted controls trl0.14-transformers4.52"),
    "outdated": ("upgrade.outdated_", "vetted outdated trl1.16-cpu"),
    "recertify": ("upgrade.recertify_", "vetted recertify trl1.16-cpu --upgrade transformers"),
    "trajectories": ("trajectories.trajectories_", "vetted trajectories trl1.16-cpu --against before.json"),
    "watch": ("watch.watch_", "vetted watch trl1.16-cpu --open"),
    "publish": ("publish.publish_", "vetted publish trl1.16-cpu --registry HOST/PATH --key cosign.key"),
    "verify": ("verify.verify_", "vetted verify HOST/PATH:trl1.16-cpu --key cosign.pub"),
    "policy": ("policy.policy_", "vetted policy policy.toml --output rules"),
    "use": ("use.use_", "vetted use trl1.16-cpu"),
    "bundle": ("carry.bundle_", "vetted bundle trl1.16-cpu --output bundle"),
    "site": ("site.site_", "vetted site --output public"),
    "doctor": ("doctor.doctor_", "vetted doctor --python .venv --log train.log"),
    "bisect": ("bisect.app", ""),
}
BISECTIONS = {
    "packages": "vetted bisect packages --good trl1.16-cpu --bad trl==0.14.0 --probe grpo-plain",
    "config": "vetted bisect config --config train.yaml --stack trl1.16-cpu",
}
HIDDEN = {"run-bundle": ("carry.run_bundle", "")}


class Commands(TyperGroup):
    """Imports the module of a command when it is needed: all of them take half a second."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [*COMMANDS, *HIDDEN]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = load(cmd_name)
        return self.commands[cmd_name]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if problem := usage.empty(args):
            ctx.fail(problem)
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # of a program or a connection: Typer would end without a word
            raise errors.from_os(error) from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = (*COMMANDS, *HIDDEN)
        if args and args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}{usage.nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)


def load(name: str) -> Any:
    """Import a command, as Click knows it."""
    place, example = (COMMANDS | HIDDEN)[name]
    module, _, attribute = place.partition(".")
    command = getattr(importlib.import_module(f"builder.commands.{module}"), attribute)
    alone = typer.Typer(add_completion=False, **PLAIN)
    if isinstance(command, typer.Typer):
        for each in command.registered_commands:
            each.epilog = epilog(BISECTIONS[str(each.name)])
        alone.add_typer(command, name=name)
        return typer.main.get_group(alone).commands[name]
    alone.command(name, epilog=epilog(example) if example else None, hidden=name in HIDDEN)(command)
    return typer.main.get_command(alone)


def epilog(example: str) -> str:
    """The end of a command's help. The control character keeps the lines as they are."""
    return f"\b\nExample:\n  {example}"


app = typer.Typer(
    help="Container images for GRPO training that were proven to train: locked, reproducible, tested, certified.",
    cls=Commands,
    no_args_is_help=True,
    **PLAIN,
)


def _print_version(requested: bool) -> None:
    if requested:
        console.out.print(version.line())
        raise typer.Exit


@app.callback()
def vetted(
    stacks: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A folder of your own stacks, besides lockfiles/. Default: VETTED_STACKS.",
            show_default=False,
        ),
    ] = None,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and the installation."
        ),
    ] = False,
) -> None:
    if stacks is not None:
        os.environ["VETTED_STACKS"] = str(stacks)


def main() -> None:
    try:
        code = _run()
    except errors.OutputError as error:  # of the answer, or of an error in its place
        streams.abandon()
        if not isinstance(error, errors.ReaderGoneError):
            console.note(f"vetted: {error}")
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    sys.exit(code)


def _run() -> int:
    """Run the command that was typed; its exit code. Raises OutputError."""
    try:
        code = app(prog_name="vetted", standalone_mode=False)
        sys.stdout.flush()
    except errors.OutputError:
        raise
    except usage.ERROR as error:
        code = _refuse(error)
    except errors.VettedError as error:
        code = _fail(error)
    except OSError as error:
        code = _fail(errors.from_os(error))
    except Exception as error:
        code = _fail(_unexpected(error))
    return int(code or 0)


def _unexpected(error: Exception) -> errors.VettedError:
    """A bug in Vetted. Its traceback is kept in a file for the report."""
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="vetted-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
            name = file.name
    except OSError as unwritten:
        name = f"no file: {unwritten.strerror}"
    reason = text.line(f"{type(error).__name__}: {error}", 300)
    return errors.VettedError(
        f"Vetted failed unexpectedly: {reason}\nthe traceback is in {name}",
        cause="a bug in Vetted, or a damaged file that it does not recognize",
        next_step="git status, which lists edited files; then report it with that traceback",
    )


def _refuse(error: Any) -> int:
    """A command line that is not understood. What Typer prints is for people."""
    usage.explain(error)
    if usage.wants_json(sys.argv):
        return _fail(usage.as_error(error))
    error.show()
    return int(error.exit_code)


def _fail(error: errors.VettedError) -> int:
    """Say what went wrong; its exit code."""
    if usage.wants_json(sys.argv):
        answer = {"what": error.what, "cause": error.cause, "next": error.next_step, "exit_code": error.exit_code}
        console.print_json({"error": answer})
        sys.stdout.flush()
    else:
        console.note(f"vetted: {error}")
    return error.exit_code
