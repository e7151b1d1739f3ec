"""vLLM in the trainer's own process: how probes start it, the weights it holds, and what it answers."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from smoke.kit import adapter, grpo
from smoke.kit.policy import completion_logprobs, next_token_logprobs
from smoke.probe import Context

# vLLM's own modules of the architectures of smoke.kit.tiny.
_MODELS = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}

# What vLLM joins to one tensor, along the first dimension.
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}

# What PEFT puts before the names of a model's parts.
_PEFT = "base_model.model."


def make_trainer(context: Context, model: Any, **options: Any) -> Any:
    """A GRPOTrainer with vLLM in its process; see grpo.make_trainer. Raises NotApplicable where TRL has none."""
    ours = {
        **adapter.colocated(context.device),
        # Of a small machine's memory; the model needs next to nothing, and a GPU may have to hold two engines.
        "vllm_gpu_memory_utilization": 0.2 if context.device == "cuda" else 0.4,
    }
    if "max_prompt_length" in adapter.known_options():
        # vLLM's context is this and the completion, up to TRL 0.25; by default more than the model's.
        ours["max_prompt_length"] = 256
    return grpo.make_trainer(context, model, options.pop("reward", grpo.Reward()), **{**ours, **options})


def register(architecture: str) -> None:
    """Register the model's class itself, where vLLM has only its name.

    To look at a class that it knows by name, vLLM starts another interpreter, which imports everything again: 15 s.
    """
    from vllm import ModelRegistry

    module = importlib.import_module(f"vllm.model_executor.models.{architecture}")
    ModelRegistry.register_model(_MODELS[architecture], getattr(module, _MODELS[architecture]))


# Every engine with what it was asked for, as long as the process lives: to take one down takes a second, too.
_ENGINES: list[tuple[dict[str, Any], Any]] = []


@contextlib.contextmanager
def engine_once(context: Context) -> Iterator[None]:
    """Within, trainers that ask vLLM for an engine with the same arguments share one: to start it takes seconds.

    The later ones find in it what the earlier ones left, as after any step of training.
    """
    from unittest import mock

    adapter.colocated(context.device)  # where TRL has no vLLM in its process, that is all there is to say
    module = adapter.engine_module()
    start = module.LLM
    # The cache would have a GiB, which a CPU fills with zeros for up to two seconds.
    small = {"num_gpu_blocks_override": 256} if context.device == "cpu" else {}

    def get(**arguments: Any) -> Any:
        for known, engine in _ENGINES:
            if known == arguments:
                return engine
        _ENGINES.append((arguments, start(**arguments, **small)))
        return _ENGINES[-1][1]

    with mock.patch.object(module, "LLM", get):
        yield


def model_of(engine: Any) -> Any:
    """The model that an engine computes with, a torch.nn.Module."""
    return engine.llm_engine.model_executor.driver_worker.model_runner.model


def held(engine: Any) -> dict[str, Any]:
    """Copies of the tensors that vLLM holds, by its names, on the CPU."""
    return grpo.snapshot(model_of(engine))


def tensors(engine: Any) -> dict[str, Any]:
    """Everything large that vLLM holds, itself and not copies: the weights by its names, and its cache by layer."""
    runner = engine.llm_engine.model_executor.driver_worker.model_runner
    caches = {f"cache {layer}": cache for layer, cache in enumerate(getattr(runner, "kv_caches", ()))}
    return {**dict(runner.model.named_parameters()), **caches}


@dataclass(frozen=True)
class Weights:
    """How vLLM's weights compare with the policy's: the names of those that differ, and the share that was compared."""

    stale: list[str]
    compared: float


def compare_weights(policy: Any, engine: Any) -> Weights:
    """Compare each of vLLM's tensors with the policy's, rounded to vLLM's type.

    Merging an adapter rounds by itself: there, one step of vLLM's type is allowed. What vLLM holds in another shape,
    such as weights that it has packed for its kernels, cannot be compared.
    """
    import torch

    theirs, ours = held(engine), plain_weights(policy)
    merged = hasattr(policy, "peft_config")
    stale, compared = [], 0
    for name, tensor in theirs.items():
        parts = parts_of(name)
        if not all(part in ours for part in parts):
            continue
        expected = torch.cat([ours[part] for part in parts]).to(tensor.dtype)
        if tensor.shape != expected.shape:
            continue
        compared += 1
        step = torch.finfo(tensor.dtype).eps * expected.abs().float() if merged else 0.0
        if not bool(((tensor.float() - expected.float()).abs() <= step).all()):
            stale.append(name)
    return Weights(stale, compared / len(theirs))


def watch_weights(trainer: Any, engine: Any) -> list[Weights]:
    """How the weights compare at each generation from now on: a list that grows."""
    generate = engine.generate
    found: list[Weights] = []

    def look(*arguments: Any, **keywords: Any) -> Any:
        found.append(compare_weights(trainer.accelerator.unwrap_model(trainer.model), engine))
        return generate(*arguments, **keywords)

    # On the object itself, where the trainer looks it up.
    engine.generate = look
    return found


def parts_of(name: str) -> list[str]:
    """The policy's names for what vLLM holds as `name`."""
    return next(([name.replace(key, part) for part in _FUSED[key]] for key in _FUSED if key in name), [name])


