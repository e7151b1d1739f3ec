"""Two ranks whose interpreters end while a thread of gloo still frees tensors, with the real torch of the CPU stack."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.conftest import ROOT

PAIRS = 12
# Far more work than a run leaves behind at its end, so that it is seen in every second rank and not in one of hundreds.
# A forked process ends as any other does; forks spare the import of torch.
PROGRAM = """
import atexit, gc, os, resource, signal, sys, warnings
from pathlib import Path
import torch
import torch.distributed as dist
from runtime import gloo

warnings.simplefilter("ignore")
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
torch.set_num_threads(1)
gc.freeze()


def rank(number, pair):
    global group
    signal.alarm(120)
    if sys.argv[1] == "settled":
        atexit.register(gloo.settle)
    dist.init_process_group("gloo", init_method=f"file://{Path.cwd()}/{pair}", rank=number, world_size=2)
    group = dist.new_group()
    part = torch.ones(2000)
    for _ in range(300):
        dist.all_gather_into_tensor(torch.empty(4000).view(-1), part, group=group, async_op=True)
    dist.destroy_process_group()


for pair in range(int(sys.argv[2])):
    children = []
    for number in range(2):
        child = os.fork()
        if child == 0:
            break
        children.append(child)
    if child == 0:
        rank(number, pair)
        break
    print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children), flush=True)
"""


def statuses(python: Path, folder: Path, how: str) -> list[int]:
    """The exit statuses of all ranks."""
    folder.mkdir()
    done = subprocess.run(
        [str(python), "-c", PROGRAM, how, str(PAIRS)], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [int(word) for word in done.stdout.split()]


def test_a_process_that_settles_first_is_not_aborted(python: Path, tmp_path: Path) -> None:
    assert statuses(python, tmp_path / "settled", "settled") == [0] * 2 * PAIRS
    # A torch that ends well by itself turns this red: runtime/gloo.py can go then.
    assert -6 in statuses(python, tmp_path / "unsettled", "unsettled")
