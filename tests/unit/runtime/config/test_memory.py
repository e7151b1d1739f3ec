"""The estimate of GPU memory, against what is published, and against what must hold of any estimate."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import memory as benchmark
from runtime.config import architecture, memory
from runtime.config.memory import Job

DOCUMENT = json.loads(benchmark.PEAKS.read_bytes())
MODELS: dict[str, Any] = DOCUMENT["models"]
JOB = Job(architecture.of_config(MODELS["Qwen/Qwen3-4B-Instruct-2507"]), tokens=8192, scored=8192)


def total(job: Job) -> float:
    return sum(memory.peak(job).values())


def errors(source: str) -> list[float]:
    rows = [row for row in DOCUMENT["runs"] if row["source"] == source]
    return [abs(error) for error, _ in benchmark.errors(rows, MODELS)]


@pytest.mark.parametrize(
    ("source", "runs", "median", "worst"),
    [("prime-rl, January 2026", 51, 0.05, 0.15), ("fms-acceleration", 32, 0.08, 0.22)],
)
def test_the_error_against_published_peaks_is_as_stated(source: str, runs: int, median: float, worst: float) -> None:
    misses = errors(source)
    assert len(misses) == runs
    assert statistics.median(misses) <= median
    assert max(misses) <= worst


def test_the_page_states_the_error_that_is_measured() -> None:
    page = benchmark.PAGE.read_text(encoding="utf-8")
    assert benchmark.BEGIN in page
    assert benchmark.page(page, benchmark.table(DOCUMENT)) == page


@pytest.mark.parametrize(
    ("name", "parameters"),  # as their cards state, in billions
    [
        ("Qwen/Qwen3-0.6B", 0.596), ("Qwen/Qwen3-4B-Instruct-2507", 4.02), ("Qwen/Qwen3-30B-A3B-Instruct-2507", 30.5),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", 235.1), ("PrimeIntellect/INTELLECT-3", 106.9),
        ("mistralai/Mistral-7B-v0.1", 7.24), ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.7),
        ("NousResearch/Llama-2-70b-hf", 68.98), ("ibm/PowerLM-3b", 3.51),
    ],
)  # fmt: skip
def test_parameters_are_counted_from_a_config(name: str, parameters: float) -> None:
    assert architecture.of_config(MODELS[name]).parameters == pytest.approx(parameters * 1e9, rel=0.003)


def test_parameters_are_counted_in_the_files_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODELS["Qwen/Qwen3-0.6B"]))
    header = json.dumps({"__metadata__": {}, "a": {"dtype": "BF16", "shape": [1000, 10]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    shape = architecture.read(tmp_path)
    assert shape is not None and shape.parameters == 10_000
    packed = header.replace(b"BF16", b"U8")
    (tmp_path / "model.safetensors").write_bytes(len(packed).to_bytes(8, "little") + packed)
    shape = architecture.read(tmp_path)
    assert shape is not None and shape.parameters > 10_000


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 100_000, '{"n_embd": 768}', '{"hidden_size": "x"}',
     json.dumps({**MODELS["Qwen/Qwen3-0.6B"], "num_attention_heads": 0, "head_dim": None}),
     json.dumps({**MODELS["Qwen/Qwen3-0.6B"], "hidden_size": -1})],
)  # fmt: skip
def test_a_model_of_another_kind_has_no_sizes(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert architecture.read(tmp_path) is None


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (JOB, replace(JOB, checkpointing=False)),
        (JOB, replace(JOB, tokens=16384, scored=16384)),
        (replace(JOB, scored=0), JOB),
        (replace(JOB, columns=2048), JOB),
        (replace(JOB, adapter=10**7), JOB),
        (replace(JOB, adapter=10**7, weight=2, linear=0.53), replace(JOB, adapter=10**7, weight=2)),
        (replace(JOB, weight=2, gradient=2, state=4), JOB),
        (replace(JOB, state=2), JOB),
        (JOB, replace(JOB, reference=4)),
        (replace(JOB, accumulated=False), JOB),
        (replace(JOB, vllm=2e10, sleeps=True), replace(JOB, vllm=2e10)),
        (replace(JOB, state_ranks=8), JOB),
        (replace(JOB, state_ranks=8, gradient_ranks=8), replace(JOB, state_ranks=8)),
        (
            replace(JOB, state_ranks=8, gradient_ranks=8, weight_ranks=8, gathered=True),
            replace(JOB, state_ranks=8, gradient_ranks=8),
        ),
        (JOB, replace(JOB, cached=10**6)),
    ],
)
def test_what_takes_less_is_estimated_as_less(less: Job, more: Job) -> None:
    assert total(less) < total(more)


def test_the_parts_are_those_of_one_phase() -> None:
    asleep = replace(JOB, scored=0, vllm=60e9, sleeps=True)
    assert memory.peak(asleep)["vLLM"] == 60e9
    assert "gradients" not in memory.peak(asleep)  # there are none while vLLM generates
    assert memory.peak(replace(asleep, vllm=1e9))["vLLM"] == 0
