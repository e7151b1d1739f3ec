"""What DeepSpeed, FSDP and accelerate are told, wherever it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.config import sharding
from runtime.config.sharding import Sharding

ZERO3 = {
    "zero_optimization": {
        "stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"},
    }
}  # fmt: skip
ACCELERATE = """\
distributed_type: {kind}
mixed_precision: bf16
deepspeed_config: {{zero_stage: 2, offload_optimizer_device: none, offload_param_device: cpu}}
fsdp_config: {{fsdp_offload_params: true}}
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Sharding()),
        ({"deepspeed": "ds.json"}, Sharding(stage=3, cpu_optimizer=True)),
        ({"deepspeed": json.dumps(ZERO3)}, Sharding(stage=3, cpu_optimizer=True)),
        ({"deepspeed": ZERO3}, Sharding(stage=3, cpu_optimizer=True)),
        ({"deepspeed": {}}, Sharding()),
        ({"deepspeed": {"bf16": {}}}, Sharding(stage=0)),
        ({"fsdp": "full_shard auto_wrap"}, Sharding(fsdp=True)),
        ({"fsdp": ["full_shard", "offload"]}, Sharding(fsdp=True, cpu_weights=True)),
        ({"fsdp": "no_shard"}, Sharding()),
    ],
)
def test_options_of_the_trainer_are_read(tmp_path: Path, settings: dict[str, Any], expected: Sharding) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(ZERO3))
    assert sharding.read(settings, {}, tmp_path) == expected


@pytest.mark.parametrize(
    ("launcher", "expected"),
    [
        ({"use_deepspeed": None, "zero_stage": "3"}, Sharding(stage=3)),
        ({"use_deepspeed": None}, Sharding(stage=2)),
        ({"use_deepspeed": None, "deepspeed_config_file": "ds.json"}, Sharding(stage=3, cpu_optimizer=True)),
        ({"use_fsdp": None, "fsdp_offload_params": "true"}, Sharding(fsdp=True, cpu_weights=True)),
        ({"zero_stage": "3"}, Sharding()),  # without use_deepspeed it has no effect
        ({"num_processes": "2", "mixed_precision": "bf16"}, Sharding(mixed="bf16")),
    ],
)
def test_options_of_the_launcher_are_read(tmp_path: Path, launcher: dict[str, str | None], expected: Sharding) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(ZERO3))
    assert sharding.read({}, launcher, tmp_path) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("DEEPSPEED", Sharding(stage=2, cpu_weights=True, mixed="bf16")),
        ("FSDP", Sharding(fsdp=True, cpu_weights=True, mixed="bf16")),
        ("MULTI_GPU", Sharding(mixed="bf16")),
    ],
)
def test_a_config_of_accelerate_is_read(tmp_path: Path, kind: str, expected: Sharding) -> None:
    (tmp_path / "accelerate.yaml").write_text(ACCELERATE.format(kind=kind))
    assert sharding.read({}, {"accelerate_config": "accelerate.yaml"}, tmp_path) == expected


@pytest.mark.parametrize("text", ["", "[", "[]", "3", "{" * 100_000])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    assert sharding.read({"deepspeed": "file"}, {}, tmp_path) == Sharding()
    assert sharding.read({"deepspeed": "missing"}, {}, tmp_path) == Sharding()
    for stage in ("auto", float("inf"), float("nan")):
        assert sharding.read({"deepspeed": {"zero_optimization": {"stage": stage}}}, {}, tmp_path) == Sharding()
    assert sharding.read({}, {"accelerate_config": "file"}, tmp_path) == Sharding()
