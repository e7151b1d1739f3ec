"""The command `vetted`: what people type."""

from __future__ import annotations

import io
import sys
import tempfile
import traceback
from collections.abc import Callable

import typer

from builder import console
from builder.base import errors, text
from builder.commands import bisect, carry, doctor, pipeline, proof, publish, upgrade, use, verify
from builder.commands.common import print_json

app = typer.Typer(
    help="Images for GRPO training that were proven to train: locked, built bit for bit, run, certified.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)

# In the order of the work, which is the order of the help.
COMMANDS: dict[str, Callable[..., None]] = {
    "list": pipeline.list_,
    "lock": pipeline.lock_,
    "render": pipeline.render_,
    "build": pipeline.build_,
    "bake": pipeline.bake_,
    "certify": proof.certify_,
    "show": proof.show,
    "controls": proof.controls_,
    "outdated": upgrade.outdated_,
    "recertify": upgrade.recertify_,
    "publish": publish.publish_,
    "verify": verify.verify_,
    "use": use.use_,
    "bundle": carry.bundle_,
    "doctor": doctor.doctor_,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(bisect.app, name="bisect")
app.command("run-bundle", hidden=True)(carry.run_bundle)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that has no letter for ≤ or for a name
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="vetted")
    except errors.VettedError as error:
        _fail(error)
    except OSError as error:
        _fail(errors.from_os(error))
    except Exception as error:
        _fail(_unexpected(error))


def _unexpected(error: Exception) -> errors.VettedError:
    """What nobody foresaw: a fault of Vetted, whose traceback is kept for whoever mends it."""
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="vetted-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
            name = file.name
    except OSError as unwritten:
        name = f"nowhere: {unwritten.strerror}"
    said = text.line(f"{type(error).__name__}: {error}", 300)
    return errors.VettedError(
        f"Vetted failed in a way that nobody foresaw: {said}\nthe traceback lies in {name}",
        cause="a fault of Vetted, or a file that was spoiled in a way that it does not know",
        next_step="git status, which names what was edited; then report it with that traceback",
    )


def _fail(error: errors.VettedError) -> None:
    if "--json" in sys.argv:
        said = {"what": error.what, "cause": error.cause, "next": error.next_step, "exit_code": error.exit_code}
        print_json({"error": said})
    else:
        console.note(f"vetted: {error}")
    sys.exit(error.exit_code)
