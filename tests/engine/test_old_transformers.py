"""A patch that only an old torch needs: the real Transformers with it and without it, told that its torch is that old.

torch 2.5 comes with CUDA's libraries only. What is wrong is a comparison of versions, so a newer torch that gives
another version shows the same; `checkpoint-resume` in the image of the stack shows it with torch 2.5 itself.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from builder import control, hostenv, project
from tests.conftest import ROOT

CONTROL = "transformers4.51-patch-weight-decay"  # Transformers 4.51.3 as published
PATCH = ROOT / "images/patches/transformers/4.51.3/0003-load-the-random-states-it-saved.patch"
RESUME = """
import random
from pathlib import Path
import numpy, torch
from transformers import Trainer, TrainingArguments

torch.__version__ = "2.5.1"
arguments = TrainingArguments("out", use_cpu=True, report_to="none")
trainer = Trainer(torch.nn.Linear(1, 1), arguments)
draw = lambda: [random.random(), float(numpy.random.rand()), float(torch.rand(1))]
checkpoint = Path("checkpoint")
checkpoint.mkdir()
trainer._save_rng_state(str(checkpoint))
first = draw()
trainer._load_rng_state(str(checkpoint))
assert draw() == first != draw()
"""


@pytest.fixture(scope="module")
def python() -> Path:
    home = project.find(ROOT)
    with home.holding(CONTROL) as scratch:
        return hostenv.prepare(home, control.load(home, CONTROL).bad, scratch, lambda _: None) / "bin" / "python"


def resumed(python: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-c", RESUME], cwd=folder, env={"PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def copied(python: Path, folder: Path) -> None:
    """Transformers as it is installed, with a trainer.py that may be changed."""
    (installed,) = python.parent.parent.glob("lib/python*/site-packages/transformers")
    shutil.copytree(installed, folder / "transformers", copy_function=lambda of, to: Path(to).symlink_to(of))
    trainer = folder / "transformers" / "trainer.py"
    trainer.unlink()
    shutil.copy(installed / "trainer.py", trainer)


def test_no_random_states_are_loaded_without_the_patch(python: Path, tmp_path: Path) -> None:
    copied(python, tmp_path)
    done = resumed(python, tmp_path)
    assert done.returncode != 0
    assert "Weights only load failed" in done.stderr


def test_they_are_loaded_with_it(python: Path, tmp_path: Path) -> None:
    copied(python, tmp_path)
    subprocess.run(["patch", "--strip=1", f"--input={PATCH}"], cwd=tmp_path, check=True, capture_output=True)
    done = resumed(python, tmp_path)
    assert done.returncode == 0, done.stderr
