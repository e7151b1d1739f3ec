"""Finding what broke: bisect packages, bisect config."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from builder import console
from builder.base import errors, project, sources, text
from builder.base.project import Project
from builder.bisect import draft, reproducer, sides
from builder.bisect import packages as bisect_packages
from builder.bisect import settings as bisect_config
from builder.bisect.bisection import Journal
from builder.bisect.packages import Found, Question
from builder.certify import hostenv
from builder.commands.common import AsJson, changes_json, print_json
from builder.intent import advisory, stack
from builder.lock import lockfile

app = typer.Typer(
    help="Find what broke: which of the packages that changed, or which settings of a configuration.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Repeat = Annotated[
    int, typer.Option(min=1, help="Ask each until one answer leads by this many. Raised when answers change.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget what an earlier run of this very bisection answered.")]


@app.command()
def packages(
    good: Annotated[str, typer.Option(help="A stack, controls/NAME[/twin], or a file of pins.", show_default=False)],
    bad: Annotated[
        str, typer.Option(help="The same, or what the good one is moved to: 'trl==0.14.0'.", show_default=False)
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="Any command in place of a probe: 0 is green, 125 cannot say, all else is red.",
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
    question = Question(probe or "", tuple(command or ()), says, time_limit)
    _known_probe(home, question.probe)
    advisories = advisory.load_all(home)
    with home.holding("bisect") as scratch, console.Trying("bisect") as work:
        work.say("reading the two ends")
        first = sides.read(home, good, scratch, python=python)
        second = sides.read(home, bad, scratch, python=python, good=first)
        identity = sources.copy(home.smoke, scratch / "suite")
        between = sides.Between(first, second, "")
        if not between.changes:
            raise errors.BadInputError(
                f"{good} and {bad} hold the same distributions", next_step="vetted bisect config, or other ends"
            )
        key = bisect_packages.key(between, question, identity)
        between.name = key
        if fresh:
            (home.state / "bisect" / f"{key}.json").unlink(missing_ok=True)
        journal = Journal.open(home, key, scratch, repeat)
        journal.told = work.told
        search = bisect_packages.Search(home, between, question, journal, scratch, work.say, scratch / "suite")
        with _resumable(journal, as_json):
            found = search.run(advisories)
        script = reproducer.make(home, found, question, journal.folder / "reproducer", scratch)
        drafted = draft.make(home, found, question, journal.folder, scratch)
    if as_json:
        print_json(answer(found, len(between.changes), journal, script, drafted))
        return
    _print(home, found, len(between.changes), journal, script, drafted)


@contextmanager
def _resumable(journal: Journal, as_json: bool) -> Iterator[None]:
    """What was tried is shown whatever ends it, and an interruption says how to go on."""
    try:
        yield
    except (errors.VettedError, KeyboardInterrupt) as ended:
        if not as_json and journal.rows:
            console.out.print(console.tried_table(journal.tried()))
        if isinstance(ended, KeyboardInterrupt):
            console.note("interrupted: the same command goes on where it was")
            raise typer.Exit(130) from ended
        raise


def _known_probe(home: Project, probe: str) -> None:
    """A misspelt probe is said before anything is installed."""
    names = [path.stem.replace("_", "-") for path in (home.smoke / "probes").glob("[!_]*.py")]
    if probe and names and probe not in names:
        close = difflib.get_close_matches(probe, names, n=1)
        raise errors.BadInputError(
            f"there is no probe {probe}" + (f"; did you mean {close[0]}?" if close else ""), next_step="ls smoke/probes"
        )


def answer(found: Found, changed: int, journal: Journal, script: Path, drafted: Path) -> dict[str, Any]:
    """What was found, as JSON."""
    return {
        "culprits": changes_json(found.culprits),
        "along": changes_json(found.along),
        "changes": changed,
        "fault": found.said.fault,
        "reason": found.said.reason,
        "runs": journal.runs,
        "reproducer": str(script),
        "advisory": str(drafted),
        "tried": journal.tried(),
    }


def _print(home: Project, found: Found, changed: int, journal: Journal, script: Path, drafted: Path) -> None:
    console.out.print(console.tried_table(journal.tried()))
    console.out.print()
    console.out.print(f"{changed} packages changed; {_needed(found.culprits)}, in {journal.runs} runs:")
    for change in found.culprits:
        console.out.print(f"  {change}", style="bold")
    for change in found.along:
        console.out.print(f"  {change}, because they require it")
    console.out.print(text.line(f"it says: {found.said.reason or found.said.fault}"))
    console.out.print(f"reproducer: {home.relative(script)}")
    console.out.print(f"draft of an advisory: {home.relative(drafted)}")
    console.out.print(f"next: read and complete the draft, then copy it to {home.relative(home.advisories)}/")


def _needed(culprits: Sequence[object]) -> str:
    return "this one turns it red" if len(culprits) == 1 else f"these {len(culprits)} together turn it red"


@app.command()
def config(
    path: Annotated[Path, typer.Option("--config", help="What `trl grpo --config` is given.", show_default=False)],
    on: Annotated[
        str | None, typer.Option("--stack", help="Where to try it.", show_default="the first CPU stack")
    ] = None,
    python: Annotated[
        Path | None, typer.Option(help="The Python of an environment of your own instead.", show_default=False)
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
    asked = bisect_config.read(path, keep or [])
    with home.holding("bisect") as scratch, console.Trying(path.name) as work:
        identity = sources.copy(home.smoke, scratch / "suite")
        environment, device, named = _environment(home, on, python, scratch, work)
        key = bisect_config.key(asked, named, identity)
        if fresh:
            (home.state / "bisect" / f"{key}.json").unlink(missing_ok=True)
        journal = Journal.open(home, key, scratch, repeat)
        journal.told = work.told
        with (
            _resumable(journal, as_json),
            bisect_config.Server(environment, device, asked, scratch / "suite", scratch, time_limit) as server,
        ):
            found = bisect_config.search(asked, journal, server.ask, work.say)
        smallest = journal.folder / "smallest.yaml"
        project.write(smallest, bisect_config.dump(asked, found.failing), scratch)
        works = journal.folder / "works.yaml"
        rest = [name for name in asked.settings if name not in found.without]
        project.write(works, bisect_config.dump(asked, rest), scratch)
    if as_json:
        print_json(
            {
                "failing": {name: asked.settings[name] for name in found.failing}, "take_out": list(found.without),
                "fault": found.said.fault, "reason": found.said.reason, "trials": journal.runs,
                "replaced": list(asked.replaced), "reduced": list(asked.reduced),
                "smallest": str(smallest), "works": str(works), "tried": journal.tried(),
            }
        )  # fmt: skip
        return
    console.out.print(console.tried_table(journal.tried()))
    console.out.print()
    for name, (was, now) in asked.reduced.items():
        console.out.print(text.line(f"reduced: {name} from {was} to {now}"))
    if asked.replaced:
        console.out.print(text.line(f"replaced by ours: {', '.join(asked.replaced)}"))
    together = "this setting fails" if len(found.failing) == 1 else f"these {len(found.failing)} fail together"
    console.out.print(f"of {len(asked.settings)} settings, {together}, in {journal.runs} trials:")
    for name in found.failing:
        console.out.print(text.line(f"  {name}: {asked.settings[name]}"), style="bold")
    console.out.print(text.line(f"it says: {found.said.reason or found.said.fault}"))
    console.out.print(text.line(f"all the rest works without {', '.join(found.without)}"))
    console.out.print(f"the smallest that fails: {home.relative(smallest)}")
    console.out.print(f"the largest that works: {home.relative(works)}")


def _environment(
    home: Project, on: str | None, python: Path | None, scratch: Path, work: console.Trying
) -> tuple[Path, str, str]:
    """Where the trials run: the environment, its device, and a name that changes with it."""
    if python is not None:
        if on is not None:
            raise typer.BadParameter("name a stack or a Python, and not both", param_hint="--python")
        if not python.is_file():
            raise errors.BadInputError(f"{python} is not a Python", next_step="--python .venv/bin/python")
        return python.absolute().parent.parent, "cpu", str(python.absolute())
    name = on or next((one for one in stack.names(home) if stack.load(home, one).device == "cpu"), None)
    if name is None:
        raise errors.BadInputError("the project has no CPU stack", next_step="--stack NAME, or --python PATH")
    lock = lockfile.load(home, name)
    (scratch / "host").mkdir(exist_ok=True)
    return hostenv.prepare(home, lock, scratch / "host", work.say), lock.stack.device, lock.digest
