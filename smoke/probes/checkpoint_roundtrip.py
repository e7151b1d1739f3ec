"""Is what comes back from a saved checkpoint the model that was trained?

It exists for checkpoints that load without complaint and are not what was trained: saved before the last step, saved
under names that loading does not know (it then starts those weights at random), or cast on the way. Trains, saves
through the trainer, loads with Transformers alone. Needs one process. Saving and loading copy bits, so nothing but
equality will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke import grpo, tiny
from smoke.probe import Bound, Context, Probe, Reading

NEW_TOKENS = 24

PROBE = Probe(
    matters="what is deployed is the checkpoint, not the model in memory",
    bounds=(
        Bound("tensors_different", "saving and loading copies bits", "tensors", equals=0, headline=True),
        Bound("tensors_untrained", "no saved tensor may be what it was before training", "tensors", equals=0),
        Bound("tokens_different", "the same weights choose the same tokens", "tokens", equals=0),
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/transformers/issues/48805",
        "https://github.com/huggingface/transformers/issues/48722",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train, save, load and compare."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    done = grpo.train(context, tiny.save(context.directory / "model", context.seed))
    yield from grpo.check(done.trainer, done.reward)
    saved = context.directory / "saved"
    done.trainer.save_model(str(saved))
    trained = done.trainer.accelerator.unwrap_model(done.trainer.model)
    loaded = AutoModelForCausalLM.from_pretrained(saved).to(trained.device)

    weights = grpo.snapshot(loaded)
    expected = grpo.snapshot(trained)
    different = [
        name
        for name in sorted(weights.keys() | expected.keys())
        if name not in weights or name not in expected or not _same_bits(weights[name], expected[name])
    ]
    yield Reading("tensors_different", len(different), ", ".join(different))
    untrained = [name for name, weight in weights.items() if torch.equal(weight, done.before[name])]
    yield Reading("tensors_untrained", len(untrained), ", ".join(untrained))

    prompt = AutoTokenizer.from_pretrained(saved)("count the letters", return_tensors="pt").to(trained.device)
    tokens, again = (_greedy(model, prompt) for model in (trained, loaded))
    yield Reading("tokens_different", (tokens != again).sum().item(), f"{tokens.tolist()} became {again.tolist()}")


def _same_bits(one: Any, other: Any) -> bool:
    import torch

    return bool(one.dtype == other.dtype and torch.equal(one, other))


def _greedy(model: Any, prompt: Any) -> Any:
    """The tokens that a model chooses, never ending early: (NEW_TOKENS,)."""
    import torch

    model.eval()
    with torch.no_grad():
        tokens = model.generate(**prompt, do_sample=False, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS)
    return tokens[0, -NEW_TOKENS:].cpu()
