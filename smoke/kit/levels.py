"""The factors of the covering arrays: what GRPO offers, level by level, and which levels no run can have together.

The rows are in array.py, which `python -m scripts.covering_array` writes from this file. What a level asks of TRL is in
factors.py.
"""

from __future__ import annotations

from collections.abc import Mapping

# The first level of each is what most runs use.
FACTORS: dict[str, tuple[str, ...]] = {
    "loss": ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo"),
    "ratio": ("token", "sequence"),
    "accumulation": ("1", "2", "4"),
    "generation": ("every step", "every second step", "twice a step"),
    "iterations": ("1", "2"),
    "clipping": ("even", "asymmetric", "two-sided"),
    "scale": ("group", "batch", "none"),
    "rewards": ("one", "two weighted", "none for some prompts", "none for some completions"),
    "aggregation": ("sum", "each first"),
    "kl": ("off", "plain", "weighted", "moving reference", "reference of every second step"),
    "truncated": ("counted", "masked"),
    "off-policy": ("counted", "masked"),
    "sampling": ("plain", "cold", "hot, top-p", "top-k", "min-p"),
    "architecture": ("qwen2", "llama", "qwen3"),
    "heads": ("2 on 1 of 32", "4 on 4 of 16", "4 on 2 of 24"),
    "rope": ("default", "base 500", "linear", "llama3"),
    "embedding": ("untied", "tied"),
    "adapter": ("none", "LoRA", "rank-stabilised", "LoRA, whole head", "LoRA on 4-bit"),
    "checkpointing": ("off", "not reentrant", "reentrant"),
    "optimizer": ("adamw", "sgd"),
    "gradient norm": ("free", "clipped"),
    "rate": ("constant", "linear"),
    "saving": ("never", "every step", "resumed"),
    "evaluation": ("never", "at start and between"),
    "prompts": ("chat", "text", "chat with options"),
    "padding": ("none", "to 16"),
    "entropy": ("ignored", "top quarter", "bonus", "adaptive bonus"),
    "constants": ("default", "own"),
    "order": ("shuffled", "as given", "streamed"),
    "generations": ("3", "2"),
    "micro-batch": ("six completions", "one completion"),
}

# Of runs on two ranks.
RANK_FACTORS: dict[str, tuple[str, ...]] = {
    "backend": ("ddp", "zero2", "zero3"),
    "group": ("on one rank", "on both ranks"),
    **{
        name: FACTORS[name][:2]
        for name in (
            "accumulation",
            "generation",
            "iterations",
            "scale",
            "truncated",
            "off-policy",
            "adapter",
            "checkpointing",
            "optimizer",
            "gradient norm",
            "evaluation",
            "embedding",
            "prompts",
            "order",
        )
    },
    "loss": ("dapo", "grpo", "bnpo", "dr_grpo"),
    "rewards": ("one", "two weighted", "none for some completions"),
    "kl": ("off", "plain"),
    "saving": FACTORS["saving"],
    "entropy": ("ignored", "top quarter", "adaptive bonus"),
}

# Of runs whose sampler is a stand-in for vLLM in the trainer's process.
SAMPLER_FACTORS: dict[str, tuple[str, ...]] = {
    "correction": ("sequence_mask", "off", "token_truncate", "token_mask", "sequence_truncate"),
    "sleep": ("off", "on"),
    "loss": ("dapo", "grpo", "bnpo", "cispo", "vespo"),
    "generation": FACTORS["generation"][:2],
    "accumulation": FACTORS["accumulation"][:2],
    "rewards": ("one", "none for some completions"),
    "kl": ("off", "plain"),
    **{
        name: FACTORS[name]
        for name in (
            "ratio",
            "iterations",
            "truncated",
            "off-policy",
            "sampling",
            "adapter",
            "embedding",
            "architecture",
            "checkpointing",
            "saving",
            "evaluation",
            "prompts",
            "optimizer",
            "gradient norm",
            "entropy",
            "constants",
            "scale",
            "generations",
            "micro-batch",
        )
    },
    # The sampler gets the weights with the adapter added, and those of 4 bits are rounded anew.
    "adapter": FACTORS["adapter"][:4],
}

# A level whose rows have too few completions to show much else: it has rows of its own, and meets each level once.
RARE = {"micro-batch": "one completion"}

# Pairs of levels that no run can have, with the reason.
IMPOSSIBLE: tuple[tuple[tuple[str, str], tuple[str, str], str], ...] = (
    (
        ("generation", "twice a step"),
        ("accumulation", "1"),
        "a step of one micro-batch cannot be divided between two generations",
    ),
    *(
        (("micro-batch", "one completion"), level, "a generation could be for less than the completions of a prompt")
        for level in (("generations", "3"), ("accumulation", "1"), ("generation", "twice a step"))
    ),
    *(
        (
            ("kl", reference),
            ("adapter", adapter),
            "the reference of an adapter is the model without it: TRL refuses sync_ref_model",
        )
        for reference in ("moving reference", "reference of every second step")
        for adapter in FACTORS["adapter"][1:]
    ),
    *(
        (("correction", level), ("loss", "vespo"), "VESPO weighs tokens: TRL refuses importances of sequences")
        for level in ("sequence_mask", "sequence_truncate")
    ),
    *(
        (
            ("kl", reference),
            ("saving", "resumed"),
            "TRL does not save a reference that moves: a resumed run starts with the first one (VETTED-0170)",
        )
        for reference in ("moving reference", "reference of every second step")
    ),
    (
        ("embedding", "tied"),
        ("adapter", "LoRA, whole head"),
        "PEFT does not say whether the embedding follows a head that is trained as a whole",
    ),
)


def rows(levels: Mapping[str, tuple[str, ...]], numbers: tuple[tuple[int, ...], ...]) -> dict[str, dict[str, str]]:
    """The rows of a covering array, by a name that tells them apart."""
    return {
        f"row {i}": {name: levels[name][number] for name, number in zip(levels, row, strict=True)}
        for i, row in enumerate(numbers, 1)
    }
