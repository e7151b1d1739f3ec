"""One run on two nodes: two containers on a network of their own, started as examples/docker/nodes.yaml says it."""

from __future__ import annotations

import json
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


def train(shop: Workshop, network: Path, *argv: str, interrupt: str = "") -> tuple[list[int], str]:
    """Run on both nodes: exit statuses and output. `interrupt`: node 1 gets a signal after this line of node 0."""
    with start(shop, network, 0, *argv) as first, start(shop, network, 1, *argv) as second:
        assert first.stdout is not None
        output = ""
        for line in first.stdout:
            output += line
            if interrupt and line.startswith(interrupt):
                kill = ["docker", "kill", "--signal", "INT", NAMES[1]]
                subprocess.run(kill, capture_output=True, check=True)
        output += second.communicate()[0]
        return [first.wait(), second.wait()], output


def losses(run: Path) -> list[tuple[float, float]]:
    return [(row["step"], row["loss"]) for row in rows(run)]


def test_two_nodes_train_one_model_stop_together_and_resume(chosen: Workshop, tmp_path: Path) -> None:
    network = tmp_path / "network.yaml"
    network.write_text(NETWORK)
    before = runs(chosen)
    length = ("--max_steps", "8", "--save_steps", "8")
    codes, output = train(chosen, network, *length)
    assert codes == [0, 0], output
    (whole,) = [run for run in runs(chosen) if run not in before]
    assert [step for step, _ in losses(whole)] == list(range(1, 9))
    # Both ranks are of one process group, and node 1 writes its part of the checkpoint into the folder of node 0.
    assert {path.name for path in (whole / "checkpoint-8").glob("rng_state*")} == {"rng_state_0.pth", "rng_state_1.pth"}
    codes, output = train(chosen, network, *length, interrupt="step 3/8")
    assert codes == [130, 130], output
    run = runs(chosen)[-1]
    assert 3 <= len(losses(run)) < 8
    codes, output = train(chosen, network, "--resume")
    assert codes == [0, 0], output
    assert losses(run) == losses(whole)
    assert len(json.loads((run / "run.json").read_text())["commands"]) == 2
    assert [path for path in runs(chosen) if path not in before] == [whole, run]
