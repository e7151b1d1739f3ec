"""One run on two nodes: two containers on a network of their own, started as examples/docker/nodes.yaml says it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engine.conftest import Workshop
from tests.engine.training import compose, rows, runs

pytestmark = pytest.mark.usefixtures("docker")

EXAMPLE = ROOT / "examples" / "docker" / "nodes.yaml"
# On one machine, two nodes cannot both have the network of the host: here they have one of their own.
NETWORK = "services: {train: {network_mode: !reset null, networks: [nodes]}}\nnetworks: {nodes: {internal: true}}\n"
NAMES = ("vetted-test-node-0", "vetted-test-node-1")


def start(shop: Workshop, network: Path, node: int, *argv: str) -> subprocess.Popen[str]:
    nodes = {"NNODES": "2", "NODE_RANK": str(node), "MASTER_ADDR": NAMES[0]}
    return compose(shop, "run", "--rm", "--name", NAMES[node], "train", *argv, files=(EXAMPLE, network), env=nodes)


def test_two_nodes_train_one_model_and_stop_together(chosen: Workshop, tmp_path: Path) -> None:
    """How they resume, tests/engine/test_train.py shows without containers."""
    network = tmp_path / "network.yaml"
    network.write_text(NETWORK)
    before = runs(chosen)
    argv = ("--max_steps", "60", "--save_steps", "2")
    with start(chosen, network, 0, *argv) as first, start(chosen, network, 1, *argv) as second:
        assert first.stdout is not None
        output = ""
        for line in first.stdout:
            output += line
            if line.startswith("step 3/60"):
                kill = ["docker", "kill", "--signal", "INT", NAMES[1]]
                subprocess.run(kill, capture_output=True, check=True)
        output += second.communicate()[0]
        assert [first.wait(), second.wait()] == [130, 130], output
    (run,) = [run for run in runs(chosen) if run not in before]
    steps = [row["step"] for row in rows(run)]
    assert steps == list(range(1, len(steps) + 1)) and 3 <= len(steps) < 60
    # Both ranks are of one process group, and node 1 writes its part of the checkpoint into the folder of node 0.
    assert {path.name for path in (run / "checkpoint-2").glob("rng_state*")} == {"rng_state_0.pth", "rng_state_1.pth"}
