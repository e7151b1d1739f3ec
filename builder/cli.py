"""The command `vetted`: what people type."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from builder import console, errors
from builder.commands import bisect, carry, doctor, pipeline, proof, registry, upgrade
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
    "publish": registry.publish_,
    "verify": registry.verify_,
    "use": registry.use_,
    "bundle": carry.bundle_,
    "doctor": doctor.doctor_,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(bisect.app, name="bisect")
app.command("run-bundle", hidden=True)(carry.run_bundle)


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
        print_json({"error": said})
    else:
        console.note(f"vetted: {error}")
    sys.exit(error.exit_code)
