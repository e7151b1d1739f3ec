"""Choosing an image that was built here; that of a registry is in tests/registry."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import TINY, Small
from tests.registry.conftest import make_image
from tests.unit.conftest import Command


@pytest.fixture(autouse=True)
def no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")


def test_what_was_built_here_is_pinned_by_its_digest(command: Command, small: Small) -> None:
    built = make_image(small)
    (small.root / ".env").write_text("PORT=1\n")
    answer = command(small.root, "use", TINY)
    assert answer.code == 0
    pinned = f"vetted/{TINY}@{built.image.manifest}"
    lines = (small.root / ".env").read_text().splitlines()
    assert lines[:3] == ["PORT=1", f"VETTED_IMAGE={pinned}", f"VETTED_STACK={TINY}"]
    assert lines[3] == f"VETTED_CERTIFICATES=./.vetted/judged/{TINY}"
    assert [line.partition("=")[0] for line in lines[4:]] == [
        "VETTED_USER", "COMPOSE_FILE", "VETTED_CACHE", "VETTED_MEMORY", "VETTED_PIDS",
    ]  # fmt: skip
    assert f"{TINY}: {pinned}\n  written to .env" in answer.out
    assert "`docker images` dates it 2023-11-14, whenever it was built" in answer.out
    assert "no Docker engine answers: the image is pinned; run this again to load it" in answer.err
    again = command(small.root, "use", "--json")
    assert (again.code, again.json["image"], again.json["changed"]) == (0, pinned, False)


@pytest.mark.parametrize("has_compose", [True, False])
def test_a_docker_without_compose_is_said_before_it_fails(
    command: Command, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_compose: bool
) -> None:
    """Its client answers `docker compose run --rm train` with "unknown flag: --rm"."""
    client = tmp_path / "bin" / "docker"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\n[ "$1" = compose ] && exit {0 if has_compose else 1}\nexit 1\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")
    make_image(small)
    answer = command(small.root, "use", TINY)
    assert answer.code == 0
    assert ("docker has no compose plugin here" in answer.err) is not has_compose


def test_what_was_not_built_is_not_chosen(command: Command, small: Small) -> None:
    answer = command(small.root, "use", TINY)
    assert answer.code == 1
    assert f"the image of {TINY} is not here" in answer.err
    assert f"next: vetted certify {TINY} --engine docker" in answer.err
    assert not (small.root / ".env").exists()


def test_a_project_without_a_cpu_stack_must_be_told_which(command: Command, small: Small) -> None:
    small.edit("stack.toml", 'device = "cpu"', 'device = "cuda"')
    answer = command(small.root, "use")
    assert answer.code == 3
    assert "the project has no stack for the CPU" in answer.err


def test_a_key_without_a_registry_has_nothing_to_verify(command: Command, small: Small) -> None:
    answer = command(small.root, "use", TINY, "--key", "cosign.pub")
    assert answer.code == 2
    assert "--key" in answer.err


def test_an_env_that_is_a_folder_ends_with_3(command: Command, small: Small) -> None:
    make_image(small)
    (small.root / ".env").mkdir()
    answer = command(small.root, "use", TINY)
    assert answer.code == 3
    assert ".env" in answer.err
