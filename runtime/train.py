"""`vetted train`: runs a `trl grpo` config with TRL's own script and collects all results in one folder.

The folder is /runs/<time>: a copy of the config, checkpoints, metrics.jsonl, TensorBoard events, plot.png, and the
certificates of the image. Ctrl-C ends the run with a checkpoint; `--resume` continues from the last one.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime import parent, preflight, verdict

RUNS = Path("/runs")
CONFIG = "config.yaml"
STOP = ".stop"  # in the folder of a run: stop after the current step
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN = 1.0  # seconds: Docker's client and its plugin both forward a Ctrl-C, a few milliseconds apart
INTERRUPTED = 130  # the exit status that shells use for Ctrl-C: the run is not complete and can be resumed
# Options of TRL that this command sets itself.
RESERVED = ("--output_dir", "--resume_from_checkpoint", "--disable_tqdm")


@dataclass(frozen=True)
class Options:
    """The arguments of `vetted train`. `run` is the run to resume, None for the latest; `trl` are options for TRL."""

    config: Path | None
    resume: bool
    run: str | None
    trl: tuple[str, ...]


class UsageError(Exception):
    """The arguments make no sense."""


def parse(arguments: Sequence[str]) -> Options:
    """Parse the command line; options that are not ours go to TRL. Raises UsageError."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--resume", nargs="?", const=True)  # True for the latest run
    try:
        known, trl = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise UsageError("--config needs a file") from error
    for name in (argument.partition("=")[0] for argument in trl):
        if name in RESERVED:
            raise UsageError(f"{name} is set by vetted train: runs are in /runs/<time>, and --resume continues one")
    resume, run = known.resume is not None, None if known.resume is True else known.resume
    if resume and known.config:
        raise UsageError("--resume uses the config of its run: leave --config out")
    if run is not None and (not run or "/" in run or run in (".", "..")):
        raise UsageError(f"--resume {run!r} is not the name of a folder in /runs")
    return Options(known.config, resume, run, tuple(trl))


def main(arguments: Sequence[str], runs: Path = RUNS) -> int:
    """Run `vetted train` with these arguments and return its exit status."""
    _environment()
    parent.on_disconnect(lambda: os.kill(os.getpid(), signal.SIGHUP))
    try:
        options = parse(arguments)
        if not _ready():
            return 1
        folder = _resumed(runs, options.run) if options.resume else _new(runs, options)
    except UsageError as error:
        print(f"vetted: {error}", file=sys.stderr)
        return 2
    print(f"run      {folder}", file=sys.stderr)
    # The recorder shows the progress in place of TRL.
    trl = [*options.trl, "--output_dir", str(folder), "--disable_tqdm", "False"]
    if not _sets(folder / CONFIG, options.trl, "report_to"):
        trl += ["--report_to", "none"]  # metrics.jsonl and TensorBoard events are written anyway
    if not preflight.cuda(preflight.stack(Path("/")).get("distributions", {})):
        trl += ["--use_cpu", "True"]
    if options.resume and (checkpoint := latest(folder)):
        print(f"resume   from {checkpoint.name}", file=sys.stderr)
        trl += ["--resume_from_checkpoint", str(checkpoint)]
    return _run([*_launcher(), "--config", str(folder / CONFIG), *trl], folder / STOP)


def _run(argv: Sequence[str], stop: Path) -> int:
    """Run the script until it ends. The first signal ends it with a checkpoint, a second one at once.

    The first signal creates a file that the ranks look for after every step. The ranks themselves get no signal: it
    would reach some of them earlier than others, the launcher before all of them, and from a terminal each one twice.
    """
    stop.unlink(missing_ok=True)
    killed, first = False, 0.0
    # Its own process group, because a terminal interrupts a group; runtime.parent ends it when this process is killed.
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, process_group=0, env={**os.environ, parent.TRAIN: str(os.getpid())}
    ) as child:

        def end(number: int, _frame: object) -> None:
            nonlocal killed, first
            now = time.monotonic()
            if first and (number == signal.SIGHUP or now - first < AGAIN):
                return  # the client exits after its request, or it is the same Ctrl-C
            if first or not _touched(stop):
                killed = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                return
            first = now
            with contextlib.suppress(OSError):  # the terminal or the pipe may be closed already
                os.write(2, b"\nvetted: ending with a checkpoint after this step; press Ctrl-C again to end at once\n")

        before = {number: signal.signal(number, end) for number in SIGNALS}
        try:
            code = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    requested = stop.exists()
    stop.unlink(missing_ok=True)
    if killed or (requested and code == 0):
        return INTERRUPTED
    return code if code >= 0 else 128 - code  # the exit status that shells use for a signal


