"""Finding what broke: bisect packages, bisect config."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from builder import console
from builder.base import errors, process, project, sources, text
from builder.base.project import Project
from builder.base.text import word
from builder.bisect import configuration, draft, ends, reproducer, settings
from builder.bisect.between import Between
from builder.bisect.configuration import Configuration
from builder.bisect.journal import Journal
from builder.bisect.packages import BreakingChanges, Search
from builder.bisect.question import Question
from builder.bisect.settings import BreakingSettings
from builder.bisect.trials import Server
from builder.certify import catalogue, hostenv
from builder.commands import usage
from builder.commands.common import AsJson, changes_json, print_json
from builder.intent import advisory, stack
from builder.lock import lockfile

app = typer.Typer(
    help="Find what broke: changed packages, or settings.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Repeat = Annotated[
    int, typer.Option(min=1, help="Try each set until one verdict leads by this many. Raised when outcomes change.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Discard the trials of an earlier run of this bisection.")]


@app.command("packages")
def packages_(
    context: typer.Context,
    good: Annotated[str, typer.Option(help="A stack, controls/NAME[/twin], or a file of pins.", show_default=False)],
    bad: Annotated[
        str, typer.Option(help="The same, or what the good one is moved to: 'trl==0.14.0'.", show_default=False)
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="Any command instead of a probe: exit code 0 is green, 125 undecided, anything else red.",
            show_default=False,
        ),
    ] = None,
    probe: Annotated[str | None, typer.Option(help="The probe that turned red.", show_default=False)] = None,
    says: Annotated[str, typer.Option(help="Only a failure that says this counts.", show_default=False)] = "",
    repeat: Repeat = 1,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds for one run of a command.")] = 600,
    python: Annotated[str, typer.Option(help="The Python of a good end that is a file of pins.")] = "3.11",
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Find the smallest set of changed packages that turns a probe, or any command, red."""
    home = project.find()
    if bool(probe) == bool(command):
        raise typer.BadParameter("name one probe, or a command after --, and not both", param_hint="--probe")
    if probe:
        usage.refuse(context, ("time_limit",), "is for a command: a probe has its own limit")
    question = Question(probe or "", tuple(command or ()), says, time_limit)
    catalogue.require(home.smoke, [question.probe] if question.probe else [])
    advisories = advisory.load_all(home)
    with home.holding(".bisect") as scratch, console.BisectionProgress("bisect") as progress:
        progress.say("reading the two ends")
        first = ends.read(home, good, scratch, python=python)
        if not Path(good).is_file():
            usage.refuse(context, ("python",), "is for a good end that is a file of pins: any other names its Python")
        between = Between(first, ends.read(home, bad, scratch, python=python, good=first), "")
        if not between.changes:
            raise errors.BadInputError(
                f"{good} and {bad} have the same distributions", next_step="vetted bisect config, or other ends"
            )
        between.name = question.key(between, sources.copy(home.smoke, scratch / "suite"))
        journal = Journal.open(home, between.name, scratch, repeat, fresh=fresh)
        journal.on_trial = progress.trial
        with _resumable(journal, as_json):
            search = Search(home, between, question, journal, scratch, progress.say, scratch / "suite")
            breaking = search.run(advisories)
        script = reproducer.make(home, breaking, question, journal.folder / "reproducer", scratch)
        drafted = draft.make(home, breaking, question, journal.folder, scratch)
    if as_json:
        print_json(_packages_json(breaking, len(between.changes), journal, script, drafted))
    else:
        _print_packages(home, breaking, len(between.changes), journal, script, drafted)


@contextmanager
def _resumable(journal: Journal, as_json: bool) -> Iterator[None]:
    """Show what was tried, whatever ends the search; after an interruption say how to go on."""
    try:
        yield
    except (errors.VettedError, KeyboardInterrupt) as end:
        if not as_json and journal.sets:
            console.out.print(console.tried_table(journal.tried()))
        if isinstance(end, KeyboardInterrupt):
            console.note("interrupted: the same command goes on where it was")
            raise typer.Exit(130) from end
        raise


def _packages_json(
    breaking: BreakingChanges, changed: int, journal: Journal, script: Path, drafted: Path
) -> dict[str, Any]:
    return {
        "culprits": changes_json(breaking.culprits),
        "along": changes_json(breaking.dependencies),
        "changes": changed,
        "fault": breaking.trial.fault,
        "reason": breaking.trial.reason,
        "runs": journal.runs,
        "reproducer": str(script),
        "advisory": str(drafted),
        "tried": journal.tried(),
    }


def _print_packages(
    home: Project, breaking: BreakingChanges, changed: int, journal: Journal, script: Path, drafted: Path
) -> None:
    out = console.out
    out.print(console.tried_table(journal.tried()))
    out.print()
    out.print(f"{changed} packages changed; {_needed(breaking.culprits)}, in {journal.runs} runs:")
    for change in breaking.culprits:
        out.print(f"  {change}", style="bold")
    for change in breaking.dependencies:
        out.print(f"  {change}, because they require it")
    out.print(text.line(f"it says: {breaking.trial.reason or breaking.trial.fault}"))
    out.print(f"reproducer: {home.relative(script)}")
    out.print(f"draft of an advisory: {home.relative(drafted)}")
    out.print(f"next: read and complete the draft, then copy it to {word(home.relative(home.advisories))}/")


