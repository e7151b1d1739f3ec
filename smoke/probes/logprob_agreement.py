"""Does the trainer score the right tokens?

Catches a silent failure: TRL passes `logits_to_keep` under a name that the model's forward ignores, gets the logits of
all positions instead of the last ones, and scores completion tokens at the positions of the prompt. There is no error,
the losses are plausible, and nothing is learned. The loss and the KL divergence at step 0 cannot show it, because
policy and reference are wrong in the same way.

Compares the trainer's per-token log-probabilities, for a batch with completions of different lengths padded on the
right, with those of each sequence alone, unpadded, from all logits. The prompts have equal lengths; logprob-padding
covers their padding. Needs one process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from smoke.kit import extremes, grpo, scoring, tiny
from smoke.kit.policy import completion_logprobs, next_token_logprobs
from smoke.probe import Bound, Context, Probe, Reading

# A prompt of one token would be scored right even by the wrong positions, and with completions longer than prompts
# the wrong gather would not fit and fail loudly.
PROMPT = 24
COMPLETIONS = (8, 5, 3, 8)

PROBE = Probe(
    matters="GRPO's gradient is the gradient of these numbers; wrong ones train on noise with a plausible loss",
    bounds=(
        Bound(
            "max_abs_diff",
            "4.8e-7 to 1.4e-6 over 40 seeds, the rounding of float32; scores at wrong positions are off by 1 or more",
            "nats",
            at_most=1e-4,
            headline=True,
        ),
        Bound(
            "shift_effect",
            "what max_abs_diff would be with every score one position off: 0.9 to 2.4 over 40 seeds. Below its bound, "
            "the comparison proves nothing",
            "nats",
            at_least=0.5,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2770",
        "https://github.com/huggingface/trl/pull/2683",
        "https://github.com/huggingface/trl/pull/2773",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Compare the trainer's log-probabilities with independent ones, and those with their neighbours."""
    trainer = grpo.make_trainer(context, tiny.save(context.directory / "model", context.seed), grpo.Reward())
    policy = trainer.model.eval()  # no dropout in this model, but none may come in either
    draw = random.Random(context.seed)
    prompts = [tiny.draw_tokens(draw, PROMPT) for _ in COMPLETIONS]
    completions = [tiny.draw_tokens(draw, length) for length in COMPLETIONS]

    diffs = scoring.differences(policy, prompts, completions, scoring.score(trainer, prompts, completions))
    yield Reading("max_abs_diff", diffs.max().item(), f"of the sequences: {diffs.tolist()}")
    yield Reading(
        "shift_effect",
        extremes.largest(_shift_effect(policy, *pair) for pair in zip(prompts, completions, strict=True)),
    )


def _shift_effect(model: Any, prompt: list[int], completion: list[int]) -> float:
    """How far off scores are when taken one position too early or too late, whichever shows less."""
    import torch

    expected = completion_logprobs(model, prompt, completion)
    rows = next_token_logprobs(model, prompt + completion, len(completion) + 1).cpu()
    early = rows[:-1].gather(1, torch.tensor(completion)[:, None])[:, 0]
    late = rows[2:].gather(1, torch.tensor(completion[:-1])[:, None])[:, 0]
    effects = [(early - expected).abs().max().item(), (late - expected[:-1]).abs().max().item()]
    return extremes.smallest(effects)
