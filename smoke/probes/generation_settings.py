"""Does the trainer sample with the requested settings, not with those in the model's generation_config.json?

Catches a silent failure: generate() treats a setting that equals its default as not set, and uses the model's own
instead. Published models come with temperature 0.6, top_k 20, repetition_penalty 1.05, or nearly greedy settings; then
the samples of a group are alike, or come from a distribution that the loss does not know.

Saves a model with other settings in its generation_config.json, and trains it twice: with GRPOConfig's defaults, and
with settings that are no default. The distribution of each sampled token is compared with that of the requested
settings, computed from the same logits. All settings that this GRPOConfig has are requested explicitly: without min_p,
for example, the model's may well be used. Needs one process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from smoke.kit import adapter, extremes, grpo, tiny
from smoke.kit.rollout import Generation, Recorder, up_to
from smoke.probe import Bound, Context, Probe, Reading

COMPLETIONS = 8

# By the names that GRPOConfig and generate() share. None of them hides the effect of another.
HIDDEN = {"temperature": 0.5, "top_k": 30, "top_p": 0.7, "min_p": 0.1, "repetition_penalty": 1.5}
# The defaults of generate(), for options that GRPOConfig lacks; up to 0.15 it has only the temperature.
NEUTRAL = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
UNUSUAL = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2}
HIDDEN_LENGTH = 5
UNUSUAL_LENGTH = 11

PROBE = Probe(
    matters="a policy sampled with other settings explores less, or is scored for tokens that it would not have chosen",
    bounds=(
        Bound(
            "defaults_distance",
            "total variation between the distribution sampled from and the requested one, of the token where they "
            "differ most: 5.9e-8 to 1.2e-7 over 24 seeds, the rounding of float32. Each hidden setting gives 0.067 or "
            "more",
            at_most=1e-3,
            headline=True,
        ),
        Bound(
            "unusual_distance",
            "the same for settings that differ from all defaults: 5.9e-8 to 1.1e-7 over 24 seeds",
            at_most=1e-3,
        ),
        Bound(
            "hidden_effect",
            "what defaults_distance would be with the one hidden setting that shows least: 0.067 to 0.12 over 24 "
            "seeds. Below its bound, it proves nothing",
            at_least=0.02,
        ),
        Bound(
            "length_error",
            "how far the longest completion is from max_completion_length; the hidden max_new_tokens is shorter",
            "tokens",
            equals=0,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/5783",
        "https://github.com/huggingface/transformers/issues/42762",
        "https://github.com/huggingface/transformers/pull/42702",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Sample both ways, and compare with the requested settings."""
    known = adapter.known_options()
    hidden = {name: value for name, value in HIDDEN.items() if name in known}
    directory = _save(context, hidden)
    defaults: dict[str, float] = {name: NEUTRAL[name] for name in ("temperature", "min_p") if name in known}
    unusual = {name: value for name, value in UNUSUAL.items() if name in known}
    errors = []
    requests = (
        ("defaults_distance", defaults, grpo.COMPLETION_LENGTH),
        ("unusual_distance", unusual, UNUSUAL_LENGTH),
    )
    for name, options, length in requests:
        trainer = grpo.make_trainer(
            context,
            directory,
            grpo.Reward(),
            max_steps=1,
            max_completion_length=length,
            per_device_train_batch_size=adapter.batch_of(COMPLETIONS, grpo.GENERATIONS),
            train_dataset=_prompts(),
            **options,
        )
        recorder = Recorder(trainer, scores=True)
        trainer.train()
        (generation,) = recorder.generations
        requested = NEUTRAL | {option: getattr(trainer.args, option) for option in hidden}
        distance = _distance(generation, requested)
        yield Reading(name, distance, "" if distance < 1e-3 else _explain(generation, requested, hidden))
        if options is defaults:
            effects = {option: _effect(generation, requested, {option: value}) for option, value in hidden.items()}
            yield Reading("hidden_effect", extremes.smallest(effects.values()), str(effects))
        errors.append(abs(max(len(completion) for _, completion in recorder.pairs()) - length))
    yield Reading("length_error", extremes.largest(errors), f"with the defaults and with unusual settings: {errors}")


