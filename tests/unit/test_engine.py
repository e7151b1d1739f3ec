"""The engines: what a machine without Docker is told, and what a container may do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder import engine, errors

SERVER = '{"Version": "26.1.5", "KernelVersion": "6.1"}'


def docker(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A docker in a state that no machine can be put in for a test."""
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_without_docker_one_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.MissingToolError, match="no Docker engine answers: docker is not installed") as caught:
        engine.docker()
    assert caught.value.exit_code == 4
    assert "scripts/install-engine" in caught.value.next_step
    assert "--engine host" in caught.value.next_step


def test_the_way_to_get_an_engine_exists() -> None:
    script = Path(__file__).parents[2] / "scripts" / "install-engine"
    assert os.access(script, os.X_OK)


def test_an_engine_that_does_not_answer_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    docker(tmp_path, monkeypatch, f'echo "a warning" >&2; echo "{said}" >&2; exit 1')
    with pytest.raises(errors.MissingToolError, match="Is the docker daemon running"):
        engine.docker()


def test_an_engine_without_buildx_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(tmp_path, monkeypatch, f"[ $1 = version ] && echo '{SERVER}'")
    with pytest.raises(errors.MissingToolError, match="has no buildx"):
        engine.docker()


@pytest.mark.parametrize(
    ("said", "buildkit"),
    [
        ("BuildKit version: v0.19.0", "v0.19.0"),
        ("BuildKit version: v0.0.0+unknown", "of Docker 26.1.5"),
        ("Name: default", "of Docker 26.1.5"),
    ],
)
def test_an_engine_that_answers_names_its_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, buildkit: str
) -> None:
    docker(tmp_path, monkeypatch, f"[ $1 = version ] && echo '{SERVER}' || echo '{said}'")
    assert engine.docker() == engine.Docker("26.1.5", buildkit, "6.1")


def test_a_container_has_nothing_that_training_does_not_need(tmp_path: Path) -> None:
    argv = engine.in_image(tmp_path, "tiny", "vetted/tiny:1", "cpu", 1024)
    options = " ".join(argv[: argv.index("vetted/tiny:1")])
    for hardening in (
        "--network none", "--read-only", "--tmpfs /tmp:exec", "--user 1000:1000", "--cap-drop ALL",
        "--security-opt no-new-privileges", "--memory 1024m", f"--volume {tmp_path}:/vetted:ro", "--rm",
    ):  # fmt: skip
        assert hardening in options
    grants = (
        "--gpus", "--shm-size", "--privileged", "--cap-add", "seccomp", "--device", "--pid ", "--ipc", "docker.sock",
    )  # fmt: skip
    for grant in grants:
        assert grant not in options
    assert argv[argv.index("vetted/tiny:1") + 1 :] == ["python", "-m", "smoke"]


def test_a_container_for_cuda_has_the_gpus_and_shared_memory_besides(tmp_path: Path) -> None:
    plain = engine.in_image(tmp_path, "tiny", "vetted/tiny:1", "cpu", 1024)
    argv = engine.in_image(tmp_path, "tiny", "vetted/tiny:1", "cuda", 1024)
    added = [word for word in argv if word not in plain]
    assert added == ["--gpus", "all", "--shm-size", "8g"]


def test_on_the_host_the_stacks_own_python_runs_the_suite(tmp_path: Path) -> None:
    assert engine.on_host(tmp_path) == [str(tmp_path / "bin" / "python"), "-m", "smoke"]
