"""Batches of GRPO: do groups of completions fit into them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runtime.check import Check
from runtime.config.options import Option
from runtime.config.source import Config


def look(config: Config, options: Mapping[str, Option], ranks: int) -> Iterator[Check]:
    """The rules of GRPOConfig and GRPOTrainer. `ranks`: the processes of the run."""

    def number(name: str) -> int | None:
        option = options.get(name)
        value = config.get(name, option.default if option else None)
        try:
            return int(str(value))
        except ValueError:
            return None

    group, rows = number("num_generations"), number("per_device_train_batch_size")
    if group is None or rows is None:
        return
    if group < 2:
        yield Check("stop", f"num_generations is {group}: GRPO compares completions of one prompt", "give 2 or more")
        return
    if rows < 1:
        yield Check("stop", f"per_device_train_batch_size is {rows}", "give 1 or more")
        return
    if config.get("generation_batch_size") and config.get("steps_per_generation"):
        yield Check("stop", "generation_batch_size and steps_per_generation are both set", "remove one of the two")
        return
    accumulated = number("gradient_accumulation_steps") or 1
    together = 1
    if "steps_per_generation" in options:  # since 0.18 all micro-batches of a generation count
        together = number("steps_per_generation") or accumulated
    batch = rows * ranks * together
    words = f"per_device_train_batch_size {rows} x {ranks} process{'' if ranks == 1 else 'es'}"
    if together > 1:
        words += f" x {together} steps"
    if explicit := number("generation_batch_size"):
        if explicit % (rows * ranks):
            message = f"generation_batch_size {explicit} is not divisible by {words}"
            yield Check("stop", message, f"give a multiple of {rows * ranks}")
            return
        batch, words = explicit, f"generation_batch_size {explicit}"
    if batch % group:
        message = f"{words} = {batch} completions, which num_generations {group} does not divide"
        fitting = [size for size in range(2, batch + 1) if batch % size == 0]
        advice = f"num_generations can be {', '.join(map(str, fitting[:8]))} here" if fitting else "give a larger batch"
        yield Check("stop", message, advice)
    evaluating = config.get("eval_strategy", "no") not in ("no", False)
    per_device = number("per_device_eval_batch_size")
    group = number("num_generations_eval") or group
    if evaluating and per_device and per_device * ranks % group:
        message = f"per_device_eval_batch_size {per_device} x {ranks} is not divisible by num_generations {group}"
        yield Check("stop", message, f"give per_device_eval_batch_size: {group}")
