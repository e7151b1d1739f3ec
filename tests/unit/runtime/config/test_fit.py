"""The line that says how much memory a run takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.config import fit
from runtime.config.options import Option
from runtime.config.run import Machine, Run
from runtime.config.sharding import Sharding

MODEL = {
    "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 9728, "vocab_size": 151936, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "model_name_or_path": None, "dtype": "float32", "bf16": None, "fp16": False, "gradient_checkpointing": True,
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "max_completion_length": 512, "beta": 0.0,
    "use_vllm": False, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3, "vllm_enable_sleep_mode": False,
    "use_peft": False, "lora_r": 16, "lora_target_modules": None, "load_in_4bit": False, "steps_per_generation": None,
    "optim": "adamw_torch_fused", "use_liger_kernel": False,
}  # fmt: skip
Look = Callable[..., str]


def gib(text: str) -> float:
    """The estimate in a line."""
    match = re.search(r"about ([0-9.]+)", text)
    assert match is not None, text
    return float(match[1])


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """The line for these settings; empty where there is none."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(MODEL))
    trainer = tmp_path / "site/trl/trainer/grpo_trainer.py"
    trainer.parent.mkdir(parents=True)
    trainer.write_text("add_fused_lm_head(self.model)\n")

    def line(settings: dict[str, Any], memory: int | None = None, trainer: str = "grpo", **run: Any) -> str:
        options = {name: Option(name, "", default) for name, default in DEFAULTS.items()}
        started = Run(trainer, {"model_name_or_path": "model", **settings}, options, **run)
        machine = Machine(memory=None if memory is None else memory << 30)
        return "".join(map(str, fit.look(started, machine, tmp_path / "site", tmp_path, {})))

    return line


def test_the_line_has_the_parts_with_the_largest_first(look: Look) -> None:
    assert look({}) == "about 69 GiB: optimizer 30, weights 22, gradients 15, activations 1.8"
    assert look({}, 80) == "about 69 of 80 GiB: optimizer 30, weights 22, gradients 15, activations 1.8"


def test_a_tiny_model_takes_next_to_nothing(look: Look, tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 100, "head_dim": 16}
    (tmp_path / "model/config.json").write_text(json.dumps({**MODEL, **sizes}))
    assert look({}, 80) == "less than 0.1 GiB"


def test_what_may_not_fit_has_options_that_take_less(look: Look) -> None:
    first, *others = look({"gradient_checkpointing": False, "use_vllm": True}, 80).splitlines()
    assert first.startswith("it may not fit: about 1")
    names = [other.split(":")[0].strip() for other in others]
    assert names == ["gradient_checkpointing", "vllm_enable_sleep_mode", "per_device_train_batch_size", "optim",
                     "use_peft", "load_in_4bit"]  # fmt: skip
    assert all(gib(other) < gib(first) for other in others)
    assert "accelerate_config: zero3 takes about" in look({}, 24, ranks=8)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"use_peft": True, "load_in_4bit": True}, {"use_peft": True}),
        ({"use_peft": True}, {"optim": "adamw_8bit"}),
        ({"use_peft": True}, {"use_peft": True, "lora_r": 512, "lora_target_modules": ["all-linear"]}),
        ({"optim": "paged_adamw_8bit"}, {"optim": "adamw_8bit"}),
        ({"optim": "sgd"}, {"optim": "adamw_8bit"}),
        ({"optim": "adamw_8bit"}, {}),
        ({}, {"optim": "adamw_torch", "gradient_accumulation_steps": 2}),
        ({"dtype": "bfloat16"}, {}),
        ({"dtype": "auto"}, {}),  # the checkpoint's type
        ({"model_init_kwargs": {"torch_dtype": "bfloat16"}}, {}),
        ({}, {"beta": 0.04}),
        ({"beta": 0.04, "use_peft": True}, {"beta": 0.04}),
        ({"per_device_train_batch_size": 64}, {"per_device_train_batch_size": 64, "max_completion_length": 4096}),
        (
            {"use_peft": True, "gradient_accumulation_steps": 16, "use_vllm": True, "vllm_mode": "server"},
            {"use_peft": True, "gradient_accumulation_steps": 64},  # the model itself generates all of them at once
        ),
    ],
)
def test_options_count(look: Look, less: dict[str, Any], more: dict[str, Any]) -> None:
    assert gib(look(less)) < gib(look(more))


