"""Is the model loaded from a saved checkpoint the model that was trained?

Catches checkpoints that load without an error but differ from the trained model: saved before the last step, saved
under names that loading does not know (it then initialises those weights at random), cast on the way, or with a
tokenizer that numbers its tokens differently.

Trains, saves with the trainer, and loads with Transformers alone. Then the same with a LoRA adapter, loaded by PEFT
alone onto the model that the training started from. Saving and loading copy bits, so everything must be equal. Needs
one process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoke.kit import grpo, tiny
from smoke.probe import Bound, Context, Probe, Reading

NEW_TOKENS = 24

PROBE = Probe(
    matters="the checkpoint is what gets deployed, not the model in memory",
    bounds=(
        Bound("tensors_different", "saving and loading copies bits", "tensors", equals=0, headline=True),
        Bound("tensors_untrained", "every saved tensor must have changed in training", "tensors", equals=0),
        Bound("tokens_different", "the same weights choose the same tokens", "tokens", equals=0),
        Bound("adapter_different", "saving and loading copies the bits of an adapter, too", "tensors", equals=0),
        Bound("adapter_untrained", "every saved tensor must have changed in training", "tensors", equals=0),
        Bound("adapter_tokens_different", "the same adapter chooses the same tokens", "tokens", equals=0),
        Bound("token_ids_different", "the saved tokenizer gives every text the same tokens", "tokens", equals=0),
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/transformers/issues/48805",
        "https://github.com/huggingface/transformers/issues/48722",
        "https://github.com/huggingface/transformers/pull/24274",
        "https://github.com/huggingface/transformers/pull/44463",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train, save, load and compare: the whole model, then an adapter."""
    from peft import LoraConfig, PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = tiny.save(context.directory / "model", context.seed)
    finished = grpo.train(context, model)
    yield from grpo.check(finished.trainer, finished.reward)
    trained, saved = _save(finished, context.directory / "saved")
    loaded = AutoModelForCausalLM.from_pretrained(saved).to(trained.device)
    yield from _compare(finished, trained, loaded, ("tensors_different", "tensors_untrained", "tokens_different"))

    text = "".join(tiny.VOCABULARY)
    expected, tokens = tiny.make_tokenizer()(text).input_ids, AutoTokenizer.from_pretrained(saved)(text).input_ids
    different = sum(a != b for a, b in itertools.zip_longest(expected, tokens))
    yield Reading("token_ids_different", different, f"{expected} became {tokens}")

    finished = grpo.train(context, model, peft_config=LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM"))
    trained, saved = _save(finished, context.directory / "adapter")
    base = AutoModelForCausalLM.from_pretrained(model).to(trained.device)
    loaded = PeftModel.from_pretrained(base, saved, is_trainable=True)
    yield from _compare(
        finished, trained, loaded, ("adapter_different", "adapter_untrained", "adapter_tokens_different")
    )


def _save(finished: grpo.Run, directory: Path) -> tuple[Any, Path]:
    """Save through the trainer; returns the model as it is in memory, and the directory."""
    finished.trainer.save_model(str(directory))
    return finished.trainer.accelerator.unwrap_model(finished.trainer.model), directory


def _compare(finished: grpo.Run, trained: Any, loaded: Any, names: tuple[str, str, str]) -> Iterator[Reading]:
    """Compare tensors with those in memory and those before training, and the tokens that the models choose."""
    import torch

    weights, expected = grpo.snapshot(loaded), grpo.snapshot(trained)
    different = [
        name
        for name in sorted(weights.keys() | expected.keys())
        if name not in weights or name not in expected or not _same_bits(weights[name], expected[name])
    ]
    yield Reading(names[0], len(different), ", ".join(different))
    trainable = [name for name, parameter in loaded.named_parameters() if parameter.requires_grad]
    untrained = [name for name in trainable if torch.equal(weights[name], finished.before[name])]
    yield Reading(names[1], len(untrained), ", ".join(untrained))
    prompt = tiny.make_tokenizer()("count the letters", return_tensors="pt").to(trained.device)
    tokens, again = (_greedy(model, prompt) for model in (trained, loaded))
    yield Reading(names[2], (tokens != again).sum().item(), f"{tokens.tolist()} became {again.tolist()}")


def _same_bits(a: Any, b: Any) -> bool:
    import torch

    return bool(a.dtype == b.dtype and torch.equal(a, b))


def _greedy(model: Any, prompt: Any) -> Any:
    """The tokens that a model chooses, never ending early: (NEW_TOKENS,)."""
    import torch

    model.eval()
    with torch.no_grad():
        tokens = model.generate(**prompt, do_sample=False, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS)
    return tokens[0, -NEW_TOKENS:].cpu()
