"""A user's configuration: where its model is, how many processes it has, and which probes it leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.base import errors
from builder.certify import catalogue, configuration
from builder.certify.configuration import Configuration
from tests.conftest import ROOT

QWEN = {"model_type": "qwen2", "num_attention_heads": 12}


def write(folder: Path, text: str) -> Path:
    (folder / "my.yaml").write_text(text)
    return folder / "my.yaml"


def test_the_model_is_found_beside_the_config_and_in_the_hubs_cache(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(QWEN))
    found = configuration.read(write(tmp_path, "model_name_or_path: model\nlearning_rate: 1e-6\n"), environ={})
    assert (found.model, found.model_file) == (QWEN, str(tmp_path / "model/config.json"))
    assert found.number("learning_rate", 0) == 1e-6

    cache = tmp_path / "hub" / "models--Qwen--Qwen2.5-1.5B"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs/main").write_text("abc")
    (cache / "snapshots/abc").mkdir(parents=True)
    (cache / "snapshots/abc/config.json").write_text(json.dumps(QWEN))
    config = write(tmp_path, "model_name_or_path: Qwen/Qwen2.5-1.5B\n")
    assert configuration.read(config, environ={"HF_HUB_CACHE": str(tmp_path / "hub")}).model == QWEN
    assert configuration.read(config, environ={"HF_HUB_CACHE": str(tmp_path)}).model == {}


@pytest.mark.parametrize(
    ("config", "model", "words"),
    [
        ("a: [1", None, "this is not YAML"),
        (None, None, "No such file"),
        ("beta: 0", "[]", "no model_type"),
        ("beta: 0", "{", "not JSON"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, config: str | None, model: str | None, words: str) -> None:
    file = tmp_path / "my.yaml" if config is None else write(tmp_path, config)
    if model is not None:
        (tmp_path / "config.json").write_text(model)
    with pytest.raises(errors.BadInputError, match=words):
        configuration.read(file, tmp_path / "config.json" if model is not None else None, environ={})


@pytest.mark.parametrize(
    ("text", "processes", "zero"),
    [
        ("beta: 0", 1, 0),
        ("num_processes: 4", 4, 0),
        ("num_processes: 4.0", 4, 0),
        ("num_processes: .inf", 1, 0),
        ("deepspeed: {zero_optimization: {stage: .inf}}", 1, 0),
        ('model_name_or_path: "a\\0b"', 1, 0),
        (f"model_name_or_path: {'a' * 300}", 1, 0),
        ("accelerate_config: zero3", 2, 3),
        ("accelerate_config: single_gpu", 1, 0),
        ("accelerate_config: mine.yaml", 8, 2),
        ("deepspeed: ds.json", 1, 3),
    ],
)
def test_processes_and_zero_are_those_of_the_launcher(tmp_path: Path, text: str, processes: int, zero: int) -> None:
    (tmp_path / "mine.yaml").write_text(
        "num_processes: 8\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
    )
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    found = configuration.read(write(tmp_path, text), environ={})
    assert (found.processes, found.zero) == (processes, zero)


def left_out(**settings: object) -> dict[str, str]:
    special = {name: settings.pop(name) for name in ("processes", "zero") if name in settings}
    own = Configuration("my.yaml", settings, **special)  # type: ignore[arg-type]
    return configuration.left_out(catalogue.read(ROOT / "smoke"), own)


def test_a_plain_run_leaves_out_what_it_does_not_use() -> None:
    reasons = left_out()
    assert reasons["interactions"] == "own-options runs your combination"
    assert reasons["grpo-vllm-colocate"] == "no vLLM"
    assert reasons["grpo-zero3"] == reasons["zero2-equivalence"] == "no DeepSpeed"
    assert reasons["grpo-qlora"] == "no 4-bit weights"
    assert reasons["ddp-equivalence"] == "one process"
    assert reasons["eval-during-training"] == "no evaluation"
    assert not {"imports", "loss-parity", "stop-tokens", "checkpoint-resume", "grpo-bf16-recipe"} & reasons.keys()


def test_what_a_run_uses_is_asked() -> None:
    assert "grpo-vllm-colocate" not in left_out(use_vllm=True)
    assert left_out(use_vllm=True)["vllm-sleep-mode"] == "vLLM does not sleep"
    three = left_out(processes=8, zero=3)
    assert not {"zero3-equivalence", "uneven-ranks", "ddp-equivalence", "zero3-hooks"} & three.keys()
    assert three["zero2-equivalence"] == "ZeRO-3"
    used = left_out(load_in_4bit=True, beta=0.1, eval_strategy="steps", dataloader_num_workers=2, fp16=True)
    assert not {"grpo-qlora", "kl-reference", "eval-during-training", "dataloader-workers"} & used.keys()
    assert used["grpo-bf16-recipe"] == "no bfloat16"
    assert left_out(save_strategy=False)["checkpoint-resume"] == "no checkpoints"
