"""Per-token log-probabilities of a policy, computed in the simplest way, as a reference."""

from __future__ import annotations

from typing import Any


def next_token_logprobs(model: Any, tokens: list[int], count: int) -> Any:
    """Log-probabilities over the vocabulary at the last `count` positions of `tokens`: (count, vocabulary), float32.

    Row i is the model's prediction of token -count + i, given all tokens before it. One sequence, no padding, no
    cache, all logits: no optimised path that could be wrong.
    """
    import torch

    ids = torch.tensor([tokens], device=model.device)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    if logits.shape[1] != len(tokens):
        raise ValueError(f"the model returned logits of shape {tuple(logits.shape)} for {len(tokens)} tokens")
    return torch.log_softmax(logits[0].float(), dim=-1)[-count - 1 : -1]


def completion_logprobs(model: Any, prompt: list[int], completion: list[int]) -> Any:
    """The log-probability of each token of the completion, in nats: (len(completion),), float32, on the CPU."""
    import torch

    rows = next_token_logprobs(model, prompt + completion, len(completion))
    return rows.gather(1, torch.tensor(completion, device=rows.device)[:, None])[:, 0].cpu()
