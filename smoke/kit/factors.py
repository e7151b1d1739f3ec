"""What the levels of a row ask of TRL, of the model and of the objective.

A level that this TRL has no option for makes its rows not applicable, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from smoke.kit.decoder import Adapter, Shape
from smoke.kit.levels import FACTORS
from smoke.kit.reference import Objective

Row = Mapping[str, str]

PROMPTS = 48  # of the data
ROWS = 6  # completions of a micro-batch, if not one
LENGTH = 12  # tokens of a completion, at most
BETA = 0.1
ENTROPY_BONUS = 0.05  # its coefficient, where it is adaptive that of the beginning
ADAPTIVE = {"entropy_coef_delta": 0.02, "entropy_coef_min": 0.02, "entropy_coef_max": 0.1, "entropy_target": 4.3}
OPENING = "So: "  # how answers begin, an option of the tiny chat template
OFF_POLICY = 0.001  # nats a token; as far from the policy that sampled as the worse half of completions soon is
SOFT, GAMMA = (0.7, 1.4), ((1.5, 2.5), (2.5, 1.5))  # SAPO's temperatures and VESPO's exponents and rates, if not TRL's
TOP = 0.25  # of the tokens by entropy; exact in binary, so that both quantiles are of the same place
REWARD_WEIGHTS = (1.0, -0.5)
CLIPPED = 0.3  # max_grad_norm
MIXUP = 0.6
CAP, LEAST = 1.2, 0.9  # of the correction for another sampler; no least one by default
SGD, ADAMW = {"none": 0.003, "adapter": 0.05}, {"none": 0.0003, "adapter": 0.003}
# Of a gradient whose norm has no limit, SGD takes a part. With the whole rate one run in thirty diverged; with a sixth,
# two in twelve of an adapter that the rank stabilises.
UNLIMITED = {"none": 1 / 6, "adapter": 1 / 30}
# As large as most gradients: with AdamW's usual 1e-8 a weight of almost no gradient moves as far as any other, and
# rounding decides where to.
ADAM_EPSILON = 1e-3
EVAL_GENERATIONS = 2

# What an option is where TRL does not have it: then a level may ask for it all the same.
_WITHOUT: dict[str, Any] = {
    "importance_sampling_level": "token",
    "delta": None,
    "epsilon_high": None,
    "num_iterations": 1,
    "multi_objective_aggregation": "sum_then_normalize",
    "use_bias_correction_kl": False,
    "sync_ref_model": False,
    "ref_model_mixup_alpha": MIXUP,
    "ref_model_sync_steps": 1,
    "mask_truncated_completions": False,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "pad_to_multiple_of": None,
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "off_policy_mask_threshold": None,
    "shuffle_dataset": True,
    "chat_template_kwargs": None,
    "reward_weights": None,
    "vllm_enable_sleep_mode": False,
    "vllm_importance_sampling_correction": False,
}


def generations(row: Row) -> int:
    """The completions of a prompt. Of two ranks with six completions each, groups of four meet both."""
    if "group" in row:
        return 3 if row["group"] == "on one rank" else 4
    return int(row["generations"])


def completions(row: Row) -> int:
    """The completions of a micro-batch on one rank."""
    return 1 if row.get("micro-batch") == "one completion" else ROWS


def accumulation(row: Row) -> int:
    """The micro-batches of a step."""
    return int(row["accumulation"])


def micro_batches(row: Row) -> int:
    """The micro-batches that one generation is for, TRL's steps_per_generation."""
    return {
        "every step": accumulation(row),
        "every second step": 2 * accumulation(row),
        "twice a step": accumulation(row) // 2,
    }[row["generation"]]


def iterations(row: Row) -> int:
    """How often each completion is trained on."""
    return int(row["iterations"])


