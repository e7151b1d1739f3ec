"""certify --config: a user's own configuration through the suite, and the report on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from builder import console
from builder.base.project import Project, write
from builder.certify import configuration, own
from builder.certify.certify import Options
from builder.certify.configuration import Configuration
from builder.certify.own import Examination
from builder.commands.common import EngineName, print_json
from builder.image import daemon
from builder.intent.advisory import Advisory
from builder.lock.lockfile import Lock


def chosen(config: Path | None, model_config: Path | None, excluded: Mapping[str, object]) -> Configuration | None:
    """The user's configuration, if one is named."""
    if config is None:
        if model_config is not None:
            raise typer.BadParameter("it is the model of a --config", param_hint="--model-config")
        return None
    if given := [option for option, value in excluded.items() if value]:
        raise typer.BadParameter(f"not together with {given[0]}: it gives a report", param_hint="--config")
    return configuration.read(config, model_config)


def examine(
    home: Project,
    lock: Lock,
    options: Options,
    given: Configuration,
    scratch: Path,
    advisories: Sequence[Advisory],
    *,
    as_json: bool,
) -> None:
    """Run a configuration through the suite. Exits with 1 where a probe is red."""
    if options.engine == EngineName.docker:
        daemon.docker()
    if not as_json:
        model = (
            f"the architecture of {given.model_file}"
            if given.model
            else f"no config.json of its model: {configuration.MODEL}"
        )
        console.err.print(f"{given.file} on {lock.stack.title}, {model}", soft_wrap=True, markup=False)
    with console.Working(lock.name) as work:
        examination = own.examine(home, lock, options, given, scratch, work.step, work.event)
    file = Path(given.file).resolve()
    report = home.state / "configurations" / lock.name / f"{file.parent.name}-{file.stem}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    write(report, json.dumps(examination.to_json(), indent=2) + "\n", scratch)
    if as_json:
        print_json(examination.to_json())
    else:
        _print(lock, examination, advisories)
        console.out.print(f"  {home.relative(report)}", markup=False)
    if not examination.passed:
        raise typer.Exit(1)


def _print(lock: Lock, examination: Examination, advisories: Sequence[Advisory]) -> None:
    console.out.print(console.results_table(examination.results))
    for line in console.reasons(examination.results, lock.versions, advisories):
        console.out.print(line)
    console.out.print()
    without: dict[str, list[str]] = {}
    for name, reason in examination.left_out.items():
        without.setdefault(reason, []).append(name)
    for reason, names in without.items():
        console.out.print(f"left out, {reason}: {', '.join(names)}", markup=False)
    console.out.print("not judged here:")
    for what in (*examination.unjudged, *own.LIMITS):
        console.out.print(f"  {what}", markup=False)
    red = [result.name for result in examination.results if result.outcome not in ("passed", "not-run")]
    if red:
        console.out.print(
            f"{examination.configuration.file} does not pass on {lock.name}: {', '.join(red)}", markup=False
        )
    else:
        console.out.print(
            f"{examination.configuration.file} passes on {lock.name}. A report, and no certificate:", markup=False
        )