def _needed(culprits: Sequence[object]) -> str:
    return "this one turns it red" if len(culprits) == 1 else f"these {len(culprits)} together turn it red"


@app.command("config")
def config_(
    path: Annotated[Path, typer.Option("--config", help="The file for `trl grpo --config`.", show_default=False)],
    name: Annotated[
        str | None, typer.Option("--stack", help="Where to try it.", show_default="the first CPU stack")
    ] = None,
    python: Annotated[
        Path | None, typer.Option(help="The Python of your own environment instead.", show_default=False)
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="model, data, reward, or a setting: use yours, unchanged. May be repeated.", show_default=False
        ),
    ] = None,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds for one trial; then it hangs.")] = 60,
    repeat: Repeat = 1,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Find the smallest set of settings that fails, and the largest that works. A tiny model stands in for yours."""
    home = project.find()
    config = configuration.read(path, keep or [])
    with home.holding(".bisect") as scratch, console.BisectionProgress(path.name) as progress:
        root = scratch / "suite"
        suite = sources.copy(home.smoke, root)
        interpreter, device, identity = _interpreter(home, name, python, scratch, progress)
        journal = Journal.open(home, config.key(identity, suite), scratch, repeat, fresh=fresh)
        journal.on_trial = progress.trial
        with (
            _resumable(journal, as_json),
            Server(interpreter, device, config, root, scratch, time_limit) as server,
        ):
            breaking = settings.Search(config, journal, server.run, progress.say).run()
        smallest, works = journal.folder / "smallest.yaml", journal.folder / "works.yaml"
        others = [setting for setting in config.settings if setting not in breaking.take_out]
        project.write(smallest, configuration.dump(config.part(breaking.failing)), scratch)
        project.write(works, configuration.dump(config.part(others)), scratch)
    if as_json:
        print_json(_config_json(config, breaking, journal, smallest, works))
    else:
        _print_config(home, config, breaking, journal, smallest, works)


def _config_json(
    config: Configuration, breaking: BreakingSettings, journal: Journal, smallest: Path, works: Path
) -> dict[str, Any]:
    return {
        "failing": config.part(breaking.failing), "take_out": list(breaking.take_out),
        "fault": breaking.trial.fault, "reason": breaking.trial.reason, "trials": journal.runs,
        "replaced": list(config.replaced), "reduced": list(config.reduced),
        "smallest": str(smallest), "works": str(works), "tried": journal.tried(),
    }  # fmt: skip


def _print_config(
    home: Project, config: Configuration, breaking: BreakingSettings, journal: Journal, smallest: Path, works: Path
) -> None:
    out = console.out
    out.print(console.tried_table(journal.tried()))
    out.print()
    for name, (yours, ours) in config.reduced.items():
        out.print(text.line(f"reduced: {name} from {yours} to {ours}"))
    if config.replaced:
        out.print(text.line(f"replaced by ours: {', '.join(config.replaced)}"))
    together = "this setting fails" if len(breaking.failing) == 1 else f"these {len(breaking.failing)} fail together"
    out.print(f"of {len(config.settings)} settings, {together}, in {journal.runs} trials:")
    for name in breaking.failing:
        out.print(text.line(f"  {name}: {config.settings[name]}"), style="bold")
    out.print(text.line(f"it says: {breaking.trial.reason or breaking.trial.fault}"))
    out.print(text.line(f"all the rest works without {', '.join(breaking.take_out)}"))
    out.print(f"the smallest that fails: {home.relative(smallest)}")
    out.print(f"the largest that works: {home.relative(works)}")


def _interpreter(
    home: Project, name: str | None, python: Path | None, scratch: Path, progress: console.BisectionProgress
) -> tuple[Path, str, str]:
    """The Python of the trials, their device, and an identity that changes with the environment."""
    if python is not None:
        if name is not None:
            raise typer.BadParameter("name a stack or a Python, and not both", param_hint="--python")
        runs = python.is_file() and os.access(python, os.X_OK)
        if not runs or process.run([str(python.absolute()), "-I", "-S", "-c", "import sys"]).returncode != 0:
            raise errors.BadInputError(f"{python} is not a Python", next_step="--python .venv/bin/python")
        return python.absolute(), "cpu", str(python.absolute())
    cpu_stacks = (name for name in stack.names(home) if stack.load(home, name).device == "cpu")
    chosen = name or next(cpu_stacks, None)
    if chosen is None:
        raise errors.BadInputError("the project has no CPU stack", next_step="--stack NAME, or --python PATH")
    lock = lockfile.load(home, chosen)
    (scratch / "host").mkdir(exist_ok=True)
    prepared = hostenv.prepare(home, lock, scratch / "host", progress.say)
    return prepared / "bin" / "python", lock.stack.device, lock.digest