def period(row: Row) -> int:
    """The steps from one generation to the next, 1 where a step has several."""
    return max(1, micro_batches(row) * iterations(row) // accumulation(row))


def steps_per_epoch(row: Row, ranks: int) -> float:
    """The steps in which each prompt is sampled for once."""
    if row.get("order") == "streamed":
        return steps(row)  # a stream's length is unknown: the run is the epoch
    prompts = completions(row) * ranks * micro_batches(row) // generations(row)
    return (PROMPTS // prompts) * micro_batches(row) * iterations(row) / accumulation(row)


def steps(row: Row) -> int:
    """The steps of the run: two generations, and two steps at least."""
    return 2 * period(row)


def reference_period(row: Row) -> int:
    """The steps after which the reference moves towards the policy, 0 if it never does."""
    return {"moving reference": 1, "reference of every second step": 2}.get(row["kl"], 0)


def opening(row: Row) -> str:
    """How answers begin, by an option of the chat template."""
    return OPENING if row["prompts"] == "chat with options" else ""


def learning_rate(row: Row) -> float:
    """Enough for ratios to leave the clipping range."""
    trained = "none" if row["adapter"] == "none" else "adapter"
    if row["optimizer"] == "sgd":
        return SGD[trained] * (UNLIMITED[trained] if row["gradient norm"] == "free" else 1)
    return ADAMW[trained]


def options(row: Row) -> dict[str, Any]:
    """The options of GRPOConfig that the levels ask for, all of them explicit."""
    low, high, delta, most = _CLIPS[row.get("clipping", "even")]
    chosen: dict[str, Any] = {
        "loss_type": row["loss"],
        "importance_sampling_level": row.get("ratio", "token"),
        "gradient_accumulation_steps": accumulation(row),
        "steps_per_generation": micro_batches(row),
        "num_iterations": iterations(row),
        "epsilon": low,
        "epsilon_high": most if row["loss"] == "cispo" else high,
        "delta": delta,
        "scale_rewards": row["scale"],
        "reward_weights": None if row["rewards"] == "one" else list(REWARD_WEIGHTS),
        "multi_objective_aggregation": {"sum": "sum_then_normalize", "each first": "normalize_then_sum"}[
            row.get("aggregation", "sum")
        ],
        "beta": 0.0 if row["kl"] == "off" else BETA,
        "use_bias_correction_kl": row["kl"] == "weighted",
        "sync_ref_model": reference_period(row) > 0,
        "ref_model_mixup_alpha": MIXUP,
        "ref_model_sync_steps": reference_period(row) or 1,
        "mask_truncated_completions": row["truncated"] == "masked",
        **_SAMPLING[row.get("sampling", "plain")],
        "gradient_checkpointing": row["checkpointing"] != "off",
        "max_grad_norm": CLIPPED if row["gradient norm"] == "clipped" else 0.0,
        "optim": "sgd" if row["optimizer"] == "sgd" else "adamw_torch",
        "adam_epsilon": ADAM_EPSILON,
        "lr_scheduler_type": row.get("rate", "constant"),
        "learning_rate": learning_rate(row),
        "pad_to_multiple_of": 16 if row.get("padding") == "to 16" else None,
        "top_entropy_quantile": TOP if row["entropy"] == "top quarter" else 1.0,
        "entropy_coef": ENTROPY_BONUS if row["entropy"] in ("bonus", "adaptive bonus") else 0.0,
        "use_adaptive_entropy": row["entropy"] == "adaptive bonus",
        "off_policy_mask_threshold": OFF_POLICY if row.get("off-policy") == "masked" else None,
        "shuffle_dataset": row.get("order", "shuffled") == "shuffled",
        "chat_template_kwargs": {"opening": opening(row)} if opening(row) else None,
    }
    if row["entropy"] == "adaptive bonus":
        chosen |= ADAPTIVE
    if row.get("constants") == "own":
        chosen |= _CONSTANTS.get(row["loss"], {})
    if "correction" in row:
        chosen |= {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_enable_sleep_mode": row["sleep"] == "on",
            "vllm_importance_sampling_correction": row["correction"] != "off",
        }
        if row["correction"] != "off":
            chosen["vllm_importance_sampling_mode"] = row["correction"]
            chosen["vllm_importance_sampling_clip_max"] = CAP
            if row.get("constants") == "own":
                chosen["vllm_importance_sampling_clip_min"] = LEAST
    if row["checkpointing"] != "off":
        chosen["gradient_checkpointing_kwargs"] = {"use_reentrant": row["checkpointing"] == "reentrant"}
    return chosen


# epsilon, epsilon_high and delta, and epsilon_high where it bounds the ratio itself. Narrow, because steps are small.
_CLIPS: dict[str, tuple[float, float | None, float | None, float]] = {
    "even": (0.05, None, None, 1.05),
    "asymmetric": (0.02, 0.1, None, 1.1),
    "two-sided": (0.05, 0.02, 1.03, 1.02),
}
CLIP = 0.05
_CONSTANTS = {
    "sapo": {"sapo_temperature_pos": SOFT[0], "sapo_temperature_neg": SOFT[1]},
    "vespo": {
        "vespo_k_pos": GAMMA[0][0],
        "vespo_lambda_pos": GAMMA[0][1],
        "vespo_k_neg": GAMMA[1][0],
        "vespo_lambda_neg": GAMMA[1][1],
    },
}
_SAMPLING: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None},
    "cold": {"temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": None},
    "hot, top-p": {"temperature": 1.3, "top_p": 0.9, "top_k": 0, "min_p": None},
    "top-k": {"temperature": 1.0, "top_p": 1.0, "top_k": 20, "min_p": None},
    "min-p": {"temperature": 0.9, "top_p": 1.0, "top_k": 0, "min_p": 0.1},
}


