"""vLLM in the trainer's process: start it, compare its weights with the policy's, and ask it for completions."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from smoke.kit import adapter, grpo
from smoke.kit.policy import completion_logprobs, next_token_logprobs
from smoke.probe import Context

# vLLM's classes for the architectures of smoke.kit.tiny.
_MODELS = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}

# The tensors that vLLM concatenates, along the first dimension.
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}

# PEFT's prefix of parameter names.
_PEFT = "base_model.model."


def make_trainer(context: Context, model: Any, **options: Any) -> Any:
    """A GRPOTrainer with vLLM in its process; see grpo.make_trainer. Raises NotApplicable if TRL has no such mode."""
    ours = {
        **adapter.colocated(context.device),
        # The share of a small machine's memory; the model is tiny, and a GPU may run two engines.
        "vllm_gpu_memory_utilization": 0.2 if context.device == "cuda" else 0.4,
    }
    if "max_prompt_length" in adapter.known_options():
        # Up to TRL 0.25, vLLM's context is this plus the completion; the default exceeds the model's.
        ours["max_prompt_length"] = 256
    return grpo.make_trainer(context, model, options.pop("reward", grpo.Reward()), **{**ours, **options})


def register(architecture: str) -> None:
    """Register the model's class with vLLM, which by default registers only its name.

    To inspect a class registered by name, vLLM starts another interpreter, which imports everything again: 15 s.
    """
    from vllm import ModelRegistry

    module = importlib.import_module(f"vllm.model_executor.models.{architecture}")
    ModelRegistry.register_model(_MODELS[architecture], getattr(module, _MODELS[architecture]))


# All engines of this process, with their arguments. They are never shut down, because that takes a second each.
_ENGINES: list[tuple[dict[str, Any], Any]] = []


@contextlib.contextmanager
def engine_once(context: Context) -> Iterator[None]:
    """A context in which trainers share engines with equal arguments, because an engine takes seconds to start.

    A later trainer finds the engine as an earlier one left it, as after any training step.
    """
    from unittest import mock

    adapter.colocated(context.device)  # raises NotApplicable if this TRL has no vLLM in its process
    module = adapter.engine_module()
    start = module.LLM
    # A CPU takes up to two seconds to fill the default cache of one GiB with zeros; a large GPU's share is millions of
    # blocks, each a Python object. A block has 128 tokens on a CPU, and 16 on a GPU.
    small = {"num_gpu_blocks_override": 256 if context.device == "cpu" else 2048}

    def get(**arguments: Any) -> Any:
        for engine_arguments, engine in _ENGINES:
            if engine_arguments == arguments:
                return engine
        _ENGINES.append((arguments, start(**arguments, **small)))
        return _ENGINES[-1][1]

    with mock.patch.object(module, "LLM", get):
        yield


def model_of(engine: Any) -> Any:
    """The model inside an engine, a torch.nn.Module."""
    return engine.llm_engine.model_executor.driver_worker.model_runner.model


def engine_weights(engine: Any) -> dict[str, Any]:
    """Copies of vLLM's weights, by vLLM's names, on the CPU."""
    return grpo.snapshot(model_of(engine))


def tensors(engine: Any) -> dict[str, Any]:
    """vLLM's large tensors themselves, not copies: its weights by name, and its cache by layer."""
    runner = engine.llm_engine.model_executor.driver_worker.model_runner
    caches = {f"cache {layer}": cache for layer, cache in enumerate(getattr(runner, "kv_caches", ()))}
    return {**dict(runner.model.named_parameters()), **caches}


@dataclass(frozen=True)
class Weights:
    """A comparison of vLLM's weights with the policy's: the names of stale ones, and the share that was compared."""

    stale: list[str]
    compared: float