def plain_weights(policy: Any) -> dict[str, Any]:
    """The policy's weights by the names they have without PEFT, adapters added here, in float32 on the CPU."""
    weights = {name: weight.float() for name, weight in base_weights(policy).items()}
    for name, delta in adapter_deltas(policy).items():
        weights[name] = weights[name] + delta
    return weights


def base_weights(policy: Any) -> dict[str, Any]:
    """Copies of the weights below the adapters, if there are any, by the names they have without PEFT, on the CPU."""
    return {
        name.removeprefix(_PEFT).replace(".base_layer", ""): weight
        for name, weight in grpo.snapshot(policy).items()
        if "lora_" not in name
    }


def adapter_deltas(policy: Any) -> dict[str, Any]:
    """What LoRA adapters add to weights, by the names these have without PEFT, in float32 on the CPU."""
    deltas = {}
    for name, module in policy.named_modules():
        for adapter_name in getattr(module, "lora_A", ()):
            up, down = (getattr(module, key)[adapter_name].weight for key in ("lora_B", "lora_A"))
            delta = module.scaling[adapter_name] * (up.detach().float() @ down.detach().float())
            deltas[name.removeprefix(_PEFT) + ".weight"] = delta.cpu()
    return deltas


@dataclass(frozen=True)
class Answer:
    """What vLLM returned for a prompt: tokens and, if it was asked, the log-probability that it gives each, in nats."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float] | None


def answers(outputs: Any) -> list[Answer]:
    """What vLLM's generate() has returned, one for each completion."""
    found = []
    for output in outputs:
        for completion in output.outputs:
            tokens = list(completion.token_ids)
            logprobs = None
            if completion.logprobs is not None:
                logprobs = [row[token].logprob for token, row in zip(tokens, completion.logprobs, strict=True)]
            found.append(Answer(list(output.prompt_token_ids), tokens, logprobs))
    return found


def greedy(engine: Any, prompts: list[list[int]], count: int) -> list[Answer]:
    """vLLM's first choices for `count` tokens after each prompt."""
    from vllm import SamplingParams

    first = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, logprobs=0)
    return answers(engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], first, use_tqdm=False))


def differences(policy: Any, given: list[Answer]) -> Any:
    """How far vLLM's log-probability of each token is from the policy's, in nats: (tokens of all answers,)."""
    import torch

    return torch.cat(
        [
            (completion_logprobs(policy, answer.prompt, answer.tokens) - torch.tensor(answer.logprobs)).abs()
            for answer in given
        ]
    )


def regret(policy: Any, answer: Answer) -> float:
    """How much less likely than the policy's first choice a token is, at most: 0 when all are its first choice."""
    rows = next_token_logprobs(policy, answer.prompt + answer.tokens, len(answer.tokens)).cpu()
    best = rows.max(dim=1).values
    worst: float = (best - completion_logprobs(policy, answer.prompt, answer.tokens)).max().item()
    return worst
