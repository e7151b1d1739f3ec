"""Batches of GRPO: do groups of completions fit into them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runtime.check import Check
from runtime.config.options import Option
from runtime.config.source import Config

GROUP, EVALUATED_GROUP = "num_generations", "num_generations_eval"
ROWS, EVALUATED = "per_device_train_batch_size", "per_device_eval_batch_size"
BATCH, STEPS, ACCUMULATED = "generation_batch_size", "steps_per_generation", "gradient_accumulation_steps"


@dataclass(frozen=True)
class Batches:
    """The numbers of a run of `ranks` processes, by option: what is set, or the default."""

    config: Config
    options: Mapping[str, Option]
    ranks: int

    def number(self, name: str) -> int | None:
        option = self.options.get(name)
        value = self.config.get(name, option.default if option else None)
        try:
            return int(str(value))
        except ValueError:
            return None

    def stop(self, names: tuple[str, ...], message: str, next_step: str) -> Check:
        """A "stop", with the place of the first of these options that is set."""
        settings = (self.config.find(name) for name in names)
        place = next((f"{self.config.place(each)}: " for each in settings if each and each.value is not None), "")
        return Check("stop", place + message, next_step)


def look(config: Config, options: Mapping[str, Option], ranks: int) -> Iterator[Check]:
    """The rules of GRPOConfig and GRPOTrainer. `ranks`: the processes of the run."""
    batches = Batches(config, options, ranks)
    group, rows = batches.number(GROUP), batches.number(ROWS)
    if group is None or rows is None:
        return
    if check := _impossible(batches, group, rows):
        yield check
        return
    yield from _trained(batches, group, rows)
    yield from _evaluated(batches, group)


def _impossible(batches: Batches, group: int, rows: int) -> Check | None:
    """A number that no other one can make right."""
    if group < 2:
        return batches.stop((GROUP,), f"{GROUP} is {group}: GRPO compares completions of one prompt", "give 2 or more")
    if rows < 1:
        return batches.stop((ROWS,), f"{ROWS} is {rows}", "give 1 or more")
    if batches.config.get(BATCH) and batches.config.get(STEPS):
        return batches.stop((BATCH,), f"{BATCH} and {STEPS} are both set", "remove one of the two")
    return None


def _trained(batches: Batches, group: int, rows: int) -> Iterator[Check]:
    together = 1
    if STEPS in batches.options:  # since 0.18 all micro-batches of a generation count
        together = batches.number(STEPS) or batches.number(ACCUMULATED) or 1
    batch = rows * batches.ranks * together
    words = f"{ROWS} {rows} x {batches.ranks} process{'' if batches.ranks == 1 else 'es'}"
    if together > 1:
        words += f" x {together} steps"
    if explicit := batches.number(BATCH):
        if explicit % (rows * batches.ranks):
            message = f"{BATCH} {explicit} is not divisible by {words}"
            yield batches.stop((BATCH,), message, f"give a multiple of {rows * batches.ranks}")
            return
        batch, words = explicit, f"{BATCH} {explicit}"
    if batch % group:
        message = f"{words} = {batch} completions, which {GROUP} {group} does not divide"
        fitting = [size for size in range(2, batch + 1) if batch % size == 0]
        advice = f"{GROUP} can be {', '.join(map(str, fitting[:8]))} here" if fitting else "give a larger batch"
        yield batches.stop((GROUP, BATCH, ROWS, STEPS, ACCUMULATED), message, advice)


def _evaluated(batches: Batches, group: int) -> Iterator[Check]:
    if batches.config.get("eval_strategy", "no") in ("no", False):
        return
    rows, group = batches.number(EVALUATED), batches.number(EVALUATED_GROUP) or group
    if rows and rows * batches.ranks % group:
        message = f"{EVALUATED} {rows} x {batches.ranks} is not divisible by {GROUP} {group}"
        names = (EVALUATED, EVALUATED_GROUP, GROUP, "eval_strategy")
        yield batches.stop(names, message, f"give {EVALUATED}: {group}")
