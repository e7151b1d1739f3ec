"""What a run is: which checks apply to it, and why others do not."""

from __future__ import annotations

from typing import Any

from . import engine
from .groups import Rule
from .hooks import LOGPS
from .loss import Terms
from .objective import Objective

SHARDED = "the trainer's weights are sharded over processes"


def absent(trainer: Any) -> dict[str, str]:
    """What the run lacks that a check may need -> why, in a few words."""
    args = trainer.args
    missing = _of_ranks(trainer)
    if not any("GRPO" in base.__name__ for base in type(trainer).__mro__):
        reason = "the trainer is not TRL's GRPOTrainer"
        names = ("grpo", "groups", "rewards", "single_turn", "logprobs", "calibrated", "ratio", "reference",
                 "fixed_reference", "sampler", "engine", "vllm")  # fmt: skip
        return {**missing, **dict.fromkeys(names, reason)}
    if not hasattr(trainer, "_calculate_rewards"):
        missing["rewards"] = "this TRL computes rewards and advantages in one piece"
    if getattr(trainer, "tools", None) or getattr(trainer, "rollout_func", None):
        missing["single_turn"] = "completions have several turns"
    missing.update(_of_logprobs(trainer, args))
    missing.update(_of_vllm(trainer, args))
    return missing


def _of_ranks(trainer: Any) -> dict[str, str]:
    processes = int(getattr(trainer.accelerator, "num_processes", 1))
    return {"replicas": "there is one process"} if processes == 1 else {}


def _of_logprobs(trainer: Any, args: Any) -> dict[str, str]:
    missing: dict[str, str] = {}
    if getattr(args, "use_liger_kernel", False) or getattr(args, "use_liger_loss", False):
        reason = "Liger computes the loss without log-probabilities that could be seen"
        return dict.fromkeys(("logprobs", "calibrated", "ratio", "reference", "fixed_reference", "sampler"), reason)
    if not any(hasattr(trainer, name) for name in LOGPS):
        reason = "this TRL has no method for log-probabilities"
        return dict.fromkeys(("logprobs", "calibrated", "ratio", "reference", "fixed_reference", "sampler"), reason)
    if reason := uncalibrated(trainer, args):
        missing["calibrated"] = reason
    elif not hasattr(trainer, LOGPS[0]):
        missing["calibrated"] = "this TRL computes no entropies with its log-probabilities"
    if not getattr(args, "beta", 0.0):
        missing["reference"] = missing["fixed_reference"] = "beta is 0: there is no reference"
    elif getattr(args, "sync_ref_model", False):
        missing["fixed_reference"] = "sync_ref_model moves the reference"
    if dropout(trainer.model):
        missing["ratio"] = "the model has dropout, which changes every pass"
        missing.setdefault("calibrated", "the model has dropout, which the sampler has not")
        missing.setdefault("reference", missing["ratio"])
    return missing


def _of_vllm(trainer: Any, args: Any) -> dict[str, str]:
    if not getattr(args, "use_vllm", False):
        return dict.fromkeys(("sampler", "engine", "vllm"), "no vLLM: the trainer samples by itself")
    missing: dict[str, str] = {}
    llm = getattr(engine.owner(trainer), "llm", None)
    if llm is None:
        missing["engine"] = "vLLM is a server: its weights cannot be seen from here"
    elif (getattr(args, "vllm_tensor_parallel_size", 1) or 1) > 1:
        missing["engine"] = "vLLM is sharded over GPUs"
    elif sharded(trainer):
        missing["engine"] = SHARDED
    return missing


def sharded(trainer: Any) -> bool:
    """Whether each process has a part of the weights only: FSDP, ZeRO-3, tensor parallelism."""
    kind = str(getattr(trainer.accelerator, "distributed_type", ""))
    plugin = getattr(getattr(trainer.accelerator, "state", None), "deepspeed_plugin", None)
    split = (getattr(plugin, "deepspeed_config", None) or {}).get("tensor_parallel") or {}
    parts = ("ds_id", "to_local")
    return (
        "FSDP" in kind
        or int(split.get("autotp_size") or 0) > 1
        or any(hasattr(weight, name) for weight in trainer.model.parameters() for name in parts)
    )


