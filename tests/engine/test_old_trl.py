"""What the runtime makes up for in a TRL whose `trl grpo` is older than reward functions: the real one, trained."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.base import project
from builder.certify import control, hostenv
from tests.conftest import ROOT

TWIN = "trl0.15-patch-text-prompts"  # TRL 0.15.2 with the patches of its stack
TRAIN = """
import json, sys
from pathlib import Path
from trl.scripts import grpo
from runtime import rewards, task

settings = json.loads(task.make(Path("task")).read_text())
settings |= {"reward_funcs": sys.argv[1:], "max_steps": 2, "output_dir": "out", "report_to": "none", "use_cpu": True}
Path("config.json").write_text(json.dumps(settings))
sys.argv = ["grpo", "--config", "config.json"]
rewards.accept(grpo)
grpo.main(*grpo.make_parser().parse_args_and_config())
"""


@pytest.fixture(scope="module")
def python() -> Path:
    home = project.find(ROOT)
    with home.holding(TWIN) as scratch:
        return (
            hostenv.prepare(home, control.load(home, TWIN).twin, scratch, lambda _: None, keep=False) / "bin" / "python"
        )


def trained(python: Path, folder: Path, *functions: str) -> subprocess.CompletedProcess[str]:
    (folder / "runtime").mkdir()
    for name in ("__init__.py", "rewards.py", "task.py"):
        shutil.copy(ROOT / "runtime" / name, folder / "runtime")
    return subprocess.run(
        [str(python), "-c", TRAIN, *functions], cwd=folder, env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_it_takes_reward_functions_by_their_dotted_names(python: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def length(completions, **_):\n    return [1.0 * len(c) for c in completions]\n")
    done = trained(python, tmp_path, "runtime.task.lower_case", "mine.length")
    assert done.returncode == 0, done.stderr
    (state,) = tmp_path.glob("out/checkpoint-2/trainer_state.json")
    logged = json.loads(state.read_text())["log_history"][0]
    assert logged["reward"] == pytest.approx(logged["rewards/lower_case"] + logged["rewards/length"])
    assert logged["rewards/length"] > 1


def test_a_function_that_is_not_there_is_said(python: Path, tmp_path: Path) -> None:
    done = trained(python, tmp_path, "rewards.nothing")
    assert done.returncode == 1
    assert "vetted: there is no reward function rewards.nothing: No module named 'rewards'" in done.stderr
    assert "Traceback" not in done.stderr
