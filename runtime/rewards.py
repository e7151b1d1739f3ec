"""Reward functions for TRL up to 0.17, whose `trl grpo` takes reward models only."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any


def accept(grpo: Any) -> None:
    """Make TRL's script module `grpo` take `reward_funcs`, as later releases do: dotted names, with or without a
    reward model. A script that already takes them stays unchanged."""
    if any(field.name == "reward_funcs" for field in dataclasses.fields(grpo.GRPOScriptArguments)):
        return

    @dataclasses.dataclass
    class Arguments(grpo.GRPOScriptArguments):  # type: ignore[misc]
        reward_funcs: list[str] | None = dataclasses.field(default=None, metadata={"help": "Dotted names."})

    run = grpo.main

    def main(script_args: Any, training_args: Any, model_args: Any) -> None:
        functions = [named(name) for name in script_args.reward_funcs or ()]
        if functions:
            grpo.AutoModelForSequenceClassification = _IfNamed(grpo.AutoModelForSequenceClassification)
            grpo.GRPOTrainer = functools.partial(_trainer, grpo.GRPOTrainer, functions)
        run(script_args, training_args, model_args)

    grpo.GRPOScriptArguments, grpo.main = Arguments, main


def named(name: str) -> Callable[..., Any]:
    """The function with this dotted name. Exits with advice if there is none."""
    module, _, attribute = name.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, ValueError, AttributeError) as error:
        sys.exit(
            f"vetted: there is no reward function {name}: {error}\n"
            "next: give its module and name, such as rewards.accuracy for rewards.py next to the config"
        )
    return function  # type: ignore[no-any-return]


def _trainer(trainer: Any, functions: Sequence[Callable[..., Any]], *, reward_funcs: Any, **rest: Any) -> Any:
    models = [] if reward_funcs is None else [reward_funcs]
    return trainer(reward_funcs=[*models, *functions], **rest)


@dataclasses.dataclass(frozen=True)
class _IfNamed:
    """A model class that loads nothing if no model is named."""

    models: Any

    def from_pretrained(self, name: str | None, **rest: Any) -> Any:
        return None if name is None else self.models.from_pretrained(name, **rest)
