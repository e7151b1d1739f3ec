"""Real training on scripted input: fixed completions and rewards in place of sampled ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from smoke.kit import adapter, grpo, tiny
from smoke.kit.reference import Sample
from smoke.probe import Context

# The lengths of eight completions, with their end-of-sequence token. All pairs have the same number of tokens, so that
# a mean over tokens is the same for any number of pairs. The longest has no end.
LENGTHS = (3, 9, 5, 7, 10, 2, 4, 8)
LONGEST = max(LENGTHS)
# More than the longest, so that it is not the width of the batch.
ALLOWED = 12
PROMPT_LENGTH = 14

# How a model's parameters are copied, by name, to the CPU.
Snapshot = Callable[[Any], dict[str, Any]]

# With plain gradient descent the step is the gradient, so that a wrong scale shows. Adam would hide it.
OPTIMIZER = {"optim": "sgd", "max_grad_norm": 0.0}


@dataclass(frozen=True)
class Script:
    """Prompts, and eight completions with their rewards, in groups of equal size, one group per prompt."""

    prompts: list[str]
    samples: list[Sample]

    @property
    def generations(self) -> int:
        """The completions in a group."""
        return len(self.samples) // len(self.prompts)


def reversed_order(script: Script) -> Script:
    """The same prompts, and completions of each, in the opposite order."""
    return Script(script.prompts[::-1], script.samples[::-1])


def doubled(script: Script) -> Script:
    """Every prompt twice, with the same completions: the means over prompts and tokens stay."""
    return Script(script.prompts * 2, script.samples * 2)


def write(seed: int, groups: int, *, prompt_lengths: Sequence[int] = ()) -> Script:
    """A script of random tokens and rewards. All prompts have the same length, unless `prompt_lengths` is given."""
    draw = random.Random(seed)
    eos = tiny.make_tokenizer().eos_token_id
    prompts = [tiny.draw_tokens(draw, length) for length in prompt_lengths or [PROMPT_LENGTH] * groups]
    samples = []
    for i, length in enumerate(LENGTHS):
        group, truncated = i * groups // len(LENGTHS), length == LONGEST
        completion = tiny.draw_tokens(draw, length) if truncated else [*tiny.draw_tokens(draw, length - 1), eos]
        # Better and worse pairs, so that about half of the tokens should become more likely, and half less.
        reward = draw.uniform(0.6, 1.0) if i // 2 % 3 == 0 else draw.uniform(0.0, 0.4)
        samples.append(Sample(prompts[group], completion, reward, group, truncated))
    return Script([tiny.decode(prompt) for prompt in prompts], samples)


@dataclass(frozen=True)
class OptimizerStep:
    """One step of the optimizer: the parameters before and after it, and those that its completions were sampled from.

    Parameters and gradients are by name, on the CPU; with DeepSpeed there are no gradients. `loss` is the sum over the
    micro-batches of this rank.
    """

    sampled_from: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]
    gradients: dict[str, Any]
    loss: float

    def update(self, learning_rate: float) -> dict[str, Any]:
        """The gradients that plain gradient descent must have used, in float64."""
        return {name: (self.before[name].double() - self.after[name].double()) / learning_rate for name in self.before}


class Training:
    """A trainer whose model's generate() follows a script. `trainer` is the real one."""

    def __init__(self, context: Context, script: Script, model: Any, *, micro_batches: int = 1, **options: Any) -> None:
        """Build the trainer, with all eight completions in each step. `options` are those of grpo.make_trainer."""
        from datasets import Dataset
        from transformers import TrainerCallback

        # How parameters are copied: those divided among ranks have to be gathered first.
        self.snapshot: Snapshot = grpo.snapshot
        self._rank = context.rank
        self._groups = {
            prompt: script.samples[i * script.generations : (i + 1) * script.generations]
            for i, prompt in enumerate(script.prompts)
        }
        self._snapshots: list[dict[str, Any]] = []
        self._gradients: list[dict[str, Any]] = []
        self._losses: list[list[float]] = []
        self._sampled: list[int] = []
        self._rewards = {tiny.decode(sample.completion): sample.reward for sample in script.samples}
        rows = len(script.samples) // micro_batches // context.ranks
        self.trainer = grpo.make_trainer(
            context,
            model,
            self._reward,
            **{
                "train_dataset": Dataset.from_dict({"prompt": script.prompts}),
                "per_device_train_batch_size": adapter.batch_of(rows, script.generations),
                "gradient_accumulation_steps": micro_batches,
                "num_generations": script.generations,
                "max_completion_length": ALLOWED,
                **OPTIMIZER,
                **options,
            },
        )
        # On the object itself: the class also serves the reference.
        self.trainer.model.generate = self._generate
        self._training_step = self.trainer.training_step
        self.trainer.training_step = self._note_loss
        training = self

        class Record(TrainerCallback):
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                training._losses.append([])
                training._snapshots.append(training.snapshot(training.trainer.model))
                training._gradients.append({})

            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                training._gradients[-1] = {
                    name: parameter.grad.detach().cpu().clone()
                    for name, parameter in training.trainer.model.named_parameters()
                    if parameter.grad is not None
                }

        self.trainer.add_callback(Record())

    def run(self) -> list[OptimizerStep]:
        """Train, and return the steps."""
        self.trainer.train()
        if len(self._snapshots) != self.trainer.args.max_steps:
            raise ValueError(f"{len(self._snapshots)} steps were taken, not {self.trainer.args.max_steps}")
        ends = [*self._snapshots[1:], self.snapshot(self.trainer.model)]
        return [
            OptimizerStep(
                self._snapshots[max(sampled for sampled in self._sampled if sampled <= i)],
                self._snapshots[i],
                ends[i],
                self._gradients[i],
                sum(self._losses[i]),
            )
            for i in range(len(ends))
        ]

    def _note_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = self._training_step(*args, **kwargs)
        self._losses[-1].append(loss.item())
        return loss

    def _generate(self, input_ids: Any, attention_mask: Any, generation_config: Any, **_: Any) -> Any:
        """A replacement for the model's generate(): every prompt, followed by the script's completion for its row."""
        import torch

        self._sampled.append(len(self._snapshots) - 1)
        repeats = generation_config.num_return_sequences or 1  # 1, except in TRL 0.14, which passes each prompt once
        ids, mask = (tensor.repeat_interleave(repeats, dim=0) for tensor in (input_ids, attention_mask))
        rows = []
        for i, (row, keep) in enumerate(zip(ids, mask.bool(), strict=True)):
            group = self._groups[tiny.decode(row[keep].tolist())]
            completion = group[(self._rank * len(ids) + i) % len(group)].completion
            pad = self.trainer.processing_class.pad_token_id
            rows.append(row.tolist() + completion + [pad] * (LONGEST - len(completion)))
        return torch.tensor(rows, device=input_ids.device)

    def _reward(self, completions: list[str], **_: Any) -> list[float]:
        return [self._rewards[completion] for completion in completions]
