"""Patches that only an old torch needs: the real library with the patch and without it.

torch 2.5 comes with CUDA's libraries alone, which is too much for a test. So what is looked at is what that torch trips
over; the probes `checkpoint-resume` and `grpo-zero3` show both with torch 2.5 itself, in the image of the stack.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.base import project
from builder.certify import control, hostenv
from tests.conftest import ROOT
from tests.engine import hosted

CONTROL = "trl0.15-transformers4.52"  # its twin is TRL 0.15.2 and Transformers 4.51.3, as published

# The list of what may be loaded is made or not by a comparison of versions.
RESUME = """
import random
from pathlib import Path
import numpy, torch
from transformers import Trainer, TrainingArguments

torch.__version__ = "2.5.1"
trainer = Trainer(torch.nn.Linear(1, 1), TrainingArguments("out", use_cpu=True, report_to="none"))
draw = lambda: [random.random(), float(numpy.random.rand()), float(torch.rand(1))]
checkpoint = Path("checkpoint")
checkpoint.mkdir()
trainer._save_rng_state(str(checkpoint))
first = draw()
trainer._load_rng_state(str(checkpoint))
assert draw() == first != draw()
"""
# What ZeRO-3 begins to gather in inference mode is ended outside of it.
REFERENCE = """
import torch
from smoke.kit import tiny
from trl import GRPOConfig, GRPOTrainer

tokenizer = tiny.make_tokenizer()
tiny.make_model(0).save_pretrained("model")
tokenizer.save_pretrained("model")
arguments = GRPOConfig(
    "out", use_cpu=True, report_to="none", max_steps=1, per_device_train_batch_size=2, num_generations=2
)
reward = lambda completions, **_: [float(len(one)) for one in completions]
trainer = GRPOTrainer("model", reward, arguments, tiny.make_prompts(2), processing_class=tokenizer)
modes = []
trainer.ref_model.register_forward_pre_hook(lambda *_: modes.append(torch.is_inference_mode_enabled()))
trainer.train()
assert modes
assert not any(modes), "in inference mode"
"""


@dataclass(frozen=True)
class Case:
    patch: str
    file: str  # that it changes
    script: str
    says: str  # without it


CASES = [
    Case(
        "transformers/4.51.3/0003-load-the-random-states-it-saved.patch",
        "transformers/trainer.py",
        RESUME,
        "Weights only load failed",
    ),
    Case(
        "trl/0.15.2/0009-score-the-reference-without-inference-mode.patch",
        "trl/trainer/grpo_trainer.py",
        REFERENCE,
        "AssertionError: in inference mode",
    ),
]


@pytest.fixture(scope="module")
def python() -> Path:
    home = project.find(ROOT)
    with home.holding(CONTROL) as scratch:
        return (
            hostenv.prepare(home, control.load(home, CONTROL).twin, scratch, lambda _: None, keep=False)
            / "bin"
            / "python"
        )


def ran(case: Case, python: Path, folder: Path, *, patched: bool) -> subprocess.CompletedProcess[str]:
    """Run its script where the file is a copy of the installed one; the rest of the package is the installed one."""
    package = Path(case.file).parts[0]
    (installed,) = python.parent.parent.glob(f"lib/python*/site-packages/{package}")
    shutil.copytree(installed, folder / package, copy_function=lambda of, to: Path(to).symlink_to(of))
    (folder / case.file).unlink()
    shutil.copy(installed.parent / case.file, folder / case.file)
    if patched:
        patch = ROOT / "images" / "patches" / case.patch
        subprocess.run(["patch", "--strip=1", f"--input={patch}"], cwd=folder, check=True, capture_output=True)
    return subprocess.run(
        [str(python), "-c", case.script], cwd=folder,
        env={"PYTHONPATH": f"{folder}:{ROOT}", "HF_HUB_OFFLINE": "1", **hosted.ONE_THREAD},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.patch)
def test_without_the_patch_it_trips(case: Case, python: Path, tmp_path: Path) -> None:
    done = ran(case, python, tmp_path, patched=False)
    assert done.returncode != 0
    assert case.says in done.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.patch)
def test_with_it_it_does_not(case: Case, python: Path, tmp_path: Path) -> None:
    done = ran(case, python, tmp_path, patched=True)
    assert done.returncode == 0, done.stderr
