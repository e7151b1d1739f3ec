"""The engines: what a machine without Docker is told, and what a container may do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from builder.base import errors
from builder.certify import engine
from builder.image import daemon

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
        daemon.docker()
    assert caught.value.exit_code == 4
    assert "scripts/install-engine" in caught.value.next_step
    assert "--engine host" in caught.value.next_step


def test_the_way_to_get_an_engine_exists() -> None:
    script = Path(__file__).parents[3] / "scripts" / "install-engine"
    assert os.access(script, os.X_OK)


def test_an_engine_that_does_not_answer_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    docker(tmp_path, monkeypatch, f'echo "a warning" >&2; echo "{output}" >&2; exit 1')
    with pytest.raises(errors.MissingToolError, match="Is the docker daemon running"):
        daemon.docker()


def test_an_engine_without_buildx_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(tmp_path, monkeypatch, f"[ $1 = version ] && echo '{SERVER}'")
    with pytest.raises(errors.MissingToolError, match="has no buildx"):
        daemon.docker()


@pytest.mark.parametrize(
    ("output", "buildkit"),
    [
        ("BuildKit version: v0.19.0", "v0.19.0"),
        ("BuildKit version: v0.0.0+unknown", "of Docker 26.1.5"),
        ("Name: default", "of Docker 26.1.5"),
    ],
)
def test_an_engine_that_answers_names_its_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, buildkit: str
) -> None:
    docker(tmp_path, monkeypatch, f"[ $1 = version ] && echo '{SERVER}' || echo '{output}'")
    assert daemon.docker() == daemon.Docker("26.1.5", buildkit, "6.1")


def test_a_container_has_nothing_that_training_does_not_need(tmp_path: Path) -> None:
    argv = engine.in_image(tmp_path, "of=tiny", "vetted/tiny:1", "3.11", "cpu", 1024)
    options = " ".join(argv[: argv.index("vetted/tiny:1")])
    for hardening in (
        "--network none", "--read-only", "--tmpfs /tmp:exec", "--label of=tiny", "--cap-drop ALL",
        "--security-opt no-new-privileges", "--memory 1024m", "--rm",
        f'--mount type=bind,"source={tmp_path}",target=/vetted,readonly',
    ):  # fmt: skip
        assert hardening in options
    grants = (
        "--gpus", "--shm-size", "--privileged", "SYS_ADMIN", "seccomp", "--device", "--pid ", "--ipc", "docker.sock",
    )  # fmt: skip
    for grant in grants:
        assert grant not in options
    supervisor = ["/usr/bin/python3.11", "-I", "-S", "/vetted/smoke/__main__.py"]
    assert argv[argv.index("vetted/tiny:1") + 1 :] == [
        *supervisor, "--python", "/opt/venv/bin/python", "--user", "1000:1000",
    ]  # fmt: skip


@pytest.mark.parametrize(("chosen", "variables"), [(None, []), ("1", ["CUDA_VISIBLE_DEVICES=1"])])
def test_a_container_for_cuda_has_the_visible_gpus_and_shared_memory_besides(
    chosen: str | None, variables: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    plain = engine.in_image(tmp_path, "of=tiny", "vetted/tiny:1", "3.11", "cpu", 1024)
    argv = engine.in_image(tmp_path, "of=tiny", "vetted/tiny:1", "3.11", "cuda", 1024)
    added = [word for word in argv if word not in plain]
    assert added == ["--gpus", "all", "--shm-size", "8g", "CUDA_DEVICE_ORDER=PCI_BUS_ID", *variables]


def test_on_the_host_the_tools_python_supervises_and_the_stacks_runs_the_probes(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    assert engine.on_host(tmp_path, environment) == [
        sys.executable, "-I", "-S", str(tmp_path / "smoke" / "__main__.py"),
        "--python", str(environment / "bin" / "python"),
    ]  # fmt: skip


def test_a_path_with_any_character_can_be_mounted() -> None:
    assert engine.mount(Path('/a, "b":c'), "/vetted") == 'type=bind,"source=/a, ""b"":c",target=/vetted,readonly'
