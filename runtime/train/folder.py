"""The folder of a run: /runs/<time>, with what ran and how to continue it."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runtime import preflight, verdict
from runtime.train.arguments import UsageError
from runtime.train.process import STOP

RUNS = Path("/runs")
CONFIG = "config.yaml"
RECORD = "run.json"
OUTPUT = "VETTED_OUTPUT"  # for a script of the user's own: the folder of its run
CHECKPOINT = "VETTED_CHECKPOINT"  # and the checkpoint to continue from; empty for none
CHECKPOINTS = re.compile(r"checkpoint-(\d+)")
# What a start writes before it trains. Everything else in the folder of a run is a result.
CERTIFICATES, TASK = "certificates", "task"
BEGINNING = re.compile(rf"{CONFIG}|{RECORD}|{CERTIFICATES}|{TASK}|{STOP}|\..*\.partial|events\.out\.tfevents\..*")


@dataclass(frozen=True)
class Record:
    """What ran: the trainer or the script with its arguments, every command of this run, image and variables."""

    trainer: str
    script: str | None = None
    arguments: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    image: str | None = None
    stack: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def new(runs: Path) -> Path:
    """Create the folder of a new run. Runs that start in the same second get different folders."""
    started = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    for number in itertools.count():
        folder = runs / (started if number == 0 else f"{started}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError


def write(folder: Path, record: Record, settings: Mapping[str, Any] | None) -> None:
    """Write what runs now: the merged config, the record, and the image's certificates."""
    if settings is not None:
        import yaml

        _replace(folder / CONFIG, yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))
    _replace(folder / RECORD, json.dumps(asdict(record), indent=2) + "\n")
    for path in verdict.certificate_files(Path("/"), preflight.stack(Path("/"))):
        (folder / CERTIFICATES).mkdir(exist_ok=True)
        shutil.copyfile(path, folder / CERTIFICATES / path.name)


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole: a run that is killed meanwhile can still be resumed."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read(folder: Path) -> Record:
    """The record of a run. One without, from an earlier release, is a run of GRPO."""
    try:
        fields = json.loads((folder / RECORD).read_bytes())
        return Record(
            fields["trainer"],
            fields["script"],
            tuple(fields["arguments"]),
            tuple(map(tuple, fields["commands"])),
            fields["image"],
            fields["stack"],
            fields["environment"],
        )
    except FileNotFoundError:
        return Record("grpo")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / RECORD} cannot be read: {error}\nnext: start a new run with its config") from error


def resumed(runs: Path, name: str | None) -> Path:
    """The run to resume: the one of this name, or the latest with a checkpoint. Raises UsageError."""
    started = sorted(path for path in runs.iterdir() if (path / CONFIG).is_file() or (path / RECORD).is_file())
    trained = [path for path in started if latest(path)]
    names = ", ".join(path.name for path in trained[-5:])
    if name is None:
        if not trained:
            raise UsageError(
                "there is no run to resume: no run in /runs has a checkpoint\n"
                "usual cause: it ended before save_steps\n"
                "next: start it again, with a smaller save_steps"
            )
        return trained[-1]
    folder = runs / name
    if folder in trained:
        return folder
    reason = "has no checkpoint" if folder in started else "is not in /runs"
    raise UsageError(f"the run {name} {reason}; the latest with one: {names or 'none'}")


def latest(folder: Path) -> Path | None:
    """The last complete checkpoint of a run."""
    steps = {}
    for path in folder.glob("checkpoint-*"):
        if (match := CHECKPOINTS.fullmatch(path.name)) and (path / "trainer_state.json").is_file():
            steps[int(match[1])] = path
    return steps[max(steps)] if steps else None


def complete(folder: Path) -> int | None:
    """The number of steps of a run that made them all; None for another. A trainer would make one more."""
    checkpoint = latest(folder)
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_bytes()) if checkpoint else {}
        done, planned = int(state["global_step"]), int(state["max_steps"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return done if 0 < planned <= done else None


def share(folder: Path) -> None:
    """Give the weights of a run the permissions of its other files: safetensors lets only their owner read them."""
    os.umask(mask := os.umask(0))
    for path in folder.rglob("*.safetensors"):
        with contextlib.suppress(OSError):  # another node may have removed an old checkpoint
            path.chmod(0o666 & ~mask)


def discard(folder: Path) -> bool:
    """Remove the folder of a start that never trained, unless it holds anything else than a start writes."""
    if any(not BEGINNING.fullmatch(path.name) for path in folder.iterdir()):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return True