def _touched(stop: Path) -> bool:
    try:
        stop.touch()
    except OSError:  # the disk is full, or the folder of the run was removed
        return False
    return True


def _ready() -> bool:
    """Print the findings of preflight; False if the run is sure to fail."""
    findings = preflight.look()
    for finding in findings:
        if finding.level != "ok" or finding is findings[0]:
            print(f"{finding.level:<8} {finding}", file=sys.stderr)
    return all(finding.level != "stop" for finding in findings)


def _new(runs: Path, options: Options) -> Path:
    """Create the folder of a new run, with its config. Runs that start in the same second get different folders."""
    settings = _read(options.config) if options.config else None
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

        print("task     built in: a tiny policy learns to write lower-case letters", file=sys.stderr)
        settings = task.make(folder / "task").read_bytes()
    (folder / CONFIG).write_bytes(settings)
    image = {"image": os.environ.get("VETTED_IMAGE"), "stack": os.environ.get("VETTED_STACK")}
    for path in verdict.certificate_files(Path("/"), preflight.stack(Path("/"))):
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
            "usual cause: the container sees only the folder where you ran the command, as /here\n"
            "next: name the config relative to that folder"
        ) from error
    except OSError as error:
        raise UsageError(
            f"{config} cannot be read: {error.strerror}\n"
            f"usual cause: user {os.getuid()}:{os.getgid()}, which runs the training, may not read the file or folder\n"
            "next: chmod -R a+rX on that folder"
        ) from error


def _resumed(runs: Path, name: str | None) -> Path:
    names = sorted(path.name for path in runs.iterdir() if (path / CONFIG).is_file())
    if not names:
        raise UsageError("there is no run to resume in /runs")
    if name is not None and name not in names:
        raise UsageError(f"there is no run {name} in /runs; the latest are: {', '.join(names[-5:])}")
    return runs / (name or names[-1])


def _sets(config: Path, arguments: Sequence[str], option: str) -> bool:
    """Whether the user sets this option, in the config or in the arguments."""
    if any(argument.partition("=")[0] == f"--{option}" for argument in arguments):
        return True
    import yaml  # a package of the stack: preflight, which comes first, needs none

    try:
        settings = yaml.safe_load(config.read_bytes())
    except (yaml.YAMLError, ValueError):  # TRL reports the mistake
        return False
    return isinstance(settings, dict) and option in settings


def latest(folder: Path) -> Path | None:
    """The last complete checkpoint of a run."""
    checkpoints = [path for path in folder.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    return max(checkpoints, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _launcher() -> list[str]:
    """The command that starts one process per GPU; without GPUs, one process."""
    count = len(preflight.gpus(Path("/")))
    if count < 2:
        return [sys.executable, "-P", "-m", "runtime.script"]
    return [
        sys.executable, "-P", "-m", "runtime.parent", "accelerate.commands.launch",
        "--num_processes", str(count), "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
        "--module", "runtime.script",
    ]  # fmt: skip


def _environment() -> None:
    """Set the environment of the processes to come. Variables that the user set stay as they are."""
    os.environ["PYTHONSAFEPATH"] = "1"  # a launcher's workers import nothing from the current folder either
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
        # A CPU image has no compiler, so nothing may need one.
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
        os.environ.setdefault("WANDB_API_KEY", text)  # W&B does not read secret files
