"""`vetted train` on the host, with the real packages of the CPU stack: as in an image, but for /runs and preflight."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import ROOT

# What an image has beside the stack. It has no compiler, and the run knows a CPU image by that.
TOOLS = ("cat", "env", "ldconfig", "lscpu", "nproc", "ps", "sh", "uname")
# Tests run side by side: threads that wait for each other spin, and take three times as much of the cores.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# Without vLLM, W&B and bitsandbytes a run starts in less than half the time.
LEAN = Path(__file__).parent / "lean"
TASK = "from pathlib import Path; from runtime import task; task.make(Path('task'))"
TRAIN = """
import sys
from pathlib import Path
from runtime import preflight
from runtime.train.command import main
preflight.look = list  # /runs and the certificates are another test's question
sys.exit(main(sys.argv[1:], Path("runs")))
"""


def make_task(python: Path, target: Path) -> Path:
    """Make the model and the data of the built-in task in a folder; returns theirs."""
    subprocess.run([str(python), "-c", TASK], cwd=target, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    return target / "task"


def folder(task: Path, target: Path) -> None:
    """Make a folder that a run can start in: the built-in task, runs/, and few programs."""
    shutil.copytree(task, target / "task")
    (target / "runs").mkdir()
    (target / "bin").mkdir()
    for tool in TOOLS:
        if path := shutil.which(tool):
            (target / "bin" / tool).symlink_to(path)


def command(python: Path, *arguments: str) -> list[str]:
    return [str(python), "-P", "-c", TRAIN, *arguments]


def environment(python: Path, here: Path, **environ: str) -> dict[str, str]:
    """The environment of a run: few programs, no network, and none of the packages that lean/ leaves out.

    A test that needs these sets PYTHONPATH to the project alone.
    """
    path = {"PATH": f"{python.parent}:{here / 'bin'}", "PYTHONPATH": f"{ROOT}:{LEAN}", "HOME": str(here)}
    return {**path, **ONE_THREAD, "HF_HUB_OFFLINE": "1", **environ}


def start(python: Path, here: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(python, *arguments), cwd=here, env=environment(python, here, **environ),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def train(python: Path, here: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    with start(python, here, *arguments, **environ) as child:
        output, _ = child.communicate()
    return child.returncode, output


def runs(here: Path) -> list[Path]:
    return sorted((here / "runs").iterdir())


def rows(run: Path, column: str) -> list[tuple[float, float]]:
    """Steps and values of a metric."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row[column]) for row in lines if column in row]


def losses(run: Path) -> list[tuple[float, float]]:
    return rows(run, "loss")
