"""Does GRPO train with vLLM in the same process, and does vLLM sample from the policy that is being trained?

It exists for weights that do not reach the sampler: with an exception (vLLM's CPU path repacks linear weights and
drops what a sync would load into), or silently (an output layer packed once stays what it was; sleep mode discards
the weights and gibberish follows). A stale sampler trains on, a little worse at every step.

Trains with vLLM colocated. Then every parameter is replaced by other random values, the weights are synchronised the
way the trainer does it, and vLLM's greedy tokens and their log-probabilities are compared with those of the trainer's
policy. To show that this could fail, it measures how much a single stale parameter would change. Needs one process;
on a GPU, one GPU.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from smoke import adapter, grpo, tiny
from smoke.policy import completion_logprobs, next_token_logprobs
from smoke.probe import Bound, Context, Probe, Reading

PROMPTS = 8
PROMPT_LENGTH = 12
NEW_TOKENS = 12

PROBE = Probe(
    matters="a sampler that keeps old weights makes every later step learn from a policy that no longer exists",
    bounds=(
        Bound(
            "sampler_diff",
            "mean over 96 tokens; 0.015 to 0.027 over 36 seeds, because vLLM rounds to bfloat16; one stale parameter "
            "gives 0.098 or more, a stale policy 3.6 or more",
            "nats",
            at_most=0.06,
            headline=True,
        ),
        Bound(
            "sampler_diff_max",
            "0.05 to 0.14 over 36 seeds; the largest of 96 tokens, so that one stale prompt shows",
            "nats",
            at_most=0.4,
        ),
        Bound(
            "greedy_regret",
            "0 when every token of vLLM is the policy's first choice; where two are as likely but for rounding it may "
            "be the second: 0 to 0.22 over 36 seeds",
            "nats",
            at_most=0.5,
        ),
        Bound(
            "stale_parameter_diff",
            "sampler_diff if the one parameter that shows least were stale; 0.098 to 0.33 over 36 seeds. Below its "
            "bound, sampler_diff could not tell",
            "nats",
            at_least=0.08,
        ),
        Bound(
            "old_policy_diff",
            "sampler_diff against the policy before; 3.6 to 4.9 over 36 seeds: the change is a large one",
            "nats",
            at_least=1.0,
        ),
        Bound(
            "training_diff",
            "the largest difference that the trainer saw while training, for tokens sampled from what it had "
            "synchronised itself; 0.015 to 0.034 over 36 seeds, 2.9 or more when it does not",
            "nats",
            at_most=0.1,
        ),
        grpo.MOVED,
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/vllm-project/vllm/issues/29341",
        "https://github.com/huggingface/trl/pull/4571",
        "https://github.com/huggingface/trl/issues/4159",
        "https://github.com/huggingface/trl/pull/2952",
    ),
    needs=("torch", "transformers", "datasets", "trl", "vllm"),
    gpus=1,
    timeout_s=300,
)


def run(context: Context) -> Iterator[Reading]:
    """Train, replace the policy, synchronise, and compare sampler and trainer."""
    _register_model()
    done = grpo.train(
        context,
        tiny.save(context.directory / "model", context.seed),
        use_vllm=True,
        vllm_mode="colocate",
        # Of a small machine's memory; the model needs next to nothing.
        vllm_gpu_memory_utilization=0.4,
    )
    trainer = done.trainer
    yield from grpo.check(trainer, done.reward)
    yield grpo.moved(done.before, trainer.model)
    logged = [step["sampling/sampling_logp_difference/max"] for step in trainer.state.log_history if "loss" in step]
    yield Reading("training_diff", max(logged, default=math.nan), str(logged))

    policy = trainer.accelerator.unwrap_model(trainer.model).eval()
    old = grpo.snapshot(policy)
    _replace(policy, context.seed + 1)
    adapter.sync_weights(trainer)
    draw = random.Random(context.seed)
    prompts = [tiny.draw_tokens(draw, PROMPT_LENGTH) for _ in range(PROMPTS)]
    samples = _greedy(adapter.sampler(trainer), prompts)

    differences = _differences(policy, prompts, samples)
    yield Reading("sampler_diff", differences.mean().item())
    yield Reading("sampler_diff_max", differences.max().item())
    yield Reading("greedy_regret", max(_regret(policy, p, s) for p, (s, _) in zip(prompts, samples, strict=True)))
    effects = dict(_stale_effects(policy, old, prompts, samples))
    least = min(effects, key=effects.__getitem__)
    yield Reading("stale_parameter_diff", effects[least], f"{least} of {effects}")
    _load(policy, old)
    yield Reading("old_policy_diff", _differences(policy, prompts, samples).mean().item())


def _register_model() -> None:
    """Register the model's class itself, where vLLM has only its name.

    To look at a class that it knows by name, vLLM starts another interpreter, which imports everything again: 15 s.
    """
    from vllm import ModelRegistry
    from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM

    ModelRegistry.register_model("Qwen2ForCausalLM", Qwen2ForCausalLM)


# Standard deviations of the new values, by the first key that a parameter's name contains. Chosen so that every single
# parameter shows in the log-probabilities, far above what vLLM's bfloat16 rounds away.
SCALES = {"norm": 0.8, "bias": 2.0, "embed": 1.0, "q_proj": 0.1, "k_proj": 0.1, "": 0.25}


def _replace(model: Any, seed: int) -> None:
    """Give every parameter new random values."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = next(scale for key, scale in SCALES.items() if key in name)
            noise = scale * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + noise if "norm" in name else noise)


def _load(model: Any, weights: dict[str, Any]) -> None:
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])


def _greedy(engine: Any, prompts: list[list[int]]) -> list[tuple[list[int], list[float]]]:
    """vLLM's greedy tokens for each prompt and the log-probability that it gives each of them, in nats."""
    from vllm import SamplingParams

    greedy = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True, logprobs=0)
    outputs = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], greedy, use_tqdm=False)
    samples = []
    for output in outputs:
        best = output.outputs[0]
        tokens = list(best.token_ids)
        samples.append((tokens, [row[token].logprob for token, row in zip(tokens, best.logprobs, strict=True)]))
    return samples


def _differences(policy: Any, prompts: list[list[int]], samples: list[tuple[list[int], list[float]]]) -> Any:
    """How far vLLM's log-probability of each token is from the policy's, in nats: (PROMPTS * NEW_TOKENS,)."""
    import torch

    return torch.cat(
        [
            (completion_logprobs(policy, prompt, tokens) - torch.tensor(logprobs)).abs()
            for prompt, (tokens, logprobs) in zip(prompts, samples, strict=True)
        ]
    )


def _regret(policy: Any, prompt: list[int], tokens: list[int]) -> float:
    """How much less likely than the policy's first choice a token is, at most: 0 when all are its first choice."""
    best = next_token_logprobs(policy, prompt + tokens, len(tokens)).max(dim=1).values.cpu()
    worst: float = (best - completion_logprobs(policy, prompt, tokens)).max().item()
    return worst


def _stale_effects(
    policy: Any, old: dict[str, Any], prompts: list[list[int]], samples: list[tuple[list[int], list[float]]]
) -> Iterator[tuple[str, float]]:
    """For each parameter, the mean difference that would show if it alone had stayed as it was."""
    new = grpo.snapshot(policy)
    for name in old:
        _load(policy, {name: old[name]})
        yield name, _differences(policy, prompts, samples).mean().item()
        _load(policy, {name: new[name]})
