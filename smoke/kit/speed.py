"""The speed of a training run: time, tokens and memory, to compare releases on one machine.

The models are tiny, so most of the time is overhead: the numbers show a run that became slow, and say nothing about the
speed of a large model.
"""

from __future__ import annotations

import math
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from smoke.kit.grpo import Reward
from smoke.probe import Bound, Context, Reading

BOUNDS = (
    Bound("step_time", "recorded: the median of the steps after the first, with generation and update", "s"),
    Bound("tokens_per_second", "recorded: completion tokens of these steps, by their time", "tokens/s"),
    Bound("peak_memory", "recorded: allocated by torch on the GPU; on a CPU, resident in the process", "MiB"),
)
# TRL's names for the mean number of tokens of a step's completions: today's, and the one up to 0.16.
_LENGTH = ("completions/mean_length", "completion_length")


def watch(context: Context, trainer: Any) -> list[float]:
    """The seconds of each step, filled while `trainer` trains."""
    from transformers import TrainerCallback

    seconds: list[float] = []

    class Clock(TrainerCallback):
        started = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.started = _now(context)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append(_now(context) - self.started)

    trainer.add_callback(Clock())
    return seconds


def readings(context: Context, trainer: Any, reward: Reward, seconds: Sequence[float]) -> Iterator[Reading]:
    """The readings of BOUNDS for a finished run. The first step is left out, because it also warms up."""
    later = seconds[1:]
    yield Reading("step_time", statistics.median(later) if later else math.nan, f"by step: {seconds}")
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    lengths = [next((entry[name] for name in _LENGTH if name in entry), math.nan) for entry in logged]
    tokens = [length * len(batch) for length, batch in zip(lengths, reward.batches, strict=True)]
    yield Reading("tokens_per_second", sum(tokens[1:]) / sum(later) if later else math.nan, f"by step: {tokens} tokens")
    yield Reading("peak_memory", _peak(context) / 2**20)


def _now(context: Context) -> float:
    if context.device == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()


def _peak(context: Context) -> int:
    """Bytes."""
    if context.device == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
