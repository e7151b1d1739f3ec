"""The folder of a run that a monitor has seen to its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.monitor import certificate, judge, record

DIGEST = "ab" * 32


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "20261123-101500"
    folder.mkdir(parents=True)
    for step in range(1, 4):
        record.add(folder, 0, {"step": step, "rank": 0, "gradient_angle": 1e-6, "advantage_sum": 0.0, "endless": 0})
    (folder / "config.yaml").write_text("beta: 0\n")
    (folder / "run.json").write_text(json.dumps({"image": f"registry.example/trl@sha256:{DIGEST}", "stack": "tiny"}))
    (folder / "model.safetensors").write_bytes(b"weights")
    summarise(folder)
    assert certificate.write(folder) == "PASSED"
    return folder


def summarise(folder: Path, failure: str = "") -> None:
    """What the monitor writes at the end of training."""
    absent = {"vllm": "no vLLM"}
    outcomes = {result.check.name: result.outcome for result in judge.results(record.read(folder), absent)}
    summary = {
        "absent": absent, "outcomes": outcomes, "failure": failure, "share_of_time": 0.001,
        "versions": {"trl": "1.16.0"},
        "machine": {"cpu": "EPYC", "cores": 2, "gpus": []}, "arguments": {"beta": 0.0},
        "model": {"name": "tiny", "config": DIGEST, "parameters": 100}, "data": {"rows": 4, "sha256": DIGEST},
    }  # fmt: skip
    (folder / record.SUMMARY).write_text(json.dumps(summary))
