"""Training on the two nodes of a real Slurm cluster: `srun` says how many nodes there are, and which one this is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import parts
from tests.engine import cluster, hosted
from tests.engine.cluster import Cluster
from tests.engine.hosted import losses, runs
from tests.engine.test_train import task as task
from tests.registry.server import free_port


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Cluster]:
    parts.slurm()
    with cluster.running(tmp_path / "cluster") as started:
        yield started


def srun(slurm: Cluster, python: Path, here: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A step that trains. Both nodes are this machine, so the name of the first one is no address."""
    found = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    program = shutil.which("srun")
    assert program
    return subprocess.run(
        [program, "--kill-on-bad-exit=1", *options, *hosted.command(python, "--config", "my.yaml")],
        cwd=here, env=hosted.environment(python, here, **found, **slurm.environment),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip


def test_two_nodes_train_one_model(slurm: Cluster, python: Path, task: Path) -> None:
    done = srun(slurm, python, task, "--nodes=2", "--ntasks-per-node=1")
    assert done.returncode == 0, done.stdout
    (run,) = runs(task)
    assert [step for step, _ in losses(run)] == [1, 2, 3, 4]
    assert {path.name for path in (run / "checkpoint-4").glob("rng_state*")} == {"rng_state_0.pth", "rng_state_1.pth"}
    assert "node     1 of 2; node 0, at 127.0.0.1" in done.stdout


def test_two_tasks_on_a_node_are_refused(slurm: Cluster, python: Path, task: Path) -> None:
    before = runs(task)
    done = srun(slurm, python, task, "--nodes=2", "--ntasks-per-node=2")
    assert done.returncode != 0
    assert "srun started 4 tasks on 2 nodes" in done.stdout
    assert "next: srun --ntasks-per-node=1" in done.stdout
    assert runs(task) == before