def test_an_adapter_is_its_own_reference(look: Look) -> None:
    assert look({"use_peft": True, "beta": 0.04}) == look({"use_peft": True})


def test_logits_count_where_this_trl_has_them_as_a_whole(look: Look, tmp_path: Path) -> None:
    fused = look({"per_device_train_batch_size": 32})
    (tmp_path / "site/trl/trainer/grpo_trainer.py").write_text("# another release\n")
    assert "logits" in look({"per_device_train_batch_size": 32})
    assert look({"per_device_train_batch_size": 32, "use_liger_kernel": True}) == fused


def test_vllm_takes_its_share_and_gives_it_back_when_it_sleeps(look: Look) -> None:
    assert "vLLM 24" in look({"use_vllm": True}, 80)
    asleep = {"use_vllm": True, "vllm_enable_sleep_mode": True}
    assert gib(look(asleep, 80)) < gib(look({"use_vllm": True}, 80))
    assert "vLLM" not in look({"use_vllm": True, "vllm_mode": "server"}, 80)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"sharding": Sharding(stage=3)}, {"sharding": Sharding(stage=2)}),
        ({"sharding": Sharding(stage=2)}, {"sharding": Sharding(stage=1)}),
        ({"sharding": Sharding(stage=1)}, {"sharding": Sharding(stage=0)}),
        ({"sharding": Sharding(fsdp=True)}, {}),
        ({"sharding": Sharding(fsdp=True, cpu_weights=True)}, {"sharding": Sharding(fsdp=True)}),
        ({"sharding": Sharding(stage=2, cpu_optimizer=True)}, {"sharding": Sharding(stage=2)}),
    ],
)
def test_what_is_divided_takes_less(look: Look, less: dict[str, Any], more: dict[str, Any]) -> None:
    assert gib(look({}, ranks=8, **less)) < gib(look({}, ranks=8, **more))


def test_other_trainers_have_other_lengths(look: Look) -> None:
    assert look({}, trainer="sft") == ""  # its max_length is not known here
    assert "logits" in look({"max_length": 1024}, trainer="sft")
    with_reference, without = ({"max_length": 1024, "use_peft": peft} for peft in (False, True))
    assert "reference" in look(with_reference, trainer="dpo")
    assert "reference" not in look(without, trainer="dpo")


def test_a_model_in_the_cache_of_the_hub_is_found(tmp_path: Path) -> None:
    options = {name: Option(name, "", default) for name, default in DEFAULTS.items()}
    run = Run("grpo", {"model_name_or_path": "Qwen/Qwen3-4B"}, options)
    environ = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    assert fit.look(run, Machine(), tmp_path, tmp_path, environ) == []
    folder = tmp_path / "hub/models--Qwen--Qwen3-4B"
    (folder / "snapshots/abc").mkdir(parents=True)
    (folder / "snapshots/abc/config.json").write_text(json.dumps(MODEL))
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text("abc")
    assert len(fit.look(run, Machine(), tmp_path, tmp_path, environ)) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"model_name_or_path": "nowhere"},
        {"max_completion_length": "many"},
        {"lora_r": "x", "use_peft": True, "per_device_train_batch_size": "x"},
        {"gradient_accumulation_steps": "x", "generation_batch_size": [1], "vllm_gpu_memory_utilization": "x"},
        {"model_init_kwargs": "text", "lora_target_modules": 3, "use_peft": True},
        {"per_device_train_batch_size": "inf"},
        {"model_name_or_path": "model\x00"},
        {"model_name_or_path": None},
    ],
)
def test_values_that_make_no_sense_are_no_traceback(look: Look, settings: dict[str, Any]) -> None:
    look(settings, 80)
