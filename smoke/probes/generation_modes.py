"""With gradient checkpointing on, does the trainer generate the tokens that the policy chooses?

Catches a silent failure: the trainer generates in training mode, where gradient checkpointing disables the cache of
every layer, so that each new token depends on the previous one alone, or leaves an attention mask that is not causal.
There is no error, the loss is plausible, and the policy learns from gibberish.

Trains with gradient checkpointing, the whole model and then LoRA, on prompts of different lengths, at a temperature so
low that sampling takes the first choice. The tokens trained on are compared with the policy's first choices, computed
from each sequence alone, without padding, cache, or checkpointing. Needs one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoke.kit import adapter, grpo, tiny
from smoke.kit.policy import completion_logprobs, next_token_logprobs
from smoke.kit.rollout import Recorder
from smoke.probe import Bound, Context, Probe, Reading

PROMPTS = 4
GENERATIONS = 2
NEW_TOKENS = 32
# Two, because the mode changes and changes back around the generation of the first.
STEPS = 2

# Of the whole model and LoRA.
TOKENS = 2 * STEPS * PROMPTS * GENERATIONS * NEW_TOKENS

# Takes the first choice, unless the second is as likely but for the rounding of float32.
TEMPERATURE = 1e-5
TIE = 1e-3  # nats

PROBE = Probe(
    matters="a policy that generates other tokens than it would choose learns from the rewards of gibberish",
    bounds=(
        Bound(
            "first_choices",
            "the share of generated tokens that are the policy's first choice: every one over 24 seeds; 0.03 to 0.08 "
            "when the layers lose their cache, 0.50 to 0.78 with a mask that is not causal",
            equals=1,
            headline=True,
        ),
        Bound(
            "last_token_only",
            "what first_choices would be if each token were chosen from the one before it alone: 0 to 0.21 over 24 "
            "seeds. Above its bound, first_choices proves nothing",
            at_most=0.9,
        ),
        Bound("tokens", "tokens compared: no part of any completion is missing", equals=TOKENS),
        Bound(
            "checkpointing",
            "the share of the loss's forward passes that recompute activations: all, also after a generation. Below "
            "it, first_choices proves nothing about that mode",
            equals=1,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/3683",
        "https://github.com/huggingface/trl/pull/3882",
        "https://github.com/huggingface/trl/issues/2851",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train both ways, then look at what was trained on."""
    from peft import LoraConfig

    policy = _make_policy(context.seed)
    policy.save_pretrained(directory := context.directory / "model")
    tiny.make_tokenizer().save_pretrained(directory)
    lora = {
        "peft_config": LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM"),
        # Up to 0.15 the default, reentrant checkpointing, fails: it finds no gradient below the adapters.
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
    }
    recorders = {"whole model": _train(context, directory), "LoRA": _train(context, directory, **lora)}

    # The learning rate is 0: both are still what they were.
    wrong: list[str] = []
    tokens = alone = 0
    for name, recorder in recorders.items():
        for prompt, completion in recorder.pairs():
            regrets = enumerate(_regrets(policy, prompt, completion))
            wrong += [f"{name}: token {i} by {nats:.3g} nats" for i, nats in regrets if nats > TIE]
            alone += _first_of_last(policy, prompt, completion)
            tokens += len(completion)
    yield Reading(
        "first_choices", 1 - len(wrong) / tokens, f"{len(wrong)} of {tokens} tokens are not: {'; '.join(wrong[:9])}"
    )
    yield Reading("last_token_only", alone / tokens)
    yield Reading("tokens", tokens)
    passes = [forward.checkpointing for recorder in recorders.values() for forward in recorder.trained]
    yield Reading("checkpointing", sum(passes) / len(passes), str(passes))


def _make_policy(seed: int) -> Any:
    """A model that never ends its completion: its logit for the end of sequence is 0, that of a first choice 2."""
    import torch

    model = tiny.make_model(seed).eval()
    with torch.no_grad():
        model.lm_head.weight[model.config.eos_token_id] = 0
    return model


def _train(context: Context, directory: Path, **options: Any) -> Recorder:
    trainer = grpo.make_trainer(
        context,
        directory,
        grpo.Reward(),
        max_steps=STEPS,
        learning_rate=0.0,
        gradient_checkpointing=True,
        temperature=TEMPERATURE,
        max_completion_length=NEW_TOKENS,
        num_generations=GENERATIONS,
        per_device_train_batch_size=adapter.batch_of(PROMPTS * GENERATIONS, GENERATIONS),
        **options,
    )
    recorder = Recorder(trainer)
    trainer.train()
    return recorder


def _regrets(policy: Any, prompt: list[int], completion: list[int]) -> list[float]:
    """How much less likely than the policy's first choice each token is, in nats: 0 when it is the first choice."""
    best = next_token_logprobs(policy, prompt + completion, len(completion)).max(dim=1).values.cpu()
    regrets: list[float] = (best - completion_logprobs(policy, prompt, completion)).tolist()
    return regrets


def _first_of_last(policy: Any, prompt: list[int], completion: list[int]) -> int:
    """The number of tokens that are the first choice of a policy that sees only the previous token."""
    import torch

    before = torch.tensor([prompt[-1], *completion[:-1]], device=policy.device)[:, None]
    with torch.no_grad():
        choices = policy(input_ids=before, use_cache=False).logits[:, -1].argmax(dim=1).tolist()
    return sum(choice == token for choice, token in zip(choices, completion, strict=True))
