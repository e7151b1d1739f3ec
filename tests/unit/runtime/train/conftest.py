"""`vetted train` without its processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from runtime import preflight
from runtime.train import command, process
from tests.unit.runtime.conftest import GOOD

Start = tuple[list[str], dict[str, str]]


@pytest.fixture
def runs(tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs go, on a machine about which nothing is known, with a good config in the current folder."""
    monkeypatch.setattr(preflight, "look", list)
    monkeypatch.setattr(preflight, "stack", lambda _root: {})
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (here / "my.yaml").write_text(GOOD)
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def train(runs: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Start]:
    """Run `vetted train` and return what it starts: the command and its environment."""
    starts: list[Start] = []

    def run(argv: Sequence[str], _stop: Path, environ: Mapping[str, str]) -> int:
        starts.append((list(argv), dict(environ)))
        return 0

    monkeypatch.setattr(process, "run", run)

    def start(*arguments: str) -> Start:
        assert command.main(arguments, runs, site) == 0
        return starts[-1]

    return start


def run_folder(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "runs").iterdir()
    return folder