def _save(context: Context, settings: Mapping[str, Any]) -> Path:
    """Save a model whose generation_config.json holds these settings, and its tokenizer."""
    from transformers import GenerationConfig

    model = tiny.make_model(context.seed)
    ends = {"eos_token_id": model.config.eos_token_id, "pad_token_id": model.config.pad_token_id}
    model.generation_config = GenerationConfig(do_sample=True, max_new_tokens=HIDDEN_LENGTH, **ends, **settings)
    directory = context.directory / "model"
    model.save_pretrained(directory)
    tiny.make_tokenizer().save_pretrained(directory)
    return directory


def _prompts() -> Any:
    """Prompts of one length: generate() counts padding among the tokens that it penalises."""
    from datasets import Dataset

    return Dataset.from_list([{"prompt": [{"role": "user", "content": f"say it {i:02}"}]} for i in range(32)])


def _distance(generation: Generation, settings: Mapping[str, Any]) -> float:
    """Total variation between what each token was sampled from and what these settings make of its logits, at most."""
    return extremes.largest(
        float((generation.scores[row, i].softmax(0) - _apply(settings, generation.logits[row, i], before)).abs().sum())
        / 2
        for row, i, before in _positions(generation)
    )


def _effect(generation: Generation, settings: Mapping[str, Any], change: Mapping[str, Any]) -> float:
    """Total variation between the distributions with and without a change of the settings, at most."""
    pairs = [
        (
            _apply(settings, generation.logits[row, i], before),
            _apply({**settings, **change}, generation.logits[row, i], before),
        )
        for row, i, before in _positions(generation)
    ]
    return extremes.largest(float((original - changed).abs().sum()) / 2 for original, changed in pairs)


def _explain(generation: Generation, settings: Mapping[str, Any], hidden: Mapping[str, Any]) -> str:
    """The hidden settings that, in place of the requested ones, best explain the samples."""
    subsets = [dict(part) for n in range(len(hidden) + 1) for part in itertools.combinations(hidden.items(), n)]
    distances = [_distance(generation, {**settings, **subset}) for subset in subsets]
    best = min(range(len(subsets)), key=distances.__getitem__)
    return f"asked for {dict(settings)}; as if {subsets[best]} were asked for, it is {distances[best]:.2g}"


def _positions(generation: Generation) -> Iterator[tuple[int, int, list[int]]]:
    """Row, index and the tokens before it, of each token up to the end of its sequence."""
    eos = tiny.VOCABULARY.index("<eos>")
    for row, (prompt, completion) in enumerate(zip(generation.prompts, generation.completions, strict=True)):
        for i in range(len(up_to(completion, eos))):
            yield row, i, prompt + completion[:i]


def _apply(settings: Mapping[str, Any], logits: Any, before: list[int]) -> Any:
    """The distribution that these settings make of the logits of a token after those `before`: (vocabulary,)."""
    import torch

    logits, penalised = logits.clone(), sorted(set(before))
    penalty = settings["repetition_penalty"]
    logits[penalised] = torch.where(logits[penalised] > 0, logits[penalised] / penalty, logits[penalised] * penalty)
    logits /= settings["temperature"]
    if settings["top_k"]:
        logits[logits < logits.topk(settings["top_k"]).values[-1]] = -torch.inf
    if settings["top_p"] < 1:
        best, order = logits.softmax(0).sort(descending=True)
        logits[order[best.cumsum(0) - best >= settings["top_p"]]] = -torch.inf
    probabilities = logits.softmax(0)
    probabilities[probabilities < settings["min_p"] * probabilities.max()] = 0
    return probabilities / probabilities.sum()
