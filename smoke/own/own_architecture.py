"""Does GRPO train a tiny model of your architecture, on the right tokens?

Your model's config.json with small sizes: the same kind of attention, heads, positions, windows, experts and embedding,
random weights, two layers or as many as it takes to have each kind. GRPO trains it for real.

Catches what depends on the architecture: padding that is attended to, scores that depend on the rest of the batch, a
cache that makes the model generate other tokens than it would choose, activations that are recomputed differently,
weights that get lost in a checkpoint. Needs one process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoke.kit import extremes, given, grpo, rollout, scoring, tiny, twin
from smoke.probe import Bound, Context, Probe, Reading, Skip

NO_MODEL = Skip("no config.json of the model was found")
# Why there is no tiny twin of the model.
NO_TWIN = {reason: Skip(reason) for reason in twin.REASONS}

PROMPTS, COMPLETIONS = (24, 17, 21, 9), (8, 5, 3, 8)
PROMPT = 24
NEW_TOKENS = 24
SMALL = 1e-7  # a gradient that is nothing but rounding

PROBE = Probe(
    matters="a model whose scores, cache or checkpoints are wrong trains on noise, or is not what is saved",
    bounds=(
        Bound(
            "score_error",
            "scores of a padded batch against each sequence alone, without cache and padding: 4.8e-7 to 5.7e-6 over 18 "
            "models; 0.2 where padding is attended to",
            "nats",
            at_most=1e-3,
            headline=True,
        ),
        Bound(
            "generation_error",
            "the distribution that tokens were drawn from with the cache, against the same model without it: 4.8e-7 to "
            "9.5e-6 over 18 models; 0.28 with a cache that forgets the prompt",
            "nats",
            at_most=1e-3,
        ),
        Bound(
            "recomputed_error",
            "the relative error of the worst gradient with checkpointing, against the one without: 0 over 18 models",
            at_most=1e-3,
        ),
        Bound("lost", "tensors of the saved model that are not those in memory", "tensors", equals=0),
        Bound("steps_finite", "steps with a finite loss and a gradient that is not zero", "steps", equals=grpo.STEPS),
        Bound("still", "trained tensors that no step moved. Experts that no token chose stay", "tensors", at_most=0),
        Bound("layers", "recorded: layers of the twin", "layers"),
        Bound("width", "recorded: its width"),
    ),
    links=("https://github.com/huggingface/trl/issues/2770", "https://github.com/huggingface/trl/pull/2708"),
    needs=("torch", "transformers", "datasets", "trl"),
    skips=(NO_MODEL, *NO_TWIN.values()),
    gpus=1,
    timeout_s=300,
)


def run(context: Context) -> Iterator[Reading]:
    """Make the twin, score, generate, train and save with it."""
    from transformers import AutoModelForCausalLM

    large = given.read(Path(__file__))["model"]
    if not large:
        raise NO_MODEL()
    try:
        model = twin.make(large, context.seed)
    except twin.NoTwinError as error:
        print(f"smoke: {error}", flush=True)
        raise NO_TWIN[error.reason]() from error
    directory = context.directory / "model"
    model.save_pretrained(directory)
    tiny.make_tokenizer().save_pretrained(directory)
    yield Reading("layers", model.config.num_hidden_layers)
    yield Reading("width", model.config.hidden_size)

    trainer = grpo.make_trainer(context, directory, reward := grpo.Reward(), max_completion_length=NEW_TOKENS)
    before = grpo.snapshot(trainer.model)
    yield from _scores(trainer, context.seed)
    recorder = rollout.Recorder(trainer, scores=True)
    trainer.train()
    yield next(reading for reading in grpo.check(trainer, reward) if reading.name == "steps_finite")
    after = grpo.snapshot(trainer.model)
    still = [name for name in before if before[name].equal(after[name]) and ".experts." not in name]
    yield Reading("still", len(still), ", ".join(still))

    untrained = AutoModelForCausalLM.from_pretrained(directory).to(trainer.model.device).eval()
    yield Reading("generation_error", recorder.generations[0].diff(untrained), "the first generation")
    yield _recomputed(untrained, context.seed)
    trainer.save_model(str(saved := context.directory / "saved"))
    loaded = grpo.snapshot(AutoModelForCausalLM.from_pretrained(saved))
    lost = [name for name in sorted({*loaded, *after}) if not _same(loaded.get(name), after.get(name))]
    yield Reading("lost", len(lost), ", ".join(lost))


def _scores(trainer: Any, seed: int) -> Iterator[Reading]:
    draw = random.Random(seed)
    model = trainer.model.eval()
    worst = {}
    for what, prompts, completions in (
        ("prompts of different lengths", PROMPTS, [COMPLETIONS[0]] * len(PROMPTS)),
        ("completions of different lengths", [PROMPT] * len(COMPLETIONS), COMPLETIONS),
    ):
        texts = [tiny.draw_tokens(draw, length) for length in prompts]
        answers = [tiny.draw_tokens(draw, length) for length in completions]
        errors = scoring.differences(model, texts, answers, scoring.score(trainer, texts, answers))
        worst[what] = errors.max().item()
    yield Reading("score_error", extremes.largest(worst.values()), str(worst))


def _recomputed(model: Any, seed: int) -> Reading:
    """The worst gradient with activations that are computed again, against the one with those that were kept."""
    kept = _gradients(model, seed)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    again = _gradients(model, seed)
    errors = {
        name: (again[name] - gradient).abs().max().item() / max(gradient.abs().max().item(), 1e-12)
        for name, gradient in kept.items()
        if gradient.abs().max() > SMALL
    }
    worst = max(errors, key=lambda name: extremes.badness(errors[name]))
    return Reading("recomputed_error", errors[worst], worst)


def _gradients(model: Any, seed: int) -> dict[str, Any]:
    """The gradients of the negative log-likelihood of some tokens, in training mode."""
    import torch

    tokens = tiny.draw_tokens(random.Random(seed), sum(PROMPTS))
    ids = torch.tensor([tokens], device=model.device)
    model.train()
    model.zero_grad()
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    torch.nn.functional.cross_entropy(logits[0, :-1].float(), ids[0, 1:]).backward()
    return {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}


def _same(first: Any, second: Any) -> bool:
    return first is not None and second is not None and bool(first.dtype == second.dtype and first.equal(second))
