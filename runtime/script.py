"""One process of a run: a script of TRL or of the user, with a recorder. `python -m runtime.script grpo --beta 0`"""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import os
import re
import runpy
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from runtime import data, gloo, leader, monitor, parent, rewards
from runtime.train.arguments import MONITOR, TRAINERS
from runtime.train.folder import CHECKPOINT, CONFIG, OUTPUT
from runtime.train.launch import ACCELERATE

# A kernel that bitsandbytes fetches from the Hub when it is imported on a CPU with AVX512-BF16, and what it logs then.
UNLOCKED = "kernels-community/quantization-bitsandbytes"
NOISE = ("bitsandbytes.backends.cpu.ops", "Failed to load CPU gemm_4bit_forward from kernels-community")


def main() -> None:
    parent.follow()
    atexit.register(gloo.settle)
    only_locked()
    quiet()
    name, arguments = sys.argv[1], sys.argv[2:]
    # For modules beside a script, and reward functions beside the config; last, so that the stack wins.
    sys.path += [] if name in TRAINERS else [str(Path(name).resolve().parent)]
    sys.path.append(str(Path.cwd()))
    if not shutil.which("gcc"):
        _no_compiled_collectives()
    started = time.monotonic()
    _say("import   torch, transformers, trl")
    leader.follow()
    gc.disable()  # it would look at what the imports allocate again and again: a seventh of their time
    import transformers

    if os.environ.get("WORLD_SIZE", "1") != "1":
        _number_cpus()
    from runtime.record import Recorder

    # A script takes no callbacks, but every trainer adds this one.
    transformers.trainer.DEFAULT_PROGRESS_CALLBACK = Recorder
    if os.environ.get(MONITOR) != "0":
        _monitored(transformers.Trainer)
    data.read_files()
    if name in TRAINERS:
        _resume(transformers.Trainer)
        script = importlib.import_module(f"trl.scripts.{name}")
        if name == "grpo":
            rewards.accept(script)
        _collect_again()
        _say(f"load     model and data; the imports took {time.monotonic() - started:.0f} s")
        _of_trl(script, arguments)
    else:
        _own(transformers)
        _collect_again()
        sys.argv = [name, *arguments]
        _say(f"script   {name}; the imports took {time.monotonic() - started:.0f} s")
        runpy.run_path(name, run_name="__main__")


def _collect_again() -> None:
    gc.freeze()  # what was imported stays
    gc.enable()


def only_locked() -> None:
    """Refuse that kernel, as a container without a network does: its bytes are in no lock, and nobody tested it."""
    try:
        kernels: Any = importlib.import_module("kernels")
    except ImportError:
        return
    fetch = kernels.get_kernel

    def get_kernel(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == UNLOCKED:
            raise OSError(f"{name} is in no lock")
        return fetch(name, *args, **kwargs)

    kernels.get_kernel = get_kernel


def quiet() -> None:
    """Drop the advice of bitsandbytes to install `kernels`: it is installed, and what is used is what was tested."""
    logger, beginning = NOISE
    logging.getLogger(logger).addFilter(lambda record: not str(record.msg).startswith(beginning))


def _say(line: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


def _of_trl(script: Any, arguments: list[str]) -> None:
    """Run a script of TRL, with the config of the run reduced to its own options."""
    folder = os.environ[OUTPUT]
    words = ["--output_dir", folder, *arguments]
    if checkpoint := os.environ[CHECKPOINT]:
        words += ["--resume_from_checkpoint", checkpoint]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(_reduced(Path(folder, CONFIG), script))
        file.flush()
        parsed = script.make_parser().parse_args_and_config(["--config", file.name, *words])
    script.main(*parsed)


def _reduced(config: Path, script: Any) -> str:
    """The config without the options of the launcher, which the parser of the script would refuse."""
    import yaml

    from runtime.config import options

    text, source = config.read_text(encoding="utf-8"), Path(script.__file__)
    try:
        own = options.read(source.parents[2], source.stem)
    except options.UnreadableError:
        return text
    launcher = {*options.launcher(source.parents[2]), ACCELERATE}
    settings = yaml.safe_load(text) or {}
    reduced: str = yaml.safe_dump({name: settings[name] for name in settings if name in own or name not in launcher})
    return reduced


def _monitored(trainer: Any) -> None:
    """Put the monitor on every trainer when it starts to train."""
    train = trainer.train

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        monitor.watch(self, folder=os.environ[OUTPUT], certify=False)  # `vetted train` does, with the model saved
        return train(self, *args, **kwargs)

    trainer.train = watched


def _resume(trainer: Any) -> None:
    """Make `--resume_from_checkpoint` work where a script does not pass it to train(), such as TRL's up to 0.17."""
    train = trainer.train

    def resumed(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        return train(self, resume_from_checkpoint or self.args.resume_from_checkpoint, *args, **kwargs)

    trainer.train = resumed


def _own(transformers: Any) -> None:
    """Give a script of the user's own the same care: results in the folder of the run, a checkpoint to continue from.

    Its trainer writes to the folder of the run, whatever its output_dir says: all else is read-only in the container.
    """
    output, checkpoint = os.environ[OUTPUT], os.environ.get(CHECKPOINT) or None
    prepare = transformers.TrainingArguments.__post_init__

    def prepared(self: Any, *args: Any, **kwargs: Any) -> None:
        self.output_dir = output
        self.disable_tqdm = False  # the recorder shows the progress
        if not shutil.which("gcc"):
            self.use_cpu = True
        prepare(self, *args, **kwargs)

    transformers.TrainingArguments.__post_init__ = prepared
    train = transformers.Trainer.train

    def resumed(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        return train(self, checkpoint or resume_from_checkpoint, *args, **kwargs)

    transformers.Trainer.train = resumed


def _no_compiled_collectives() -> None:
    """Disable DeepSpeed's CPU collectives: they are compiled at first use, and the image has no compiler."""
    try:
        import deepspeed
    except ImportError:
        return
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def _number_cpus() -> None:
    """Let torch load what was saved on the CPU to "cpu:0": accelerate gives the CPU of a rank a number, torch has one.

    Without it, no run of several processes on CPUs can be resumed.
    """
    from torch.serialization import register_package

    register_package(0, lambda _: None, lambda storage, place: storage if re.fullmatch(r"cpu:\d+", place) else None)


if __name__ == "__main__":
    main()
