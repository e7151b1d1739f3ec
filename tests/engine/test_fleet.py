"""`vetted fleet` on this machine and on a real Slurm, a node of which dies in the middle of a suite."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.certify import certificate, judgement
from builder.fleet import slurm
from builder.lock import lockfile
from builder.lock.audit import lacking
from builder.pages import generate
from tests import parts
from tests.commands import vetted
from tests.conftest import GOOD_RUN, ROOT, TINY, Small
from tests.engine import cluster
from tests.engine.cluster import Cluster
from tests.engine.test_examples import check

STACKS = [TINY, *(f"{TINY}-{letter}" for letter in "bcde")]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    parts.slurm()
    with cluster.running(tmp_path_factory.mktemp("slurm") / "cluster") as started:
        yield started


@pytest.fixture
def fleet(small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Small:
    """Five stacks. Their suite writes down when it starts and ends, and takes some seconds."""
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(small.wheelhouse))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    for name in STACKS[1:]:
        shutil.copytree(small.file("stack.toml").parent, small.project.stack_dir(name))
    log = f"open({str(small.root / 'log')!r}, 'a')"
    small.suite(
        f"import time\nprint('begin', os.getpid(), file={log})\ntime.sleep(4)\n{GOOD_RUN}print('end', file={log})\n"
    )
    return small


def certified(small: Small) -> list[str]:
    """The stacks whose certificate holds."""
    names = []
    for name in STACKS:
        path = certificate.path(small.project, name, "cpu", "host")
        terms = judgement.terms(small.project, lockfile.load(small.project, name))
        if path.is_file() and judgement.is_valid(certificate.read(path), terms):
            names.append(name)
    return names


def log(small: Small, word: str) -> int:
    path = small.root / "log"
    return [line.split()[0] for line in path.read_text().splitlines()].count(word) if path.is_file() else 0


def wait(small: Small, word: str, number: int) -> None:
    for _ in range(600):
        if log(small, word) >= number:
            return
        time.sleep(0.1)
    raise AssertionError(f"{word} is in the log {log(small, word)} times, not {number}")


def start(small: Small, nodes: Cluster) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "builder", "fleet", *STACKS, "--on", "slurm", "--json"]
    return subprocess.Popen(
        argv, cwd=small.root, env={**os.environ, "PYTHONPATH": str(ROOT), **nodes.environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_here_one_after_the_other(fleet: Small) -> None:
    answer = vetted(fleet.root, "fleet", *STACKS[:2], "--on", "local", "--json")
    assert answer.code == 0, answer.out + answer.err
    assert [(unit["unit"], unit["good"]) for unit in answer.json] == [(name, True) for name in STACKS[:2]]
    assert certified(fleet) == STACKS[:2]
    assert generate.stale(fleet.project) == []
    words = [line.split()[0] for line in (fleet.root / "log").read_text().splitlines()]
    assert words == ["begin", "end"] * 2
    statements = fleet.project.state / "fleet" / "statements"
    assert sorted(path.name for path in statements.iterdir()) == [f"{TINY}-b-host.json", f"{TINY}-host.json"]


def test_a_red_suite_leaves_a_report_and_no_certificate(fleet: Small) -> None:
    fleet.suite(GOOD_RUN.replace('end("beta")', 'end("beta", "failed", reason="the reward fell")'))
    answer = vetted(fleet.root, "fleet", TINY, "--on", "local", "--output", "out", "--json")
    assert answer.code == 1
    (unit,) = answer.json
    assert unit["doubts"][0] == "it is the report of a run that failed"
    assert json.loads((fleet.root / "out" / f"{TINY}-host.json").read_text())["predicate"]["result"] == "FAILED"
    assert certified(fleet) == []


def test_a_node_dies_in_the_middle_and_every_certificate_is_there_once(fleet: Small, nodes: Cluster) -> None:
    with start(fleet, nodes) as command:
        wait(fleet, "begin", 1)
        node = nodes.node_of(int((fleet.root / "log").read_text().split()[1]))
        nodes.kill(node)
        out, err = command.communicate()
    nodes.revive(node)
    assert command.returncode == 0, out + err
    units: list[dict[str, Any]] = json.loads(out)
    assert sorted(unit["stack"] for unit in units) == STACKS
    assert all(unit["good"] for unit in units)
    assert certified(fleet) == STACKS
    assert log(fleet, "end") == len(STACKS)
    assert log(fleet, "begin") > len(STACKS), "no suite was killed: the test showed nothing"
    assert slurm._known(fleet.project.state / "fleet" / slurm.JOURNAL) == {}
    nodes.wait("the nodes", "sinfo", "--noheader", "--format=%D %t", expected="2 idle")


def test_a_command_that_was_killed_takes_up_its_jobs(fleet: Small, nodes: Cluster) -> None:
    with start(fleet, nodes) as first:
        wait(fleet, "begin", 1)
        first.kill()
    with start(fleet, nodes) as second:
        out, err = second.communicate()
    assert second.returncode == 0, out + err
    assert certified(fleet) == STACKS
    assert log(fleet, "begin") == log(fleet, "end") == len(STACKS), "a stack was run twice"


def test_gpus_are_asked_of_slurm(fleet: Small, nodes: Cluster) -> None:
    """There is no GPU here: the job gets the device files that Slurm counts, and the unit says that there is none."""
    path = fleet.file("stack.toml")
    path.write_text(path.read_text().replace('device = "cpu"', 'device = "cuda"'))
    lock = fleet.file("lock.toml")
    intent = lockfile.intent(lockfile.load(fleet.project, TINY).stack)
    lock.write_text(lock.read_text().replace(lockfile.load(fleet.project, TINY).intent, intent))
    debian = fleet.file("debian.txt")
    for name in lacking(lockfile.load(fleet.project, TINY)):
        debian.write_text(debian.read_text() + f"{name}=1.0 sha256:{'e' * 64}\n")
    argv = ["fleet", TINY, "--on", "slurm", "--gpus", "h200:2", "--json"]
    answer = vetted(fleet.root, *argv, **nodes.environment)
    assert answer.code == 1, answer.out + answer.err
    (unit,) = answer.json
    assert (unit["unit"], unit["gpu"], unit["gpus"], unit["good"]) == (f"{TINY}-h200-2", "h200", 2, False)
    assert "no GPU to certify on" in unit["doubts"][0]
    scripts = list((fleet.project.state / "fleet" / "logs").rglob("*submission*.sh"))
    assert any("--gres=gpu:h200:2" in script.read_text() for script in scripts)


def test_while_slurm_does_not_answer_its_jobs_are_waited_for(fleet: Small, nodes: Cluster) -> None:
    """The controller dies, and comes back: the answers of the jobs are on the disk.

    The last test with this cluster: a controller that had not yet saved the job gives its number to the next one, which
    the node refuses as one that it runs already.
    """
    argv = [sys.executable, "-m", "builder", "fleet", TINY, "--on", "slurm", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **nodes.environment}
    with subprocess.Popen(argv, cwd=fleet.root, env=env, text=True, stdout=subprocess.PIPE) as command:
        wait(fleet, "begin", 1)
        nodes.stop("slurmctld")
        out, _ = command.communicate()
    nodes.start("slurmctld", "slurmctld", "-D", "-f", str(nodes.folder / "slurm.conf"))
    assert (command.returncode, certified(fleet)) == (0, [TINY]), out
    nodes.wait("the nodes", "sinfo", "--noheader", "--format=%D %t", expected="2 idle")


def test_without_slurm_the_next_command_is_named(fleet: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = vetted(fleet.root, "fleet", TINY, "--on", "slurm")
    assert answer.code == 4
    assert "sinfo is not installed" in answer.err


# --- Kubernetes: there is no API server here; its schemas are, and what a pod runs is a shell script ----------------

MANIFEST = ROOT / "examples" / "kubernetes" / "fleet.yaml"


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_the_indexed_job_is_what_kubernetes_takes(version: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(MANIFEST.read_text().replace("${FLEET_IMAGE}", f"registry.example/debian@sha256:{'a' * 64}"))
    tool = ("kubernetes-validate==1.37.0", "kubernetes-validate", "--strict", "--kubernetes-version", version)
    check(*tool, str(file))
    file.write_text(file.read_text().replace("completionMode", "completionsMode"))
    with pytest.raises(AssertionError, match="completionsMode"):
        check(*tool, str(file))


def test_two_pods_of_the_job_at_once_leave_a_statement_each(fleet: Small) -> None:
    (job,) = yaml.safe_load_all(MANIFEST.read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    (fleet.root / "stacks.txt").write_text("".join(f"{name}\n" for name in STACKS[:2]))
    program = fleet.root / "vetted"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m builder "$@"\n')
    program.chmod(0o755)
    pods = [
        subprocess.Popen(
            [*container["command"], *container["args"]], cwd=fleet.root, stdout=subprocess.PIPE, text=True,
            env={
                **os.environ, **variables, "PYTHONPATH": str(ROOT), "HOME": os.environ["HOME"],
                "STACKS": str(fleet.root / "stacks.txt"), "JOB_COMPLETION_INDEX": str(index),
                "VETTED_STATE": str(fleet.root / f"state-{index}"),
            },
        )
        for index in range(job["spec"]["completions"])
    ]  # fmt: skip
    answers = [pod.communicate()[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], answers
    statements = fleet.root / ".vetted" / "fleet" / "statements"
    assert sorted(path.name for path in statements.iterdir()) == [f"{TINY}-b-host.json", f"{TINY}-host.json"]
    assert certified(fleet) == STACKS[:2]
