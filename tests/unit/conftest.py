"""Every unit test sees the same machine: no network, no configuration of the person who runs it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from builder import cli
from builder.lock import audit, debian
from tests.commands import Answer
from tests.conftest import Small

# The same examples on every machine, however slow it is.
hypothesis.settings.register_profile("vetted", deadline=None, derandomize=True, database=None, max_examples=60)
hypothesis.settings.load_profile("vetted")

FOREIGN = ("VETTED_", "UV_", "PIP_", "DOCKER_", "BUILDX_")


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, uv_cache: Path) -> None:
    for name in os.environ:
        if name.startswith(FOREIGN) or name in ("SSL_CERT_FILE", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(uv_cache.with_name("huggingface")))
    monkeypatch.setenv("VETTED_SECRETS", str(uv_cache.with_name("secrets")))  # not this user's
    monkeypatch.setenv("XDG_CACHE_HOME", str(uv_cache.with_name("cache")))
    monkeypatch.setenv("UV_CACHE_DIR", str(uv_cache))
    # uv looks for the interpreter of an environment on PATH: this one will do.
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]]))


@pytest.fixture
def dead_index(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An index whose port is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.delenv("UV_OFFLINE")
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{taken.getsockname()[1]}/simple")
        yield


@pytest.fixture
def wheels(small: Small, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A small project whose wheels are found, so that it needs no index."""
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(small.wheelhouse))
    # Nor are system libraries looked for, which a machine may lack.
    monkeypatch.setattr(debian, "LIBRARIES", {})
    return small


Command = Callable[..., Answer]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process, which takes milliseconds where a new one takes a second."""

    def run(root: Path, *argv: str) -> Answer:
        monkeypatch.chdir(root)
        monkeypatch.setattr(sys, "argv", ["vetted", *argv])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else 0, printed.out, printed.err)

    return run


@pytest.fixture
def other_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """No audit of the base layer: the small one has a single package, with a real name and no real hash."""
    monkeypatch.setattr(audit, "base_layer", lambda _: [])
    monkeypatch.setattr(audit, "mirrored", lambda *_: [])
