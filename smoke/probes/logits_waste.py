"""Does scoring completions avoid computing the logits of their prompts?

Catches `logits_to_keep` passed under a name that the model's forward ignores, where the trainer then discards the rest
itself (TRL 0.15.2 with Transformers 4.48.3): the values are right, but for a moment there are vocabulary-wide logits
for every position of every prompt, and a run that fits with short prompts is out of memory with long ones.

Scores the same completions after shorter and after longer prompts, and records the largest tensor as wide as the
vocabulary. It must not grow, because the completions are the same. (A fused LM head may compute every position, as
TRL's does without a GPU, but tile by tile, and the tile does not grow.) Needs one process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from smoke.kit import grpo, scoring, tiny
from smoke.probe import Bound, Context, Probe, Reading

# More positions than the 4096 of a tile of TRL's fused LM head, with the shorter prompts already.
SEQUENCES, SHORTER, LONGER, COMPLETION = 16, 272, 400, 8
# So that no other tensor of the model is as wide as the vocabulary; its intermediate size is 128 as well.
VOCABULARY = len(tiny.VOCABULARY) + 3

PROBE = Probe(
    matters="full-sequence logits are often the largest tensor of a run, which is then out of memory without need",
    bounds=(
        Bound(
            "logits_per_prompt_token",
            "the rows that the largest tensor as wide as the vocabulary grows by with each token of a prompt: 0 over "
            "36 seeds, 1 where all logits are made",
            at_most=0.01,
            headline=True,
        ),
        Bound(
            "logits_per_prompt_token_if_all",
            "the same when the model is asked for all logits: 1 over 36 seeds. Below its bound, this proves nothing",
            at_least=0.9,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2770",
        "https://github.com/huggingface/trl/pull/2773",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Score after shorter and after longer prompts, and compare the largest tensors as wide as the vocabulary."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny.save(context.directory / "model", context.seed))
    model.resize_token_embeddings(VOCABULARY, mean_resizing=False)
    trainer = grpo.make_trainer(context, model, grpo.Reward())
    policy = trainer.model.eval()
    draw = random.Random(context.seed)
    completions = [tiny.draw_tokens(draw, COMPLETION) for _ in range(SEQUENCES)]

    def rows(length: int, work: Callable[[list[list[int]]], Any]) -> int:
        prompts = [tiny.draw_tokens(draw, length) for _ in completions]
        return _largest(lambda: work(prompts))

    def everything(prompts: list[list[int]]) -> Any:
        with torch.no_grad():
            return policy(input_ids=scoring.pad(trainer, prompts, completions)[0]).logits

    for name, work in (
        ("logits_per_prompt_token", lambda prompts: scoring.score(trainer, prompts, completions)),
        ("logits_per_prompt_token_if_all", everything),
    ):
        shorter, longer = rows(SHORTER, work), rows(LONGER, work)
        more = SEQUENCES * (LONGER - SHORTER)
        detail = f"{shorter} rows with prompts of {SHORTER} tokens, {longer} with {LONGER}, for {SEQUENCES} sequences"
        yield Reading(name, (longer - shorter) / more, f"{detail} of {COMPLETION} completion tokens")


def _largest(work: Callable[[], Any]) -> int:
    """The largest number of rows of a tensor as wide as the vocabulary that `work` creates."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    largest = 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if getattr(leaf, "shape", ())[-1:] == (VOCABULARY,):
                    largest = max(largest, leaf.numel() // VOCABULARY)
            return result

    with Largest():
        work()
    return largest
