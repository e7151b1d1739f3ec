"""What configurations, scripts and command lines tell of a run."""

from __future__ import annotations

import pytest

from doctor.read import context
from doctor.read.context import RunContext


@pytest.mark.parametrize(
    "text",
    [
        "zero_optimization:\n  stage: 3\nzero_stage: 3\nuse_vllm: true\nvllm_mode: colocate\nload_in_4bit: true\n",
        '{"zero_optimization": {"stage": 3}, "use_vllm": true, "vllm_mode": "colocate", "load_in_4bit": true}',
        "accelerate launch --config_file zero3.yaml x.py --use_vllm true --vllm_mode colocate --load_in_4bit true",
        "args = GRPOConfig(use_vllm=True, vllm_mode='colocate')  # zero3\nbnb = BnbConfig(load_in_4bit=True)\n",
    ],
)
def test_a_configuration_a_script_or_a_command_line_tell_the_context(text: str) -> None:
    result = context.read(text)
    assert (result.facts["zero_stage"], result.facts["vllm_mode"], result.facts["quantisation"]) == (
        3,
        "colocate",
        "4bit",
    )


def test_what_a_configuration_does_not_say_is_not_known() -> None:
    assert context.read("learning_rate: 1e-6\nuse_vllm: null\n").facts.get("vllm_mode") in (None, "off")
    assert context.of_options({}).facts == {}
    assert context.read("use_vllm: false").facts["vllm_mode"] == "off"


@pytest.mark.parametrize(
    ("text", "trainer"),
    [
        ("rlhf_type: dpo\n", "DPOTrainer"),  # ms-swift
        ('{"rl": "grpo"}', "GRPOTrainer"),  # axolotl
        ("### method\nstage: kto\n", "KTOTrainer"),  # LLaMA-Factory
        ("trainer: DPO\nzero_optimization:\n  stage: 3\n", "DPOTrainer"),
        ("trainer: RewardTrainer\n", "RewardTrainer"),
        ("stage: pt\nrl: null\n", None),
    ],
)
def test_an_option_of_any_framework_names_the_trainer(text: str, trainer: str | None) -> None:
    assert context.read(text).facts.get("trainer") == ([trainer] if trainer else None)


@pytest.mark.parametrize(
    ("value", "condition", "holds"),
    [
        ("2", ">=2", True),
        (">1", ">=2", True),
        (1, ">=2", False),
        ("True", True, True),
        ("set", ">=1", None),
        ("torch.float32", "float32", True),
        (0.7, "!=1", True),
        (float("inf"), ">=1", None),
    ],
)
def test_an_option_is_compared(value: object, condition: object, holds: bool | None) -> None:
    assert context.compare(value, condition) is holds


def test_the_context_of_a_case_is_its_own() -> None:
    assert RunContext().facts is not RunContext().facts
