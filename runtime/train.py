"""`vetted train`: a `trl grpo` config, run by TRL's own script, with everything it leaves behind in one folder.

The folder is /runs/<time>: the config as it was, checkpoints, metrics.jsonl, TensorBoard's events, plot.png, and the
certificates of the image. Ctrl-C ends the run with a checkpoint; `--resume` goes on from the last one.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime import judged, parent, preflight

RUNS = Path("/runs")
CONFIG = "config.yaml"
STOP = ".stop"  # in the folder of a run: end after this step
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN = 1.0  # seconds: Ctrl-C in front of Docker's client and its plugin comes twice, a few milliseconds apart
INTERRUPTED = 130  # as a shell says of Ctrl-C: the run is not at its end, and can be resumed
# Options that this command sets itself: where a run lies, and what is written there.
OWN = ("--output_dir", "--resume_from_checkpoint", "--disable_tqdm")


@dataclass(frozen=True)
class Asked:
    config: Path | None
    resume: bool
    run: str | None  # the run to resume; None: the latest
    rest: tuple[str, ...]  # options for TRL


class UsageError(Exception):
    """What was typed cannot be meant."""


def parse(arguments: Sequence[str]) -> Asked:
    """Raises UsageError."""
    config: Path | None = None
    resume, run = False, None
    rest: list[str] = []
    ahead = list(arguments)
    while ahead:
        argument = ahead.pop(0)
        name, equals, value = argument.partition("=")
        if name == "--config":
            if not equals and not ahead:
                raise UsageError("--config needs a file")
            config = Path(value if equals else ahead.pop(0))
        elif name == "--resume":
            resume = True
            if equals:
                run = value
            elif ahead and not ahead[0].startswith("-"):
                run = ahead.pop(0)
        elif name in OWN:
            raise UsageError(f"{name} is set by vetted train: a run lies in /runs/<time>, and --resume goes on with it")
        else:
            rest.append(argument)
    if resume and config:
        raise UsageError("--resume goes on with the config of its run: leave --config out")
    if run is not None and (not run or "/" in run or run in (".", "..")):
        raise UsageError(f"--resume {run!r}: the name of a folder in /runs is meant")
    return Asked(config, resume, run, tuple(rest))


def main(arguments: Sequence[str], runs: Path = RUNS) -> int:
    _environment()
    parent.when_the_client_goes(lambda: os.kill(os.getpid(), signal.SIGHUP))
    try:
        asked = parse(arguments)
        if not _ready():
            return 1
        folder = _resumed(runs, asked.run) if asked.resume else _new(runs, asked)
    except UsageError as error:
        print(f"vetted: {error}", file=sys.stderr)
        return 2
    print(f"run      {folder}", file=sys.stderr)
    # The recorder is the progress that TRL would otherwise show.
    options = [*asked.rest, "--output_dir", str(folder), "--disable_tqdm", "False"]
    if not _says(folder / CONFIG, asked.rest, "report_to"):
        options += ["--report_to", "none"]  # metrics.jsonl and TensorBoard's events are written anyway
    if not preflight.cuda(preflight.stack(Path("/")).get("distributions", {})):
        options += ["--use_cpu", "True"]
    if asked.resume and (checkpoint := latest(folder)):
        print(f"resume   from {checkpoint.name}", file=sys.stderr)
        options += ["--resume_from_checkpoint", str(checkpoint)]
    return _run([*_launcher(), "--config", str(folder / CONFIG), *options], folder / STOP)


def _run(argv: Sequence[str], stop: Path) -> int:
    """Run the script and see to its end: asked once, it ends with a checkpoint; again after a second, at once.

    It is asked by a file, which the ranks look for after every step. A signal would reach some of them earlier than
    others, the launcher between them before all, and from a terminal each of them twice; so they get none.
    """
    stop.unlink(missing_ok=True)
    killed, first = False, 0.0
    # A group of its own, because a terminal interrupts a group; runtime.parent ends it when this process is killed.
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, process_group=0, env={**os.environ, parent.TRAIN: str(os.getpid())}
    ) as child:

        def end(number: int, _frame: object) -> None:
            nonlocal killed, first
            now = time.monotonic()
            if first and (number == signal.SIGHUP or now - first < AGAIN):
                return  # whoever asked goes away, or it is the same Ctrl-C
            if first or not _touched(stop):
                killed = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                return
            first = now
            with contextlib.suppress(OSError):  # the terminal or the pipe may be closed already
                os.write(2, b"\nvetted: ending with a checkpoint after this step; once more ends at once\n")

        before = {number: signal.signal(number, end) for number in SIGNALS}
        try:
            code = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    asked = stop.exists()
    stop.unlink(missing_ok=True)
    if killed or (asked and code == 0):
        return INTERRUPTED
    return code if code >= 0 else 128 - code  # as a shell says of a signal


def _touched(stop: Path) -> bool:
    try:
        stop.touch()
    except OSError:  # the disk is full, or the folder of the run is gone
        return False
    return True


def _ready() -> bool:
    """Say what there is to say before any work; False when it is sure to fail."""
    findings = preflight.look()
    for finding in findings:
        if finding.level != "ok" or finding is findings[0]:
            print(f"{finding.level:<8} {finding}", file=sys.stderr)
    return all(finding.level != "stop" for finding in findings)


def _new(runs: Path, asked: Asked) -> Path:
    """The folder of a new run, with its config. Two that start in the same second get two."""
    settings = _read(asked.config) if asked.config else None
    started = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    for number in itertools.count():
        folder = runs / (started if number == 0 else f"{started}-{number}")
        try:
            folder.mkdir()
            break
        except FileExistsError:
            continue
    if settings is None:
        from runtime import task

        print("task     the built-in one: a tiny policy learns to write lower-case letters", file=sys.stderr)
        settings = task.make(folder / "task").read_bytes()
    (folder / CONFIG).write_bytes(settings)
    image = {"image": os.environ.get("VETTED_IMAGE"), "stack": os.environ.get("VETTED_STACK")}
    for path in judged.files(Path("/"), preflight.stack(Path("/"))):
        (folder / "certificates").mkdir(exist_ok=True)
        shutil.copyfile(path, folder / "certificates" / path.name)
    (folder / "image.json").write_text(json.dumps(image, indent=2) + "\n", encoding="utf-8")
    return folder


def _read(config: Path) -> bytes:
    try:
        return config.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise UsageError(
            f"{config} is not there\n"
            "usual cause: the container sees the folder that the command was typed in, as /here, and nothing else\n"
            "next: name the config relative to that folder"
        ) from error
    except OSError as error:
        raise UsageError(
            f"{config} cannot be read: {error.strerror}\n"
            f"usual cause: the folder or the file is closed to user {os.getuid()}:{os.getgid()}, who trains\n"
            "next: chmod -R a+rX on that folder"
        ) from error


def _resumed(runs: Path, name: str | None) -> Path:
    known = sorted(path.name for path in runs.iterdir() if (path / CONFIG).is_file())
    if not known:
        raise UsageError("there is no run to resume in /runs")
    if name is not None and name not in known:
        raise UsageError(f"there is no run {name} in /runs; the latest are: {', '.join(known[-5:])}")
    return runs / (name or known[-1])


def _says(config: Path, rest: Sequence[str], option: str) -> bool:
    """Did the user set this option, in the config or behind the command?"""
    if any(argument.partition("=")[0] == f"--{option}" for argument in rest):
        return True
    return (
        re.search(rf"""(?:^|[{{,])\s*["']?{option}["']?\s*:""", config.read_text(encoding="utf-8"), re.MULTILINE)
        is not None
    )


def latest(folder: Path) -> Path | None:
    """The last checkpoint of a run that was written to its end."""
    found = [path for path in folder.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _launcher() -> list[str]:
    """One process for each GPU; on a machine without, one process."""
    found = len(preflight.gpus(Path("/")))
    if found < 2:
        return [sys.executable, "-P", "-m", "runtime.script"]
    return [
        sys.executable, "-P", "-m", "runtime.parent", "accelerate.commands.launch",
        "--num_processes", str(found), "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
        "--module", "runtime.script",
    ]  # fmt: skip


def _environment() -> None:
    """What the processes to come need, where nobody has said otherwise."""
    os.environ["PYTHONSAFEPATH"] = "1"  # nor does any worker of a launcher import from the folder that it runs in
    defaults = {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        "HF_HOME": "/tmp/huggingface",
    }
    if not shutil.which("gcc"):
        # An image for CPUs carries no compiler, and nothing may ask for one.
        defaults |= {
            "DS_ACCELERATOR": "cpu",
            "VLLM_CPU_CI_ENV": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_USE_AOT_COMPILE": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    key = Path("/run/secrets/wandb_api_key")
    if key.is_file() and (text := key.read_text(encoding="utf-8").strip()):
        os.environ.setdefault("WANDB_API_KEY", text)  # W&B reads no file of this kind