def compare_weights(policy: Any, engine: Any) -> Weights:
    """Compare each of vLLM's tensors with the policy's, rounded to vLLM's dtype.

    Merging an adapter adds rounding, so that one step of vLLM's dtype is allowed then. Tensors with another shape in
    vLLM, such as weights packed for its kernels, cannot be compared.
    """
    import torch

    tensors_of_engine, weights_of_policy = engine_weights(engine), plain_weights(policy)
    merged = hasattr(policy, "peft_config")
    stale, compared = [], 0
    for name, tensor in tensors_of_engine.items():
        parts = parts_of(name)
        if not all(part in weights_of_policy for part in parts):
            continue
        expected = torch.cat([weights_of_policy[part] for part in parts]).to(tensor.dtype)
        if tensor.shape != expected.shape:
            continue
        compared += 1
        step = torch.finfo(tensor.dtype).eps * expected.abs().float() if merged else 0.0
        if not bool(((tensor.float() - expected.float()).abs() <= step).all()):
            stale.append(name)
    return Weights(stale, compared / len(tensors_of_engine))


def watch_weights(trainer: Any, engine: Any) -> list[Weights]:
    """Compare the weights at each generation from now on. The returned list grows with each of them."""
    generate = engine.generate
    comparisons: list[Weights] = []

    def compare(*arguments: Any, **keywords: Any) -> Any:
        comparisons.append(compare_weights(trainer.accelerator.unwrap_model(trainer.model), engine))
        return generate(*arguments, **keywords)

    # On the object itself, where the trainer looks it up.
    engine.generate = compare
    return comparisons


def parts_of(name: str) -> list[str]:
    """The policy's names for the parts of vLLM's tensor `name`."""
    return next(([name.replace(key, part) for part in _FUSED[key]] for key in _FUSED if key in name), [name])


def plain_weights(policy: Any) -> dict[str, Any]:
    """The policy's weights with its adapters merged, by their names without PEFT, in float32 on the CPU."""
    weights = {name: weight.float() for name, weight in base_weights(policy).items()}
    for name, delta in adapter_deltas(policy).items():
        weights[name] = weights[name] + delta
    return weights


def base_weights(policy: Any) -> dict[str, Any]:
    """Copies of the weights without adapters, by their names without PEFT, on the CPU."""
    return {
        name.removeprefix(_PEFT).replace(".base_layer", ""): weight
        for name, weight in grpo.snapshot(policy).items()
        if "lora_" not in name
    }


def adapter_deltas(policy: Any) -> dict[str, Any]:
    """What LoRA adapters add to weights, by the weights' names without PEFT, in float32 on the CPU."""
    deltas = {}
    for name, module in policy.named_modules():
        for adapter_name in getattr(module, "lora_A", ()):
            up, down = (getattr(module, key)[adapter_name].weight for key in ("lora_B", "lora_A"))
            delta = module.scaling[adapter_name] * (up.detach().float() @ down.detach().float())
            deltas[name.removeprefix(_PEFT) + ".weight"] = delta.cpu()
    return deltas


@dataclass(frozen=True)
class Answer:
    """vLLM's answer to a prompt: its tokens and, if requested, their log-probabilities, in nats."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float] | None


def answers(outputs: Any) -> list[Answer]:
    """What vLLM's generate() has returned, one for each completion."""
    completions = []
    for output in outputs:
        for completion in output.outputs:
            tokens = list(completion.token_ids)
            logprobs = None
            if completion.logprobs is not None:
                logprobs = [row[token].logprob for token, row in zip(tokens, completion.logprobs, strict=True)]
            completions.append(Answer(list(output.prompt_token_ids), tokens, logprobs))
    return completions


def greedy(engine: Any, prompts: list[list[int]], count: int) -> list[Answer]:
    """vLLM's first choices for `count` tokens after each prompt."""
    from vllm import SamplingParams

    first = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, logprobs=0)
    return answers(engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], first, use_tqdm=False))


def differences(policy: Any, completions: list[Answer]) -> Any:
    """The distance between vLLM's and the policy's log-probability of each token, in nats: (tokens of all answers,)."""
    import torch

    return torch.cat(
        [
            (completion_logprobs(policy, answer.prompt, answer.tokens) - torch.tensor(answer.logprobs)).abs()
            for answer in completions
        ]
    )


def regret(policy: Any, answer: Answer) -> float:
    """How much less likely than the policy's first choice a token is, at most: 0 when all are its first choice."""
    rows = next_token_logprobs(policy, answer.prompt + answer.tokens, len(answer.tokens)).cpu()
    best = rows.max(dim=1).values
    worst: float = (best - completion_logprobs(policy, answer.prompt, answer.tokens)).max().item()
    return worst