def uncalibrated(trainer: Any, args: Any) -> str:
    """Why completions do not come from the very distribution that is scored; empty if they do."""
    vocabulary = getattr(getattr(trainer.model, "config", None), "vocab_size", None) or 1 << 30
    top_k = getattr(args, "top_k", None)
    if top_k is not None and 0 < top_k < vocabulary:
        return f"top_k is {top_k}: the sampler leaves tokens out that the trainer counts"
    if (getattr(args, "top_p", 1.0) or 1.0) < 1.0:
        return f"top_p is {args.top_p}: the sampler leaves tokens out that the trainer counts"
    if getattr(args, "min_p", None):
        return f"min_p is {args.min_p}: the sampler leaves tokens out that the trainer counts"
    if (getattr(args, "repetition_penalty", 1.0) or 1.0) != 1.0:
        return "repetition_penalty moves the sampler"
    if getattr(args, "generation_kwargs", None):
        return "generation_kwargs may move the sampler"
    if any(getattr(args, name, None) for name in ("vllm_guided_decoding_regex", "vllm_structured_outputs_regex")):
        return "a regular expression holds the sampler"
    if getattr(trainer, "tools", None) or getattr(trainer, "rollout_func", None):
        return "completions have parts that were not sampled"
    return ""


def dropout(model: Any) -> bool:
    """Whether a pass in training mode is random."""
    modules = model.modules() if hasattr(model, "modules") else ()
    layers = any("Dropout" in type(module).__name__ and getattr(module, "p", 0.0) > 0 for module in modules)
    config = getattr(model, "config", None)
    return layers or any(getattr(config, name, 0.0) for name in ("attention_dropout", "hidden_dropout"))


def rule(trainer: Any) -> Rule:
    """How this trainer makes advantages of rewards."""
    scale = getattr(trainer, "scale_rewards", getattr(trainer.args, "scale_rewards", True))
    word = {True: "group", False: "none"}.get(scale, scale) if isinstance(scale, bool) else str(scale)
    weights = getattr(trainer, "reward_weights", None)
    return Rule(
        size=trainer.num_generations,
        scale=word if word in ("group", "batch", "none") else "group",
        weights=tuple(weights.tolist()) if weights is not None else (),
        normalise_first=getattr(trainer, "multi_objective_aggregation", "") == "normalize_then_sum",
    )


def terms(trainer: Any, fresh: bool, first: bool) -> Terms:
    """What the loss of this trainer is made of."""
    args, kind = trainer.args, getattr(trainer, "loss_type", getattr(trainer.args, "loss_type", ""))
    beta = float(getattr(trainer, "beta", 0.0))
    biased = bool(getattr(args, "use_bias_correction_kl", False))
    some = getattr(trainer, "top_entropy_quantile", getattr(args, "top_entropy_quantile", 1.0)) < 1.0
    losses = objective(trainer, str(kind))
    return Terms(
        beta=beta,
        biased_kl=biased,
        some_tokens=some,
        objective=losses,
        # The entropy mask is on the policy term only, VESPO has a factor of its own, a sequence's ratio weights all KL.
        exact=not beta or not (some or kind == "vespo" or (biased and losses.level != "token")),
        fresh=fresh,
        first=first,
        limit=float(getattr(trainer, "vllm_importance_sampling_cap", Terms.limit)),
    )


def objective(trainer: Any, kind: str) -> Objective:
    """What the loss makes of ratios: the trainer's own attributes, where TRL looks them up, or its arguments."""
    args, usual = trainer.args, Objective()

    def known(name: str, default: Any) -> Any:
        value = getattr(trainer, name, None)
        value = getattr(args, name, None) if value is None else value
        return default if value is None else value

    def pair(sign: str, power: float, rate: float) -> tuple[float, float]:
        return known(f"vespo_k_{sign}", power), known(f"vespo_lambda_{sign}", rate)

    low = float(known("epsilon_low", known("epsilon", usual.low)))
    return Objective(
        kind=kind or usual.kind,
        level=known("importance_sampling_level", usual.level),
        low=low,
        high=float(known("epsilon_high", low)),
        delta=known("delta", None),
        soft=(known("sapo_temperature_pos", usual.soft[0]), known("sapo_temperature_neg", usual.soft[1])),
        gamma=(pair("pos", *usual.gamma[0]), pair("neg", *usual.gamma[1])),
        off_policy=known("off_policy_mask_threshold", None),
        corrected=bool(getattr(trainer, "vllm_importance_sampling_correction", False)),
    )


def ends(trainer: Any) -> set[int]:
    """The end tokens that the model declares."""
    declared = getattr(getattr(trainer.model, "generation_config", None), "eos_token_id", None)
    known = set(declared) if isinstance(declared, (list, tuple)) else set() if declared is None else {declared}
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    if tokenizer.eos_token_id is not None:
        known.add(tokenizer.eos_token_id)
    return known


def pad(trainer: Any) -> int:
    """The padding token."""
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else -1
