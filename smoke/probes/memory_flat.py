"""Does the memory of a training run stay constant?

Catches the leak that ends a run after hours: a metric, a loss or a batch that is stored with its graph, in the trainer
or in a cache below it. Trainer's own running loss once kept every step's graph; the host's memory was full after twenty
thousand steps.

After a warm-up, all batches have the same shape. After each step, cyclic garbage is collected, the tensors that Python
knows are counted, and the memory in use is read: on a CPU the process's resident memory, after malloc has returned free
memory; on a GPU torch's allocated memory. The result is the median of the second half of the steps against that of the
first. In the last steps the probe itself keeps the logits of a forward pass, with their graph, and has to detect that.
Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import types
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from smoke.kit import adapter, grpo, tiny
from smoke.probe import Bound, Context, Probe, Reading

WARM_UP = 5
# Tensors from before the end of the warm-up are not counted, those that replace them are.
SETTLE = 2
FLAT = 24
KEPT = 6
SEQUENCES = 8
GENERATIONS = 4
PROMPT = "say a word or two"

PROBE = Probe(
    matters="a run that keeps a little of every step runs out of memory after hours",
    bounds=(
        Bound(
            "tensors_per_step",
            "0 in 36 runs of TRL 1.16 and in every release from 0.14; 1 when a metric or the loss is kept, 13 when the "
            "batch is. At most one in ten steps",
            "tensors",
            at_most=0.1,
            headline=True,
        ),
        Bound(
            "memory_per_step",
            "0.004 to 0.007, the log of the steps, in 36 runs of TRL 1.16 with five busy processes a core, less in "
            "older releases; 0.04 to 0.15 when losses are kept with their graphs, or Trainer sums them with theirs",
            "MiB",
            at_most=0.02,
        ),
        Bound("kept_tensors_per_step", "13 to 43: the logits, and what their graph needs", "tensors", at_least=1),
        Bound("kept_memory_per_step", "0.47 to 2.9, the more without checkpointing", "MiB", at_least=0.1),
    ),
    links=(
        "https://github.com/huggingface/transformers/pull/6999",
        "https://github.com/huggingface/trl/issues/2805",
        "https://github.com/unslothai/unsloth/issues/2470",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


class _Gauge:
    """The number of tensors and the memory in MiB in use after each step."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._libc = ctypes.CDLL(None)
        self.tensors: list[int] = []
        self.memory: list[float] = []
        # By their description, at the first reading and at the last. All of them would themselves be growth.
        self.first: Counter[str] = Counter()
        self.last: Counter[str] = Counter()

    def read(self) -> None:
        """Record the current use."""
        gc.collect()
        self.last = Counter(map(_describe, _live()))
        self.first = self.first or self.last
        self.tensors.append(self.last.total())
        self.memory.append(self._memory_mib())

    def _memory_mib(self) -> float:
        import torch

        if self._device == "cuda":
            return float(torch.cuda.memory_allocated() / 2**20)
        self._libc.malloc_trim(0)
        # Without the pages of files, which come in whenever code runs for the first time.
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields.get("RssAnon", fields["VmRSS"]).split()[0]) / 1024


def run(context: Context) -> Iterator[Reading]:
    """Train, and read the gauge after every step."""
    import torch
    from datasets import Dataset

    trainer = grpo.make_trainer(
        context,
        tiny.save(context.directory / "model", context.seed),
        grpo.Reward(),
        train_dataset=Dataset.from_dict({"prompt": [PROMPT] * SEQUENCES}),
        max_steps=WARM_UP + SETTLE + FLAT + KEPT,
        per_device_train_batch_size=adapter.batch_of(SEQUENCES, GENERATIONS),
        num_generations=GENERATIONS,
        max_completion_length=4,
        # So that the reference model takes part. 0.04 up to TRL 0.16, then 0.
        beta=0.04,
        learning_rate=1e-3,
    )
    flat, leaking = _Gauge(context.device), _Gauge(context.device)
    ids = torch.ones(SEQUENCES, 32, dtype=torch.long, device=trainer.model.device)
    kept: list[Any] = []
    growth = ""

    def measure(step: int) -> None:
        nonlocal growth
        if step == WARM_UP:
            # The objects alive now would only take time to visit and count.
            gc.collect()
            gc.freeze()
        elif WARM_UP + SETTLE < step <= WARM_UP + SETTLE + FLAT:
            flat.read()
        elif step > WARM_UP + SETTLE + FLAT:
            growth = growth or _growth(flat)
            kept.append(trainer.model(input_ids=ids).logits)
            leaking.read()

    grpo.at_step_end(trainer, measure)
    trainer.train()
    yield Reading("tensors_per_step", _slope(flat.tensors), growth)
    shown = " ".join(f"{mib:.2f}" for mib in flat.memory)
    yield Reading("memory_per_step", _slope(flat.memory), f"MiB after the steps: {shown}")
    yield Reading("kept_tensors_per_step", _slope(leaking.tensors))
    yield Reading("kept_memory_per_step", _slope(leaking.memory), f"MiB after the steps: {leaking.memory}")


def _slope(values: Sequence[float]) -> float:
    """The growth per step, from the medians of the two halves, which single peaks do not touch."""
    half = len(values) // 2
    return (statistics.median(values[half:]) - statistics.median(values[:half])) / half


def _live() -> list[Any]:
    """The tensors that Python knows and that are not frozen."""
    import torch

    # The type, because an object may claim to be of another class, and run code to do so.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]


def _describe(tensor: Any) -> str:
    graph = f" of {type(tensor.grad_fn).__name__}" if tensor.grad_fn is not None else ""
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}{graph}"


def _growth(gauge: _Gauge) -> str:
    """The kinds of tensors that grew in number from the first reading to the last, and what keeps one of them."""
    if gauge.tensors[-1] <= gauge.tensors[0]:
        return ""
    grown = (gauge.last - gauge.first).most_common(3)
    gc.unfreeze()
    # Most of these are kept; some are of the step that is being taken, whose variables the collector does not show.
    same = [tensor for tensor in _live() if _describe(tensor) == grown[0][0]]
    keepers = filter(None, (_keeper(same[i], same) for i in range(len(same) // 2, len(same))))
    keeper = next(keepers, "nothing that Python shows")
    gc.freeze()
    return f"in {FLAT} steps {', '.join(f'{count} x {kind}' for kind, count in grown)} more; kept by {keeper}"


def _keeper(thing: Any, ours: list[Any]) -> str:
    """The chain of objects that refer to it, except our list: "list in _kept in GRPOTrainer". May be empty."""
    path: list[str] = []
    while len(path) < 5 and (holder := _holder(thing, ours)) is not None:
        names = [str(key) for key, value in holder.items() if value is thing] if isinstance(holder, dict) else []
        path.append(names[0] if names else type(holder).__name__)
        if not isinstance(holder, (dict, list, tuple, set, deque)):
            break
        thing = holder
    return " in ".join(path)


def _holder(thing: Any, ours: list[Any]) -> Any:
    # A function of its own, whose lists are gone when the next one is asked for. Our variables are in frames and cells.
    for holder in gc.get_referrers(thing):
        if holder is not ours and not isinstance(holder, (types.FrameType, types.CellType)):
            return holder
    return None
