"""What a trainer generates and trains on, recorded at the calls of its model."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any

from smoke.kit import extremes
from smoke.kit.policy import next_token_logprobs


def up_to(tokens: list[int], end: int) -> list[int]:
    """The tokens up to and including the first `end`."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


@dataclass
class Generation:
    """One call of generate(), row by row.

    `completions` are the new tokens, padding included. `logits` and `scores`, of shape (rows, new tokens, vocabulary),
    are from before and after the sampling options, if recorded.
    """

    prompts: list[list[int]]
    completions: list[list[int]]
    passes: int
    logits: Any = None
    scores: Any = None

    def diff(self, policy: Any) -> float:
        """The largest difference between the log-probabilities sampled from and this policy's, in nats."""
        diffs: list[float] = []
        for prompt, completion, logits in zip(self.prompts, self.completions, self.logits, strict=True):
            tokens = up_to(completion, policy.config.eos_token_id)
            expected = next_token_logprobs(policy, prompt + tokens, len(tokens)).cpu()
            diffs.append((logits[: len(tokens)].log_softmax(dim=-1) - expected).abs().max().item())
        return extremes.largest(diffs)


def decoder_of(model: Any) -> Any:
    """The layers below the output layer, which every forward pass calls as a module, so that its hooks run.

    Up to 0.19, PEFT calls `forward` of the model around them as a method.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return base.base_model


@dataclass
class Pass:
    """One forward pass with gradients: its unpadded rows, and whether it recomputes activations."""

    rows: list[list[int]]
    checkpointing: bool


class Recorder:
    """Records the calls of a trainer's model from now on. `scores` also records the logits sampled from."""

    def __init__(self, trainer: Any, *, scores: bool = False) -> None:
        self.generations: list[Generation] = []
        self.trained: list[Pass] = []
        self._tokenizer = trainer.processing_class
        self._scores = scores
        self._generating = False
        self._passes = 0
        model = trainer.model
        # On the object itself, where the trainer looks it up: the class also serves other models.
        model.generate = functools.partial(self._generate, model.generate)
        decoder_of(model).register_forward_pre_hook(self._before_forward, with_kwargs=True)

    def pairs(self) -> list[tuple[list[int], list[int]]]:
        """Prompt and completion of every row trained on. Raises ValueError for a row that starts with no prompt."""
        prompts = [prompt for generation in self.generations for prompt in generation.prompts]
        pairs = []
        for row in (row for forward in self.trained for row in forward.rows):
            lengths = [len(prompt) for prompt in prompts if row[: len(prompt)] == prompt]
            if not lengths:
                raise ValueError(f"trained on a row that starts with no prompt generated for: {row}")
            pairs.append((row[: max(lengths)], row[max(lengths) :]))
        return pairs

    def _generate(self, generate: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        if self._scores:
            config = copy.deepcopy(kwargs["generation_config"])
            config.return_dict_in_generate = config.output_logits = config.output_scores = True
            kwargs = {**kwargs, "generation_config": config}
        self._generating, self._passes = True, 0
        result = generate(*args, **kwargs)
        self._generating = False
        ids = args[0] if args else kwargs["input_ids"]
        prompts = [row[keep].tolist() for row, keep in zip(ids, kwargs["attention_mask"].bool(), strict=True)]
        sequences = result.sequences if self._scores else result
        # One row per prompt, except in 0.14, whose generate() repeats them.
        repeats = len(sequences) // len(prompts)
        generation = Generation(
            prompts=[prompt for prompt in prompts for _ in range(repeats)],
            completions=sequences[:, ids.shape[1] :].tolist(),
            passes=self._passes,
        )
        if self._scores:
            generation.logits = torch.stack(result.logits, dim=1).float().cpu()
            generation.scores = torch.stack(result.scores, dim=1).float().cpu()
        self.generations.append(generation)
        return sequences

    def _before_forward(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        import torch

        self._passes += self._generating
        if not torch.is_grad_enabled():
            return
        ids = args[0] if args else kwargs["input_ids"]
        mask = kwargs.get("attention_mask")
        if mask is None:
            mask = self._mask(ids)
        rows = [row[keep].tolist() for row, keep in zip(ids, mask.bool(), strict=True)]
        self.trained.append(Pass(rows, bool(model.training and model.is_gradient_checkpointing)))

    def _mask(self, ids: Any) -> Any:
        """The mask of the loss in 0.14, which passes none to the model: all tokens up to the end of sequence."""
        import torch

        latest = self.generations[-1]
        mask = torch.zeros_like(ids)
        width = ids.shape[1] - len(latest.completions[0])
        for row, prompt, completion in zip(mask, latest.prompts, latest.completions, strict=True):
            row[width - len(prompt) : width + len(up_to(completion, self._tokenizer.eos_token_id))] = 1
        return mask
