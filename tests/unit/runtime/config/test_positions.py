"""Lengths beyond the positions of a model: refused where vLLM refuses them or a table ends, else advice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.check import Check
from tests.unit.runtime.conftest import GOOD

Checks = Callable[..., list[Check]]


def model(**described: Any) -> None:
    Path("model/config.json").write_text(json.dumps({"max_position_embeddings": 512, **described}))


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}


@pytest.mark.parametrize(
    "described",
    [{}, {"model_type": "qwen3"}, {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
     {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}],
)  # fmt: skip
def test_a_model_that_computes_its_positions_is_not_refused(check: Checks, described: dict[str, Any]) -> None:
    model(**described)
    (only,) = check(f"{GOOD}max_completion_length: 1024\n")
    assert only.level == "advice"
    assert only.message == "my.yaml:4: max_completion_length is 1024, but the model has 512 positions"
    assert "give at most 512, or set rope_scaling" in only.next_step


@pytest.mark.parametrize(
    "scaling",
    [
        YARN,
        {"type": "yarn", "factor": 4.0},
        {"type": "linear", "factor": 4},
        {"rope_type": "dynamic", "factor": 4.0},
        {"full_attention": YARN, "sliding_attention": {"rope_type": "default"}},
    ],
)
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_scaled_positions_count(check: Checks, key: str, scaling: dict[str, Any]) -> None:
    model(**{key: scaling})
    assert check(f"{GOOD}max_completion_length: 2048\n") == []
    (only,) = check(f"{GOOD}max_completion_length: 2049\n")
    assert "but the model has 2048 positions" in only.message


@pytest.mark.parametrize("positions", ["max_position_embeddings", "n_positions"])
@pytest.mark.parametrize(("option", "level"), [("max_completion_length", "stop"), ("max_prompt_length", "advice")])
def test_a_table_of_positions_has_an_end(check: Checks, site: Path, positions: str, option: str, level: str) -> None:
    config = site / "trl/trainer/grpo_config.py"
    config.write_text(f"{config.read_text()}    max_prompt_length: int | None = 512\n")
    Path("model/config.json").write_text(json.dumps({"model_type": "gpt2", positions: 512}))
    (only,) = check(f"{GOOD}{option}: 513\n")
    assert (only.level, only.message) == (level, f"my.yaml:4: {option} is 513, but the model has 512 positions")
    assert "give at most 512" in only.next_step


@pytest.mark.parametrize("kind", ["gpt2", "qwen3"])
@pytest.mark.parametrize("script", ["sft", "dpo", "reward", "kto"])
def test_where_texts_are_cut_may_lie_beyond_them(check: Checks, script: str, kind: str) -> None:
    model(model_type=kind)
    Path("train.jsonl").write_text('{"text": "short"}\n')
    text = GOOD.replace("reward_funcs: [rewards.accuracy]", "max_length: 1024")
    (only,) = check(text, script=script)
    assert (only.level, only.message) == ("advice", "my.yaml:3: max_length is 1024, but the model has 512 positions")


@pytest.mark.parametrize(
    ("lines", "described", "levels"),
    [
        ("use_vllm: true", {}, ["stop"]),
        ("use_vllm: true\nvllm_mode: colocate", {"rope_scaling": {"rope_type": "llama3"}}, ["stop"]),
        ("use_vllm: true\nenv: {VLLM_ALLOW_LONG_MAX_MODEL_LEN: 1}", {}, ["advice"]),
        ("use_vllm: true", {"model_max_length": 4096}, ["advice"]),
        ("use_vllm: true", {"rope_scaling": YARN}, []),
        ("use_vllm: true\nvllm_mode: server", {}, []),  # the server has its own
        ("use_vllm: false", {}, []),
    ],
)
def test_vllm_refuses_more_than_a_model_has(
    check: Checks, site: Path, lines: str, described: dict[str, Any], levels: list[str]
) -> None:
    config = site / "trl/trainer/grpo_config.py"
    config.write_text(f"{config.read_text()}    vllm_max_model_length: int | None = None\n")
    model(**described)
    checks = check(f"{GOOD}vllm_max_model_length: 1024\n{lines}\n")
    assert [each.level for each in checks] == levels
    assert all(each.message.startswith("my.yaml:4: vllm_max_model_length is 1024") for each in checks)


def test_with_vllm_a_completion_ends_at_the_last_position(check: Checks) -> None:
    model(model_type="opt")
    assert [each.level for each in check(f"{GOOD}max_completion_length: 1024\nuse_vllm: true\n")] == ["advice"]
