"""A user's options in the terms of the covering array: only levels that there are, and nothing left out in silence."""

from __future__ import annotations

import random
from typing import Any

import pytest

from builder.certify import combination, model_levels
from builder.certify.configuration import Configuration
from smoke.kit import factors, levels


def row(model: dict[str, Any] | None = None, processes: int = 1, zero: int = 0, **settings: Any) -> dict[str, str]:
    return combination.row(Configuration("my.yaml", settings, model or {}, processes=processes, zero=zero))[0]


def notes(model: dict[str, Any] | None = None, **settings: Any) -> list[str]:
    return combination.row(Configuration("my.yaml", settings, model or {}))[1]


@pytest.mark.parametrize(
    ("settings", "factor", "level"),
    [
        ({}, "loss", "dapo"),
        ({"loss_type": "cispo"}, "loss", "cispo"),
        ({"importance_sampling_level": "sequence"}, "ratio", "sequence"),
        ({"gradient_accumulation_steps": 16}, "accumulation", "4"),
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 8}, "generation", "every second step"),
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2}, "generation", "twice a step"),
        ({"generation_batch_size": 64, "per_device_train_batch_size": 8}, "generation", "every second step"),
        ({"num_iterations": 4}, "iterations", "2"),
        ({"epsilon_high": 0.28}, "clipping", "asymmetric"),
        ({"epsilon": 0.2, "epsilon_high": "0.2"}, "clipping", "even"),
        ({"delta": 1.5}, "clipping", "two-sided"),
        ({"scale_rewards": False}, "scale", "none"),
        ({"scale_rewards": "batch"}, "scale", "batch"),
        ({"reward_funcs": ["a.b", "c.d"]}, "rewards", "two weighted"),
        ({"beta": "4e-2"}, "kl", "weighted"),
        ({"beta": 0.04, "use_bias_correction_kl": False}, "kl", "plain"),
        ({"scale_rewards": 0}, "scale", "none"),
        ({"reward_funcs": "a.b", "reward_model_name_or_path": "mine"}, "rewards", "two weighted"),
        ({"pad_to_multiple_of": "auto"}, "padding", "none"),
        ({"pad_to_multiple_of": 8}, "padding", "to 16"),
        ({"use_peft": "y"}, "adapter", "LoRA"),
        ({"beta": 0.04, "sync_ref_model": True}, "kl", "reference of every second step"),
        ({"beta": 0.04, "sync_ref_model": True, "ref_model_sync_steps": 1}, "kl", "moving reference"),
        ({"off_policy_mask_threshold": 0.5}, "off-policy", "masked"),
        ({"off_policy_mask_threshold": 0}, "off-policy", "masked"),
        ({"vespo_k_pos": 1.0, "loss_type": "vespo"}, "constants", "own"),
        ({"vespo_k_pos": 1.0, "loss_type": "sapo"}, "constants", "default"),
        ({"sapo_temperature_neg": 1.05, "loss_type": "sapo"}, "constants", "default"),
        ({"vllm_importance_sampling_clip_min": 0.5}, "constants", "default"),
        (
            {"use_vllm": True, "vllm_mode": "server", "vllm_importance_sampling_clip_min": 0.5},
            "constants",
            "default",
        ),
        ({"chat_template_kwargs": "{}"}, "prompts", "chat"),
        ({"use_vllm": True, "vllm_importance_sampling_clip_min": 0.5}, "constants", "own"),
        ({"shuffle_dataset": False}, "order", "as given"),
        ({"dataset_streaming": True}, "order", "streamed"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "prompts", "chat with options"),
        ({"use_adaptive_entropy": True}, "entropy", "adaptive bonus"),
        ({"entropy_coef": 0.01}, "entropy", "bonus"),
        ({"mask_truncated_completions": "true"}, "truncated", "masked"),
        ({"temperature": 0.6, "top_k": 20}, "sampling", "top-k"),
        ({"temperature": 0.6}, "sampling", "cold"),
        ({"use_peft": True, "use_rslora": True}, "adapter", "rank-stabilised"),
        ({"use_peft": True, "load_in_4bit": True}, "adapter", "LoRA on 4-bit"),
        ({"use_peft": True, "load_in_4bit": True, "use_rslora": True}, "adapter", "rank-stabilised"),
        ({"use_peft": True, "load_in_4bit": True, "use_vllm": True}, "adapter", "LoRA"),
        ({"use_peft": True, "load_in_8bit": True}, "adapter", "LoRA"),
        ({"use_peft": True, "lora_modules_to_save": ["lm_head"]}, "adapter", "LoRA, whole head"),
        ({"gradient_checkpointing": False}, "checkpointing", "off"),
        ({"gradient_checkpointing_kwargs": '{"use_reentrant": true}'}, "checkpointing", "reentrant"),
        ({"max_grad_norm": 0}, "gradient norm", "free"),
        ({"save_strategy": "no"}, "saving", "never"),
        ({"eval_strategy": "steps"}, "evaluation", "at start and between"),
        ({"top_entropy_quantile": 0.2}, "entropy", "top quarter"),
        ({"num_generations": 2}, "generations", "2"),
    ],
)
def test_a_setting_has_its_level(settings: dict[str, Any], factor: str, level: str) -> None:
    assert row(**settings)[factor] == level


