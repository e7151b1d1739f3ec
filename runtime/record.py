"""The recorder of a run: writes metrics.jsonl, TensorBoard events and a plot, shows progress, and stops on request."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from runtime import metrics
from runtime.train.process import STOP_FILE


class Recorder(TrainerCallback):  # type: ignore[misc]
    """The callback that runtime.script adds to the trainer. Only rank 0 writes."""

    def __init__(self) -> None:
        self.writer: Any = None
        self.progress: Any = None
        self.bar: Any = None

    def on_train_begin(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        from torch.utils.tensorboard import SummaryWriter

        metrics.cut(Path(args.output_dir), state.global_step)
        self.writer = SummaryWriter(args.output_dir, purge_step=state.global_step + 1)
        if sys.stderr.isatty():
            self._show(state)

    def _show(self, state: Any) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("step"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"),
            TimeRemainingColumn(),
        )  # fmt: skip
        self.progress = Progress(*columns, console=Console(stderr=True))
        self.progress.start()
        self.bar = self.progress.add_task("", total=state.max_steps, completed=state.global_step)

    def on_log(self, args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        numbers = {key: value for key, value in logs.items() if isinstance(value, int | float)}
        metrics.add(Path(args.output_dir), {"step": state.global_step, "time": round(time.time(), 3), **numbers})
        if self.writer is not None:
            for key, value in numbers.items():
                self.writer.add_scalar(key, value, state.global_step)
        words = metrics.progress(numbers)
        if self.progress is not None and words:
            self.progress.update(self.bar, description=words)
        elif words:
            print(f"step {state.global_step}/{state.max_steps}  {words}", file=sys.stderr)

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.progress is not None:
            self.progress.update(self.bar, completed=state.global_step)
        if _stop_requested(state):
            control.should_save = True
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            metrics.draw(Path(args.output_dir))

    def on_train_end(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        if self.progress is not None:
            self.progress.stop()
        if self.writer is not None:
            self.writer.close()
        metrics.draw(Path(args.output_dir))
        if Path(os.environ[STOP_FILE]).exists():
            print(f"stopped at step {state.global_step}; `train --resume` continues from it", file=sys.stderr)


def _stop_requested(state: Any) -> bool:
    """Whether the first rank of any node sees its stop file; all ranks get the same answer, and all nodes the file."""
    import torch
    import torch.distributed as dist

    stop = Path(os.environ[STOP_FILE])
    requested = state.is_local_process_zero and stop.exists()
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return requested
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    flag = torch.tensor([int(requested)], device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    if flag.item() and state.is_local_process_zero:
        stop.touch()  # so that every node knows why the run ended
    return bool(flag.item())
