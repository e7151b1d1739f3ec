"""A user's own configuration, with the real packages: a twin of the model, the options together, and few probes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from builder.certify import combination, configuration, own
from builder.certify.certify import Options
from builder.certify.configuration import Configuration
from builder.certify.own import Examination
from tests.engine.conftest import Workshop

CONFIG = """\
model_name_or_path: model
loss_type: {loss}
beta: 0.04
use_peft: true
gradient_accumulation_steps: 4
num_iterations: 2
lr_scheduler_type: cosine
"""
MODEL = {
    "model_type": "{kind}", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768, "vocab_size": 151936, "max_position_embeddings": 40960,
}  # fmt: skip
ASKED = ("imports", "logprob-padding")


def examined(depot: Workshop, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, loss: str) -> Examination:
    """The report on a config, with two of the probes that apply to it."""
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(MODEL | {"model_type": kind}))
    (folder / "my.yaml").write_text(CONFIG.format(loss=loss))
    every = configuration.left_out
    monkeypatch.setattr(
        configuration,
        "left_out",
        lambda probes, mine: (
            {probe.name: "for the test" for probe in probes if probe.name not in ASKED} | every(probes, mine)
        ),
    )
    given = configuration.read(folder / "my.yaml")
    with depot.project.holding("trl1.16-cpu") as scratch:
        options = Options("cpu", "host")
        return own.examine(depot.project, depot.lock, options, given, scratch, lambda _: None, lambda _: None)


def test_a_good_one_passes(depot: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = examined(depot, tmp_path, monkeypatch, "qwen3_moe", "dr_grpo")
    assert {result.name: result.outcome for result in report.results} == {
        "own-architecture": "passed", "own-options": "passed", "imports": "passed", "logprob-padding": "passed",
    }  # fmt: skip
    assert report.passed
    assert report.left_out["grpo-vllm-colocate"] == "no vLLM"
    written = report.to_json()
    assert (written["result"], written["combination"]["loss"]) == ("PASSED", "dr_grpo")
    assert any("cosine" in what for what in written["not_judged"])


def test_a_model_that_this_transformers_does_not_know_is_red(
    depot: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = examined(depot, tmp_path, monkeypatch, "qwen99", "grpo")
    outcomes = {result.name: result for result in report.results}
    assert not report.passed
    assert "does not know the model type qwen99" in (outcomes["own-architecture"].reason or "")
    assert outcomes["own-options"].outcome == "passed"


DEFAULTS = """
import dataclasses, json
from trl import GRPOConfig, ModelConfig
fields = (field for kind in (GRPOConfig, ModelConfig) for field in dataclasses.fields(kind))
print(json.dumps({f.name: f.default for f in fields if isinstance(f.default, (bool, int, float, str))}))
"""


def test_what_is_not_set_is_taken_for_trls_default(python: Path, tmp_path: Path) -> None:
    output = subprocess.run([python, "-c", DEFAULTS], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    defaults = json.loads(output.splitlines()[-1])
    assert len(defaults) > 100
    plain, _ = combination.row(Configuration("my.yaml", {}))
    for more in ({}, {"beta": 0.1}, {"use_peft": True}, {"use_vllm": True}):
        assert (
            combination.row(Configuration("my.yaml", defaults | more))[0]
            == combination.row(Configuration("my.yaml", more))[0]
        )
    assert plain["loss"] == defaults["loss_type"]