def supported(row: Row, known: set[str], losses: set[str]) -> tuple[dict[str, Any], str]:
    """The options that this TRL has, and what a row asks for that it does not have ("" if nothing)."""
    chosen = options(row)
    if chosen["loss_type"] not in losses:
        return {}, f"no loss_type {chosen['loss_type']}"
    if "steps_per_generation" not in known and row["generation"] != "every step":
        return {}, "no option steps_per_generation"
    for name, value in chosen.items():
        if name not in known and name not in ("loss_type", "steps_per_generation") and value != _WITHOUT.get(name):
            return {}, f"no option {name}"
    return {name: value for name, value in chosen.items() if name in known}, ""


def shape(row: Row) -> Shape:
    """The model of a row."""
    heads, key_heads, size = _HEADS[row.get("heads", FACTORS["heads"][0])]
    rope = row.get("rope", "default")
    return Shape(
        architecture=row.get("architecture", "qwen2"),
        heads=heads,
        key_heads=key_heads,
        head_size=size,
        theta=500.0 if rope == "base 500" else 10000.0,
        rope="default" if rope == "base 500" else rope,
        tied=row["embedding"] == "tied",
    )


_HEADS = {"2 on 1 of 32": (2, 1, 32), "4 on 4 of 16": (4, 4, 16), "4 on 2 of 24": (4, 2, 24)}


def quantized(row: Row) -> bool:
    """Whether the adapter is on 4-bit weights."""
    return row["adapter"] == "LoRA on 4-bit"


def adapter(row: Row) -> Adapter | None:
    """The adapter that is trained, or None for all weights."""
    if row["adapter"] == "none":
        return None
    return Adapter(
        rank_stabilised=row["adapter"] == "rank-stabilised",
        whole=("lm_head",) if row["adapter"] == "LoRA, whole head" else (),
    )


# How each loss averages over tokens, and what it does with ratios.
AVERAGES = {
    "grpo": "sequence",
    "bnpo": "part",
    "dr_grpo": "length",
    "dapo": "token",
    "cispo": "token",
    "sapo": "sequence",
    "luspo": "sum",
    "vespo": "token",
}
_CLIPPING = {"cispo": "weight", "sapo": "soft", "vespo": "gamma"}


def objective(row: Row) -> Objective:
    """The objective that the published methods define for these levels."""
    chosen = options(row)
    high = chosen["epsilon_high"]
    return Objective(
        average=AVERAGES[row["loss"]],
        length=LENGTH,
        epsilon=chosen["epsilon"],
        epsilon_high=chosen["epsilon"] if high is None else high,
        beta=chosen["beta"],
        temperature=chosen["temperature"],
        mask_truncated=chosen["mask_truncated_completions"],
        weight_kl=chosen["use_bias_correction_kl"],
        clipping=_CLIPPING.get(row["loss"], "ratio"),
        per_sequence=chosen["importance_sampling_level"] == "sequence",
        delta=math.inf if chosen["delta"] is None else chosen["delta"],
        off_policy=OFF_POLICY if row.get("off-policy") == "masked" else math.inf,
        soft=SOFT if row.get("constants") == "own" else Objective.soft,
        gamma=GAMMA if row.get("constants") == "own" else Objective.gamma,
    )