def test_a_model_has_its_levels() -> None:
    llama = {
        "model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 32.0}, "tie_word_embeddings": True,
    }  # fmt: skip
    found = row(llama)
    chosen = [found[name] for name in ("architecture", "heads", "rope", "embedding")]
    assert chosen == ["llama", "2 on 1 of 32", "llama3", "tied"]
    assert row({"model_type": "qwen2", "num_attention_heads": 12, "rope_theta": 1e6})["rope"] == "base 500"
    five = {"model_type": "qwen3", "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    assert row(five)["rope"] == "base 500"
    assert row({"model_type": "qwen3", "num_attention_heads": "many", "rope_scaling": "odd"})["rope"] == "default"


def test_ranks_and_vllm_bring_factors_of_their_own() -> None:
    assert row(processes=8, zero=3)["backend"] == "zero3"
    assert row(processes=2)["backend"] == "ddp"
    assert row(use_vllm=True)["correction"] == "sequence_mask"
    assert row(use_vllm=True, vllm_importance_sampling_correction=False)["correction"] == "off"
    assert "correction" not in row(use_vllm=True, vllm_mode="server")


def test_what_no_level_stands_for_is_said() -> None:
    assert notes(bf16=False, learning_rate=1e-6, dataset_name="mine", use_dora=False) == []
    assert "16-bit" in notes()[0]  # TRL's default
    assert notes(bf16=False, use_adaptive_entropy=True, entropy_target=4.0, entropy_coef_delta=0.1) == []
    assert notes(bf16=False, loss_type="mine") == ["loss_type: mine"]
    assert notes(bf16=False, use_dora=True, weight_decay=0.1) == ["use_dora: True", "weight_decay: 0.1"]
    assert "FSDP" in notes(bf16=False, fsdp="full_shard")[0]
    assert "adamw_torch_8bit" in notes(bf16=False, optim="adamw_torch_8bit")[0]
    assert "vespo" in notes(bf16=False, use_vllm=True, loss_type="vespo")[0]
    assert notes(bf16=False, use_vllm=True, loss_type="vespo", vllm_importance_sampling_mode="token_mask") == []
    assert "VETTED-0170" in notes(bf16=False, beta=0.1, sync_ref_model=True, use_bias_correction_kl=False)[0]
    least: dict[str, Any] = {"use_vllm": True, "vllm_importance_sampling_clip_min": 0.5}
    assert "least importance" in notes(bf16=False, loss_type="sapo", **least)[0]
    assert notes(bf16=False, loss_type="sapo", sapo_temperature_pos=0.5, **least) == []
    assert "gemma2" in notes({"model_type": "gemma2"})[0]
    said = "; ".join(notes(optim="paged_adamw_8bit", lr_scheduler_type="cosine", load_in_8bit=True, fp16=True))
    assert all(word in said for word in ("paged_adamw_8bit", "cosine", "quantised", "16-bit"))


def test_pairs_that_no_run_can_have_are_resolved_and_said() -> None:
    assert row(beta=0.1, sync_ref_model=True, use_peft=True)["kl"] == "weighted"
    assert len(notes(bf16=False, beta=0.1, sync_ref_model=True, use_peft=True)) == 1
    whole: dict[str, Any] = {"use_peft": True, "lora_modules_to_save": "lm_head"}
    tied = {"model_type": "qwen2", "tie_word_embeddings": True}
    assert row(tied, **whole)["adapter"] == "LoRA"
    assert len(notes(tied, bf16=False, **whole)) == 1


@pytest.mark.parametrize(
    ("settings", "processes", "level"),
    [
        ({"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}, 1, "one completion"),
        ({"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}, 1, "six completions"),
        ({"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}, 2, "six completions"),
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8}, 1, "six completions"),
        ({"gradient_accumulation_steps": 8}, 1, "six completions"),
    ],
)
def test_a_batch_of_one_is_trained_one_by_one(settings: dict[str, Any], processes: int, level: str) -> None:
    chosen = row(None, processes, **settings)
    assert chosen["micro-batch"] == level
    assert level == "six completions" or chosen["generations"] == "2"


VALUES: dict[str, tuple[Any, ...]] = {
    "loss_type": ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo", "other"),
    "importance_sampling_level": ("token", "sequence", 3),
    "gradient_accumulation_steps": (1, 2, 3, 8, "x"),
    "per_device_train_batch_size": (None, 1, 8),
    "steps_per_generation": (None, 1, 2, 16),
    "num_iterations": (1, 2, 4),
    "delta": (None, 1.5),
    "epsilon_high": (None, 0.28),
    "scale_rewards": (True, False, "group", "batch", "none", "odd"),
    "beta": (0.0, 0.04, "1e-3"),
    "sync_ref_model": (True, False),
    "temperature": (0.7, 1.0, 1.2),
    "top_k": (0, 50),
    "min_p": (None, 0.1),
    "use_peft": (True, False),
    "gradient_checkpointing_kwargs": (None, {"use_reentrant": True}, "{", "[]"),
    "use_vllm": (True, False),
    "vllm_importance_sampling_mode": (None, "token_mask", "odd"),
    "off_policy_mask_threshold": (None, 0.5, "odd"),
    "shuffle_dataset": (True, False),
    "use_adaptive_entropy": (True, False),
    "vespo_k_neg": (None, 3.0, 1),
    "save_strategy": ("no", False, "steps", "epoch"),
    "num_generations": (2, 4, 8, float("inf"), [], {}),
    "generation_batch_size": (None, "1e400", 64),
    "model": ({}, {"model_type": "phi3", "num_attention_heads": 32}, {"model_type": "qwen3", "rope_scaling": "odd"}),
}


def test_whatever_is_set_the_row_has_levels_that_a_run_can_have() -> None:
    draw = random.Random(1)
    known = {**levels.FACTORS, **levels.SAMPLER_FACTORS, **levels.RANK_FACTORS}
    for factor in levels.FACTORS:
        known[factor] = levels.FACTORS[factor]
    for _ in range(2000):
        settings = {name: draw.choice(values) for name, values in VALUES.items()}
        model, processes = settings.pop("model"), draw.choice((1, 2, 8))
        found = row(model, processes, draw.choice((0, 2, 3)), **settings)
        assert found.keys() >= levels.FACTORS.keys()
        assert all(level in known[factor] for factor, level in found.items()), found
        for first, second, reason in levels.IMPOSSIBLE:
            assert not (found.get(first[0]) == first[1] and found.get(second[0]) == second[1]), reason
        assert factors.micro_batches(found) > 0
        assert factors.options(found)["loss_type"] == found["loss"]


def test_the_suite_has_every_level_that_is_named_here_and_no_other() -> None:
    assert levels.FACTORS["loss"] == combination.LOSSES
    assert levels.FACTORS["architecture"] == model_levels.ARCHITECTURES
    assert {*combination.CORRECTIONS, "off"} == set(levels.SAMPLER_FACTORS["correction"])
    assert {*model_levels.ROPES, "base 500"} == set(levels.FACTORS["rope"])
    assert set(combination.SCALES.values()) == set(levels.FACTORS["scale"])


def test_what_counts_as_read_is_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a setting would be left out without a word, or listed although it is judged."""
    read: set[str] = set()
    get = Configuration.get

    def noting(own: Configuration, name: str, default: Any) -> Any:
        read.add(name)
        return get(own, name, default)

    monkeypatch.setattr(Configuration, "get", noting)
    every: tuple[dict[str, Any], ...] = (
        {},
        {"beta": 1, "sync_ref_model": True},
        {"use_peft": True},
        {"use_vllm": True},
    )
    for settings in every:
        combination.row(Configuration("my.yaml", settings))
        combination.row(Configuration("my.yaml", settings, processes=2))
    combination.row(Configuration("my.yaml", {"generation_batch_size": 8, "top_entropy_quantile": 0.2}))
    # The rest decides on the processes and on the probes.
    assert combination.READ - read == {"deepspeed", "num_processes", "dataloader_num_workers"}
    assert read <= combination.READ
