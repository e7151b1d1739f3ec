"""Advisories that `vetted use` wrote, against the options of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime import verdict
from runtime.config import advisories
from runtime.config.options import Option
from runtime.config.run import Machine, Run
from runtime.config.sharding import Sharding

IMAGE = {"stack": "tiny", "lock": "sha256:1"}
ENTRY = {
    "id": "VETTED-0001", "level": "stop", "trainers": ["grpo"], "summary": "It breaks", "harm": "such a run fails",
    "remedy": "beta=0", "when": "beta >=1", "conditions": {"flags": {"beta": ">=1"}},
}  # fmt: skip
OPTIONS = {
    name: Option(name, "str | None", default)
    for name, default in (
        ("use_vllm", False), ("vllm_mode", "colocate"), ("bf16", None), ("fp16", False), ("temperature", 1.0),
        ("gradient_checkpointing", True), ("load_in_4bit", False),
    )
}  # fmt: skip
Look = Callable[..., list[str]]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """The messages for entries with these conditions, and these settings."""

    def messages(
        conditions: dict[str, Any], settings: dict[str, Any], machine: Machine | None = None, **run: Any
    ) -> list[str]:
        path = tmp_path / verdict.FOLDER / advisories.FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**IMAGE, "advisories": [{**ENTRY, "conditions": conditions}]}))
        started = Run("grpo", settings, OPTIONS, **run)
        return [check.level for check in advisories.look(started, machine or Machine(), IMAGE, tmp_path)]

    return messages


@pytest.mark.parametrize(
    ("conditions", "settings", "run"),
    [
        ({"flags": {"beta": ">=1"}}, {"beta": 2}, {}),
        ({"flags": {"beta": ">=1"}}, {"beta": "1e0"}, {}),
        ({"flags": {"temperature": "!=1"}}, {"temperature": 0.7}, {}),
        ({"flags": {"use_peft": True}}, {"use_peft": "yes"}, {}),
        ({"flags": {"gradient_checkpointing": True}, "vllm_mode": ["off"]}, {}, {}),  # both by default
        ({"flags": {"bf16": True}}, {}, {}),  # TRL's rule: unless fp16
        ({"flags": {"dtype": "float32"}}, {"dtype": "torch.float32"}, {}),
        ({"vllm_mode": ["server", "colocate"]}, {"use_vllm": True}, {}),
        ({"quantisation": ["4bit"]}, {"load_in_4bit": True}, {}),
        ({"zero_stage": [2, 3], "processes": ">=2"}, {}, {"sharding": Sharding(stage=3), "ranks": 2}),
        ({"launcher": ["torchrun"]}, {}, {"launcher": "torchrun"}),
        ({"python": ">=3.9"}, {}, {}),
        ({"gpus": "<2"}, {}, {}),
    ],
)
def test_what_is_known_to_hold_is_said(
    look: Look, conditions: dict[str, Any], settings: dict[str, Any], run: dict[str, Any]
) -> None:
    assert look(conditions, settings, **run) == ["stop"]


@pytest.mark.parametrize(
    ("conditions", "settings", "run"),
    [
        ({"flags": {"beta": ">=1"}}, {"beta": 0.5}, {}),
        ({"flags": {"beta": ">=1"}}, {}, {}),  # not set, and no option of this release
        ({"flags": {"beta": ">=1"}}, {"beta": "much"}, {}),
        ({"flags": {"bf16": True}}, {"fp16": True}, {}),
        ({"flags": {"temperature": "!=1"}}, {}, {}),
        ({"flags": {"fast_inference": False}}, {}, {}),
        ({"vllm_mode": ["off"]}, {"use_vllm": True}, {}),
        ({"zero_stage": [0, 1, 2, 3]}, {}, {"ranks": 8}),
        ({"zero_stage": [3], "processes": ">=2"}, {}, {"sharding": Sharding(stage=3)}),
        ({"driver": "<600"}, {}, {}),
        ({"something_new": ["x"]}, {}, {}),
        ({"flags": {"beta": ">=1"}, "note": "only a person knows"}, {"beta": 2}, {}),
    ],
)
def test_what_is_not_known_to_hold_is_not_said(
    look: Look, conditions: dict[str, Any], settings: dict[str, Any], run: dict[str, Any]
) -> None:
    assert look(conditions, settings, **run) == []


def test_a_model_of_gpu_is_a_whole_word(look: Look) -> None:
    conditions = {"gpu_model": ["H20"]}
    assert look(conditions, {}, Machine(("NVIDIA H20",))) == ["stop"]
    assert look(conditions, {}, Machine(("NVIDIA H200",))) == []


def test_a_finding_names_the_advisory_the_options_and_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / verdict.FOLDER / advisories.FILE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**IMAGE, "advisories": [ENTRY, ENTRY]}))
    (only,) = advisories.look(Run("grpo", {"beta": 1}), Machine(), IMAGE, tmp_path)
    assert str(only) == ("VETTED-0001: It breaks\n         such a run fails (beta >=1)\n         beta=0")
    assert advisories.look(Run("sft", {"beta": 1}), Machine(), IMAGE, tmp_path) == []
    assert advisories.look(Run("grpo", {"beta": 1}), Machine(), {**IMAGE, "lock": "sha256:2"}, tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "[" * 100_000, "{}", json.dumps({**IMAGE, "advisories": None}),
        json.dumps({**IMAGE, "advisories": [None]}), json.dumps({**IMAGE, "advisories": [{"id": "x"}]}),
        json.dumps({**IMAGE, "advisories": [{**ENTRY, "conditions": {"processes": "many"}}]}),
        json.dumps({**IMAGE, "advisories": [{**ENTRY, "conditions": {"processes": 3}}]}),
        json.dumps({**IMAGE, "advisories": [{**ENTRY, "conditions": {"flags": 3}}]}),
        json.dumps({**IMAGE, "advisories": [{**ENTRY, "remedy": "\x1b[2J"}]}),
        json.dumps({**IMAGE, "advisories": [{**ENTRY, "when": None}]}),
    ],
)  # fmt: skip
def test_a_missing_or_broken_file_says_nothing(tmp_path: Path, text: str) -> None:
    run = Run("grpo", {"beta": 1})
    assert advisories.look(run, Machine(), IMAGE, tmp_path) == []
    path = tmp_path / verdict.FOLDER / advisories.FILE
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert advisories.look(run, Machine(), IMAGE, tmp_path) == []
