"""Are prompts that were padded to a common length scored as if each were alone?

Catches a batch of prompts of different lengths whose padding is attended to (TRL 0.14 passes no attention mask to the
model) or counted in the positions: every log-probability of a padded sequence is then silently that of another prompt,
and depends on the rest of the batch.

Compares the trainer's per-token log-probabilities, for a batch padded on the left, with those of each sequence alone.
The completions have equal lengths; logprob-agreement covers their padding. Needs one process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from smoke.kit import extremes, grpo, scoring, tiny
from smoke.kit.policy import completion_logprobs
from smoke.probe import Bound, Context, Probe, Reading

PROMPTS = (24, 17, 21, 9)
COMPLETION = 8

PROBE = Probe(
    matters="a sequence scored with padding in its prompt is trained as the answer to another prompt",
    bounds=(
        Bound(
            "max_abs_diff",
            "4.8e-7 to 1.9e-6 over 40 seeds, the rounding of float32; 0.5 to 1.7 where the padding is attended to",
            "nats",
            at_most=1e-4,
            headline=True,
        ),
        Bound(
            "unmasked_effect",
            "the error of the least affected prompt's scores if its padding were attended to: 0.08 to 0.44 "
            "over 40 seeds. Below its bound, the comparison proves nothing",
            "nats",
            at_least=0.02,
        ),
    ),
    links=("https://github.com/huggingface/trl/pull/2708",),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Compare the trainer's log-probabilities with independent ones, and those with unmasked ones."""
    trainer = grpo.make_trainer(context, tiny.save(context.directory / "model", context.seed), grpo.Reward())
    policy = trainer.model.eval()
    draw = random.Random(context.seed)
    prompts = [tiny.draw_tokens(draw, length) for length in PROMPTS]
    completions = [tiny.draw_tokens(draw, COMPLETION) for _ in PROMPTS]

    diffs = scoring.differences(policy, prompts, completions, scoring.score(trainer, prompts, completions))
    yield Reading("max_abs_diff", diffs.max().item(), f"of prompts of {PROMPTS} tokens: {diffs.tolist()}")
    padded = [prompt for prompt in prompts if len(prompt) < max(PROMPTS)]
    rest = [completion for prompt, completion in zip(prompts, completions, strict=True) if prompt in padded]
    yield Reading("unmasked_effect", extremes.smallest(_unmasked(trainer, policy, padded, rest)))


def _unmasked(trainer: Any, model: Any, prompts: list[list[int]], completions: list[list[int]]) -> Iterator[float]:
    """For each padded prompt, the error of its completion's scores with the padding attended to."""
    token = trainer.processing_class.pad_token_id
    for prompt, completion in zip(prompts, completions, strict=True):
        unmasked = completion_logprobs(model, [token] * (max(PROMPTS) - len(prompt)) + prompt, completion)
        yield (unmasked - completion_logprobs(model, prompt, completion)).abs().max().item()
