"""`vetted train`, from the command line to the exit status."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime import capability, parent, preflight, sampler
from runtime.check import Check
from runtime.monitor import certificate
from runtime.train import credentials, environment, folder, launch, nodes, process
from runtime.train.arguments import MONITOR, OUTPUT, TRAINERS, USAGE, Options, UsageError, parse
from runtime.train.folder import CONFIG, RUNS
from runtime.train.nodes import Nodes

if TYPE_CHECKING:
    from runtime.config.run import Machine
    from runtime.config.source import Config

SITE = Path(sysconfig.get_path("purelib"))
MODULE = "runtime.script"


@dataclass(frozen=True)
class Place:
    """Where a run runs: its site-packages folder, its nodes, its environment."""

    site: Path
    nodes: Nodes
    environ: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """What will run: the settings of a trainer, or the arguments of a script."""

    trainer: str
    script: Path | None
    arguments: tuple[str, ...]
    settings: Mapping[str, Any] | None = None  # None for a script
    launcher: Mapping[str, str | None] = field(default_factory=dict)
    ranks: int = 1


def main(arguments: Sequence[str], runs: Path = RUNS, site: Path = SITE) -> int:
    """Run `vetted train` with these arguments and return its exit status.

    Of several nodes, node 0 makes the folder of the run, and the ranks of the others learn it from its ranks
    (runtime.leader). The command on another node writes into a folder that is removed at its end.
    """
    parent.on_disconnect(lambda: os.kill(os.getpid(), signal.SIGHUP))
    try:
        options = parse(arguments)
        if options.help:
            print(USAGE, end="")
            return 0
        if not _ready(preflight.look()):
            return 1
        earlier = folder.resumed(runs, options.run) if options.resume else None
        before = folder.read(earlier) if earlier else None
        if earlier and before and before.script is None and not options.rest and _is_complete(earlier):
            return 0
        variables = {**(before.environment if before else {}), **os.environ}
        place = Place(site, _nodes(options, before, variables), environment.complete(variables))
        apart = place.nodes.rank > 0
        target = Path(tempfile.mkdtemp(prefix="vetted-")) if apart else earlier or folder.new(runs)
        try:
            plan = _plan(options, before, earlier or target, place)
            if options.only:
                _discard(target)
                return 0
            settings, secret = credentials.split(plan.settings or {})
            record = folder.Record(
                plan.trainer,
                str(plan.script) if plan.script else None,
                credentials.without(plan.arguments),
                (*(before.commands if before else ()), credentials.hidden(("vetted", "train", *arguments))),
                os.environ.get("VETTED_IMAGE"),
                os.environ.get("VETTED_STACK"),
                environment.recorded(variables),
            )
            folder.write(target, record, None if plan.settings is None else settings)
        except BaseException:
            _discard(target)
            raise
    except UsageError as error:
        print(f"vetted: {error}", file=sys.stderr)
        return 2
    checkpoint = folder.latest(target) if earlier else None
    _announce(place.nodes, target, checkpoint)
    environ = {**place.environ, launch.NODES: str(place.nodes.number), **credentials.variables(secret)}
    environ |= {folder.OUTPUT: str(target), folder.CHECKPOINT: str(checkpoint or "")}
    environ |= {} if options.monitor else {MONITOR: "0"}
    environ.setdefault("WANDB_DIR", str(target))  # the current folder is read-only in a container
    status = process.run([*_argv(plan, place.nodes), *credentials.arguments(secret)], target / process.STOP, environ)
    if apart:
        shutil.rmtree(target, ignore_errors=True)
    elif (status or plan.settings is None) and _discard(target):  # a script may have shown its --help, and no more
        print(f"vetted: this start never trained, so {target} was removed", file=sys.stderr)
    else:
        folder.share(target)
        _certify(target)
    return status


def _is_complete(run: Path) -> bool:
    """Whether nothing is left to do. That is no failure: a cluster may start a run again that was at its end."""
    if steps := folder.complete(run):
        print(
            f"vetted: the run {run.name} is complete: {steps} of {steps} steps\n"
            f"next: vetted train --resume {run.name} --max_steps {2 * steps} to train on",
            file=sys.stderr,
        )
    return bool(steps)


def _certify(target: Path) -> None:
    """Write the run certificate, now that the model is saved. A run without a monitor gets none."""
    try:
        result = certificate.write(target)
    except OSError as error:
        print(f"vetted: {target} gets no run certificate: {error.strerror}", file=sys.stderr)
        return
    if result:
        print(f"certificate {result}: {target / certificate.NAME}; next: vetted verify {target}", file=sys.stderr)


def _announce(group: Nodes, target: Path, checkpoint: Path | None) -> None:
    where = f"{group.address}:{group.port}"
    if group.rank:
        print(f"node     {group.rank} of {group.number}; node 0, at {where}, writes the run", file=sys.stderr)
        return
    print(f"run      {target}", file=sys.stderr)
    if checkpoint:
        print(f"resume   from {checkpoint.name}", file=sys.stderr)
    if group.number > 1:
        print(f"node     0 of {group.number}; waits for the others at {where}, up to 30 minutes", file=sys.stderr)


def _discard(target: Path) -> bool:
    return target.is_dir() and folder.discard(target)


def _nodes(options: Options, before: folder.Record | None, environ: Mapping[str, str]) -> Nodes:
    """The nodes, by the options of a trainer or by the environment. The options of a script are its own."""
    if options.script is not None or (before is not None and before.script is not None):
        return nodes.of(lambda _: None, environ)
    import yaml

    config = _read(options.config, options.rest)
    file = Path(str(config.get(launch.ACCELERATE)))
    try:
        described = yaml.safe_load(file.read_bytes()) if file.is_file() else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        described = None  # the check of the config says what is wrong
    return nodes.of(config.get, environ, described if isinstance(described, dict) else None)


def _read(path: Path | None, arguments: Sequence[str]) -> Config:
    # PyYAML is a package of the stack. Preflight, which comes first, needs none.
    from runtime.config import source

    try:
        return source.read(path, arguments)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise UsageError(_missing(path)) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}\n"
            f"usual cause: user {os.getuid()}:{os.getgid()}, which runs the training, may not read the file or folder\n"
            "next: chmod -R a+rX on that folder"
        ) from error
    except source.ConfigError as error:
        raise UsageError(f"{error}\nnext: fix that line") from error


def _plan(options: Options, before: folder.Record | None, target: Path, place: Place) -> Plan:
    """Read and check the config. `before`: what ran, of a run that is resumed. Raises UsageError."""
    ranks = launch.ranks({}, _gpus(place.environ), place.nodes)
    if before is not None and before.script is not None:
        return Plan("script", Path(before.script), (*before.arguments, *options.rest), ranks=ranks)
    if before is not None:
        return _of_trainer(before.trainer, target / CONFIG, options, place)
    if options.script is not None:
        if not options.script.is_file():
            raise UsageError(_missing(options.script))
        return Plan("script", options.script, options.rest, ranks=ranks)
    if options.config is not None:
        return _of_trainer(options.trainer, options.config, options, place)
    if options.trainer != "grpo":
        raise UsageError(f"{options.trainer} needs a config\nnext: vetted train {options.trainer} --config my.yaml")
    from runtime import task

    print("task     built in: a tiny policy learns to write lower-case letters", file=sys.stderr)
    return _of_trainer("grpo", task.make(target / folder.TASK), options, place)


def _of_trainer(trainer: str, path: Path, options: Options, place: Place) -> Plan:
    from runtime.config import advisories, fit, look, sharding
    from runtime.config import options as schema
    from runtime.config.run import Run
    from runtime.train import merge

    site, environ = place.site, place.environ
    if trainer not in TRAINERS or not (site / schema.SCRIPTS / f"{trainer}.py").is_file():
        raise UsageError(f"the TRL of this image has no trainer {trainer}")
    config = _read(path, options.rest)
    if (output := config.find(OUTPUT)) is not None:
        print(f"note     {config.place(output)}: {OUTPUT} is not used: runs go to /runs/<time>", file=sys.stderr)
    try:
        known = schema.read(site, trainer)
    except schema.UnreadableError:
        known = {}
    # Without the nodes: a run may be resumed on others.
    ours = {*nodes.OPTIONS, OUTPUT}
    settings = {name: value for name, value in merge.merged(config, known).items() if name not in ours}
    flags = {name: flag for name, flag in schema.launcher(site).items() if name not in known}
    launcher = launch.chosen(settings, flags)
    if (name := launcher.get(launch.ACCELERATE)) and not Path(name).is_file():
        launcher[launch.ACCELERATE] = str(site / "trl/accelerate_configs" / f"{name}.yaml")
    ranks = launch.ranks(settings, _gpus(environ), place.nodes)
    shards = sharding.read(settings, launcher, Path.cwd())
    run = Run(trainer, settings, known, launch.kind(settings, launcher, ranks), ranks, shards)
    if options.check:
        checks = look.look(config, trainer, site, ranks, Path.cwd(), environ)
        checks += sampler.look(settings, environ, cuda=_cuda() is not None)
        machine = _machine(environ)
        checks += advisories.look(run, machine, preflight.stack(Path("/")))
        if not _ready(checks, "config"):
            raise UsageError("the config has mistakes, so nothing was started\nnext: fix them, or use --no-check")
        print(f"config   {len(settings)} options, no mistake found", file=sys.stderr)
        if machine.memory or options.only:
            for check in fit.look(run, machine, site, Path.cwd(), environ):
                print(f"memory   {check}", file=sys.stderr)
    return Plan(trainer, None, (), settings, launcher, ranks)


def _missing(path: Path | None) -> str:
    return (
        f"{path} is not there\n"
        "usual cause: the container sees only the folder where you ran the command, as /here\n"
        "next: name the file relative to that folder"
    )


def _argv(plan: Plan, group: Nodes) -> list[str]:
    """The command of the run. Its script learns the folder from the environment (runtime.leader)."""
    if plan.settings is None:
        return launch.command([MODULE, str(plan.script), *plan.arguments], None, {}, plan.ranks, group)
    words = ["--disable_tqdm", "False"]  # the recorder shows the progress in place of TRL
    if "report_to" not in plan.settings:
        words += ["--report_to", "none"]  # metrics.jsonl and TensorBoard events are written anyway
    if not _cuda():
        words += ["--use_cpu", "True"]
    return launch.command([MODULE, plan.trainer, *words], plan.settings, plan.launcher, plan.ranks, group)


def _cuda() -> str | None:
    return preflight.cuda(preflight.stack(Path("/")).get("distributions", {}))


def _machine(environ: Mapping[str, str]) -> Machine:
    from runtime.config.run import Machine

    root = Path("/")
    gpus, cuda = preflight.gpus(root, environ), _cuda()
    sizes = capability.memory() if gpus and cuda else {}
    torch = preflight.stack(root).get("distributions", {}).get("torch", "")
    return Machine(
        gpus=tuple(gpus),
        driver=preflight.driver(root),
        cuda=cuda,
        memory=min((sizes[model] for model in gpus if model in sizes), default=None),
        fused=capability.numbers(torch.partition("+")[0]) >= (2, 8),
    )


def _gpus(environ: Mapping[str, str]) -> int:
    return len(preflight.gpus(Path("/"), environ))


def _ready(checks: Iterable[Check], word: str = "") -> bool:
    """Print checks; False if the run is sure to fail. Of preflight's the first is printed always."""
    ready = True
    for number, check in enumerate(checks):
        if check.level != "ok" or (number == 0 and not word):
            print(f"{word if word and check.level == 'stop' else check.level:<8} {check}", file=sys.stderr)
        ready &= check.level != "stop"
    return ready
