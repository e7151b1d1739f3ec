"""The command line of `vetted train`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TRAINERS = ("grpo", "sft", "dpo", "rloo", "reward", "kto")  # the scripts in trl/scripts that train
MONITOR = "VETTED_MONITOR"  # 0 switches the run monitor off; for a script, whose arguments are its own
# Options of TRL that this command sets itself. OUTPUT may be there, as in TRL's own commands, and is not used.
OUTPUT = "output_dir"
RESERVED = ("resume_from_checkpoint", "disable_tqdm")
USAGE = f"""usage: vetted train [TRAINER] [--config FILE] [OPTION VALUE]...
       vetted train SCRIPT.py [ARGUMENT]...
       vetted train --resume [RUN] [OPTION VALUE]...

TRAINER       a trainer of TRL: {", ".join(TRAINERS)} (default: grpo)
SCRIPT.py     a script of your own, with any Trainer of Transformers or TRL
--config      a config of that trainer, as for `trl grpo --config`; without one, a small built-in task
--resume      continue the latest run that has a checkpoint, or the one named
--check       check the config, say how much GPU memory it takes, and start nothing
--no-check    start even if the check of the config finds mistakes
--no-monitor  do not judge the run at every step; for a script: {MONITOR}=0
OPTION        any option of the trainer or of `accelerate launch`, such as --learning_rate 1e-6 --num_processes 2

On several nodes, start the same command on each: under srun, in a TrainJob of Kubeflow, or with NNODES, NODE_RANK and
MASTER_ADDR set.

Examples:
  vetted train --config my.yaml --max_steps 300
  vetted train --resume
"""


@dataclass(frozen=True)
class Options:
    """The arguments. `run` is the run to resume, None for the latest; `rest` goes to the trainer or the script."""

    trainer: str = "grpo"
    script: Path | None = None
    config: Path | None = None
    resume: bool = False
    run: str | None = None
    check: bool = True
    only: bool = False  # check, and start nothing
    monitor: bool = True
    help: bool = False
    rest: tuple[str, ...] = ()


class UsageError(Exception):
    """The arguments make no sense."""


def parse(arguments: Sequence[str]) -> Options:
    """Parse the command line; options that are not ours go to TRL or the script. Raises UsageError."""
    words = list(arguments)
    if words and words[0].endswith(".py"):
        return Options(script=Path(words[0]), rest=tuple(words[1:]))
    trainer = words.pop(0) if words and words[0] in TRAINERS else "grpo"
    if words and not words[0].startswith("-"):
        raise UsageError(
            f"there is no trainer {words[0]!r}\nnext: one of {', '.join(TRAINERS)}, or a script whose name ends in .py"
        )
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--resume", nargs="?", const=True)  # True for the latest run
    parser.add_argument("--check", dest="only", action="store_true")
    parser.add_argument("--no-check", dest="check", action="store_false")
    parser.add_argument("--no-monitor", dest="monitor", action="store_false")
    parser.add_argument("--help", "-h", action="store_true")
    try:
        known, rest = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise UsageError("--config needs a file") from error
    for name in (argument[2:].partition("=")[0] for argument in rest if argument.startswith("--")):
        if name.replace("-", "_") in RESERVED:
            raise UsageError(f"--{name} is set by vetted train: runs are in /runs/<time>, and --resume continues one")
    resume, run = known.resume is not None, None if known.resume is True else known.resume
    if resume and known.config:
        raise UsageError("--resume uses the config of its run: leave --config out")
    if run is not None and (not run or "/" in run or run in (".", "..")):
        raise UsageError(f"--resume {run!r} is not the name of a folder in /runs")
    if known.only and not known.check:
        raise UsageError("--check and --no-check say opposite things")
    return Options(
        trainer,
        config=known.config,
        resume=resume,
        run=run,
        check=known.check,
        only=known.only,
        monitor=known.monitor,
        help=known.help,
        rest=tuple(rest),
    )
