"""The trainer's log-probabilities of given tokens, compared with those of each sequence alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smoke.kit import adapter
from smoke.kit.policy import completion_logprobs


def pad(trainer: Any, prompts: Sequence[list[int]], completions: Sequence[list[int]]) -> tuple[Any, Any]:
    """IDs and mask of one batch, as the trainer builds it: prompts padded on the left, completions on the right."""
    import torch

    width, keep = max(map(len, prompts)), max(map(len, completions))
    token = trainer.processing_class.pad_token_id
    ids, mask = [], []
    for prompt, completion in zip(prompts, completions, strict=True):
        before, after = width - len(prompt), keep - len(completion)
        ids.append([token] * before + prompt + completion + [token] * after)
        mask.append([0] * before + [1] * (len(prompt) + len(completion)) + [0] * after)
    return torch.tensor(ids, device=trainer.model.device), torch.tensor(mask, device=trainer.model.device)


def score(trainer: Any, prompts: Sequence[list[int]], completions: Sequence[list[int]]) -> list[Any]:
    """The trainer's log-probabilities of the completions, scored as one batch: a tensor each, float32, on the CPU."""
    import torch

    ids, mask = pad(trainer, prompts, completions)
    keep = max(map(len, completions))
    with torch.no_grad():
        scored = adapter.token_logprobs(trainer, trainer.model, ids, mask, keep)
    if tuple(scored.shape) != (len(ids), keep):
        raise ValueError(f"the trainer scored {tuple(scored.shape)} tokens, not {(len(ids), keep)}")
    return [row[: len(completion)].float().cpu() for row, completion in zip(scored, completions, strict=True)]


def differences(model: Any, prompts: Sequence[list[int]], completions: Sequence[list[int]], scored: Any) -> Any:
    """Per sequence, the largest difference between a score and the token's log-probability in the sequence alone."""
    import torch

    return torch.stack(
        [
            (row - completion_logprobs(model, prompt, completion)).abs().max()
            for prompt, completion, row in zip(prompts, completions, scored, strict=True)
        ]
    )
