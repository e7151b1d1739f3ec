"""`vetted fleet --on slurm --engine docker`: a node with an engine of its own builds the digest that is built here.

The node has nothing in common with this machine's own engine: no layers, no image, and no downloads of Vetted.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.certify import certificate, description, judgement
from builder.image import target
from builder.lock import lockfile
from tests import parts
from tests.conftest import ROOT
from tests.engine import cluster
from tests.engine.cluster import Cluster
from tests.engine.conftest import Workshop, copy_of_project
from tests.engine.test_docker_builders import engine
from tests.engine.test_docker_extend import SOUND
from tests.engine.test_prove import SMALL, beside

pytestmark = pytest.mark.usefixtures("docker")
# It needs nothing of the stack, which has no torch.
PROBE = ROOT / "tests" / "smoke" / "faulty" / "good.py"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    parts.slurm()
    with cluster.running(tmp_path_factory.mktemp("slurm") / "cluster") as started:
        yield started


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """One small stack, and a suite of one small probe: what a node does is the same for every stack."""
    root = tmp_path_factory.mktemp("docker-fleet")
    small = beside(copy_of_project(root / "whole"), root / "project", SOUND, {"psutil"})
    small.keep_probes()
    shutil.copy(PROBE, small.project.smoke / "probes")
    yield small
    shutil.rmtree(root)


def fleet(stack: Workshop, nodes: Cluster, engine: str, *, code: int = 0) -> dict[str, Any]:
    """What became of the one unit, on nodes whose Docker client asks this engine."""
    argv = ("fleet", SMALL, "--on", "slurm", "--engine", "docker")
    (answer,) = stack.json(*argv, code=code, env={**nodes.environment, "DOCKER_HOST": engine})
    return dict(answer)


def images(engine: str) -> set[str]:
    argv = ["docker", "--host", engine, "images", "--no-trunc", "--quiet", f"vetted/{SMALL}"]
    return set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())


def test_a_node_without_an_engine_certifies_nothing_and_says_what_it_lacks(
    stack: Workshop, nodes: Cluster, tmp_path: Path
) -> None:
    unit = fleet(stack, nodes, f"unix://{tmp_path}/no-engine", code=1)
    assert (unit["unit"], unit["good"], unit["statement"]) == (SMALL, False, None)
    assert "Docker" in unit["doubts"][0] and "next: " in unit["doubts"][0]
    assert list(stack.project.stack_dir(SMALL).rglob("certificates/*")) == []


def test_the_node_builds_the_digest_that_is_built_here_and_one_statement_comes_back(
    stack: Workshop, nodes: Cluster, tmp_path: Path
) -> None:
    digest = stack.json("build", SMALL)["manifest"]
    # A socket's path has at most 107 letters.
    with engine(Path("/run") / f"vetted-node-{tmp_path.name[-8:]}") as theirs:
        unit = fleet(stack, nodes, theirs)
        assert images(theirs) == {digest}, "its suite ran in another image, or elsewhere"
    assert (unit["unit"], unit["node"], unit["good"], unit["doubts"]) == (SMALL, socket.gethostname(), True, [])
    statements = list((stack.project.state / "fleet" / "statements").iterdir())
    assert [str(path) for path in statements] == [unit["statement"]]
    statement, lock = certificate.read(statements[0]), lockfile.load(stack.project, SMALL)
    assert statement.subject[0].digest == certificate.bare(digest)
    assert statement.subject[0].name == target.reference(stack.project, lock)
    assert description.engine(statement) == "docker"
    assert statement.predicate.passedTests == ["good"]
    placed = list(stack.project.stack_dir(SMALL).joinpath("certificates").iterdir())
    assert [path.name for path in placed] == ["cpu-docker.json"]
    assert placed[0].read_bytes() == statements[0].read_bytes()
    assert judgement.is_valid(statement, judgement.terms(stack.project, lock))
