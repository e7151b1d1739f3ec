"""Faults of this machine that were told as faults of the network: provoked with the real tools."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder.base import errors, process
from builder.publish import refusal
from builder.publish.reference import parse_repository
from tests import parts

PATH = {"PATH": os.environ["PATH"]}
HOW = {"dpkg-deb": "run the tests on Debian or Ubuntu"}


def error_of(*argv: str, **env: str) -> errors.VettedError:
    """The error that a real tool's words amount to."""
    parts.programs(argv[0], how=HOW.get(argv[0], parts.INSTALL))
    variables = [f"{name}={value}" for name, value in {**PATH, **env}.items()]
    result = process.run(["env", "-i", *variables, *argv], timeout=30)
    assert result.returncode != 0
    return errors.from_tool("the step", result.output)


@pytest.mark.parametrize("content", [b"", b"!<arch>\n", bytes(3000)])
def test_a_package_that_was_cut_short(tmp_path: Path, content: bytes) -> None:
    """A .deb in the cache is empty, truncated, or full of zeros."""
    package = tmp_path / "package.deb"
    package.write_bytes(content)
    error = error_of("dpkg-deb", "--field", str(package))
    assert type(error) is errors.StorageError
    assert "a Debian package is damaged" in error.what
    assert "rm -r .vetted/debs" in error.next_step


@pytest.mark.parametrize("command", [["version"], ["run", "--rm", "x"], ["load"], ["buildx", "build", "."]])
def test_a_docker_engine_that_is_gone(tmp_path: Path, command: list[str]) -> None:
    """The socket of the Docker engine does not exist."""
    if command[0] == "buildx":
        parts.plugin("buildx")
    where = f"unix://{tmp_path}/none.sock"
    error = error_of("docker", *command, DOCKER_HOST=where, HOME=str(tmp_path))
    assert type(error) is errors.MissingToolError
    assert "the Docker engine is not running" in error.what


def test_a_registry_that_is_asked_without_a_home(tmp_path: Path) -> None:
    """HOME is not set, and oras says so before it asks the registry."""
    parts.programs("oras")
    argv = ["env", "-i", f"PATH={PATH['PATH']}", "oras", "resolve", "--plain-http", "127.0.0.1:9/a/b:c"]
    result = process.run(argv, cwd=tmp_path, timeout=30)
    error = refusal.explain(parse_repository("127.0.0.1:9/a/b", insecure=False), result.output)
    assert type(error) is errors.StorageError
    assert "HOME is not set" in error.what
