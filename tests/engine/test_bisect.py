"""Bisection of what really broke: an upgrade of Transformers that made TRL 0.14 score the prompt, among 30 others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from builder.base import tomlfile
from builder.certify import control
from builder.intent.advisory import Advisory
from tests.engine.conftest import Workshop, copy_of_project

CONTROL = "trl0.14-transformers4.52"
# Each the release before that of the control's lock, which is the bad end.
BEFORE = (
    "accelerate==1.14.0 aiohttp==3.14.3 anyio==4.14.2 attrs==25.4.0 certifi==2026.7.22 charset-normalizer==3.5.1 "
    "datasets==5.0.0 filelock==4.2.10 fsspec==2026.4.0 idna==3.19 markdown-it-py==4.2.0 multidict==6.9.1 "
    "networkx==3.6 numpy==2.4.5 packaging==26.2 pandas==3.1.0 propcache==0.5.3 psutil==7.2.1 pyarrow==26.0.0 "
    "pygments==2.20.0 regex==2026.11.9 requests==2.34.1 rich==14.3.4 safetensors==0.7.0 setuptools==84.2.0 "
    "tqdm==4.70.0 transformers==4.51.3 typing-extensions==4.15.0 urllib3==2.7.0 xxhash==4.0.2 yarl==1.24.5"
)
# 25 settings of which two exclude each other, beside what a trial replaces.
SETTINGS = {
    "model_name_or_path": "Qwen/Qwen2.5-7B-Instruct", "dataset_name": "trl-lib/tldr", "output_dir": "out",
    "learning_rate": 1e-6, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
    "gradient_checkpointing": True, "bf16": True, "beta": 0.04, "num_generations": 4, "generation_batch_size": 8,
    "steps_per_generation": 2, "max_completion_length": 1024, "temperature": 0.9, "top_p": 0.95, "epsilon": 0.2,
    "num_iterations": 1, "loss_type": "dapo", "scale_rewards": "group", "mask_truncated_completions": False,
    "lr_scheduler_type": "cosine", "warmup_steps": 1, "weight_decay": 0.01, "max_grad_norm": 0.5, "adam_beta2": 0.95,
    "logging_steps": 1, "seed": 7, "max_steps": 500,
}  # fmt: skip


@pytest.fixture
def planted(tmp_path: Path) -> Workshop:
    """A project without advisories, which would name the culprit before anything ran, and the two ends."""
    workshop = copy_of_project(tmp_path / "project")
    bad = control.load(workshop.project, CONTROL).bad.versions
    good = {**bad, **dict(pin.split("==") for pin in BEFORE.split())}
    for name, versions in (("good.txt", good), ("bad.txt", bad)):
        (workshop.root / name).write_text("".join(f"{key}=={value}\n" for key, value in versions.items()))
    assert len(set(good.items()) - set(bad.items())) == 31
    return workshop


def test_the_upgrade_that_broke_trl_is_named_among_thirty_others(planted: Workshop) -> None:
    ends = ("--good", "good.txt", "--bad", "bad.txt")
    result = planted.json("bisect", "packages", *ends, "--probe", "logprob-agreement")
    assert result["culprits"] == [{"name": "transformers", "good": "4.51.3", "bad": "4.52.4"}]
    assert result["along"] == []
    assert result["fault"] == "out of bounds: max_abs_diff"
    assert result["runs"] == sum(row["runs"] for row in result["tried"]) <= 12
    drafted = tomlfile.read(Advisory, Path(result["advisory"]), "draft")
    assert drafted.severity == "silent-wrong"
    assert drafted.matches(control.load(planted.project, CONTROL).bad.versions) == "certain"
    script = Path(result["reproducer"])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")}
    shown = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.startswith("good: passed\nbad: failed: max_abs_diff is ")


def test_25_settings_of_which_two_exclude_each_other(depot: Workshop, tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(yaml.safe_dump(SETTINGS))
    result = depot.json("bisect", "config", "--config", str(config), "--stack", "trl1.16-cpu")
    assert result["failing"] == {"generation_batch_size": 8, "steps_per_generation": 2}
    assert "can not be both configured" in result["reason"]
    assert result["take_out"] in (["generation_batch_size"], ["steps_per_generation"])
