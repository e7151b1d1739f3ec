"""`vetted certify` and `vetted lock`, killed right before and right after each file or folder they put into place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder.certify import certificate
from builder.intent import stack
from builder.lock import resolve
from builder.pages import generate
from tests import kills
from tests.conftest import TINY, Small, make_wheel
from tests.unit.conftest import Command

CERTIFY = ("certify", TINY, "--engine", "host")


@pytest.mark.engine  # it certifies twice for every point
def test_certify_survives_a_kill_at_every_point(wheels: Small, command: Command, tmp_path: Path) -> None:
    path, names = certificate.path(wheels.project, TINY, "cpu", "host"), tmp_path / "names"

    def certify() -> None:
        command(wheels.root, *CERTIFY)

    untouched = tmp_path / "untouched"
    shutil.copytree(wheels.root, untouched, symlinks=True)

    def undo() -> None:
        shutil.rmtree(wheels.root)
        shutil.copytree(untouched, wheels.root, symlinks=True)

    points = list(kills.points(certify, wheels.root, names))
    renamed = names.read_text().splitlines()
    assert str(path.relative_to(wheels.root)) in renamed
    assert any(name.startswith(".vetted/host/") for name in renamed)
    for point in points:
        undo()
        kills.kill(certify, wheels.root, point, names)
        reached = names.read_text().splitlines() if names.exists() else []
        assert path.exists() == (str(path.relative_to(wheels.root)) in reached), point
        answer = command(wheels.root, *CERTIFY)
        assert answer.code == 0, f"{point}: {answer.err}"
        assert certificate.read(path).predicate.result == "PASSED"
        assert list(wheels.root.rglob("*.partial")) == []
        assert "certified on" in (wheels.root / "README.md").read_text() and generate.stale(wheels.project) == []


def test_lock_survives_a_kill_at_every_point(small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(small.wheelhouse))
    folder, names = small.project.stack_dir(TINY), tmp_path / "names"
    make_wheel(small.wheelhouse, "needed", "3.0", {"needed.py": ""})
    small.edit("stack.toml", '"tiny-lib==1.0"', '"tiny-lib==1.0", "needed"')
    untouched = tmp_path / "untouched"
    shutil.copytree(folder, untouched)

    def lock() -> None:
        resolve.make(small.project, TINY, stack.load(small.project, TINY), small.scratch(), None)

    def files() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    points = list(kills.points(lock, small.root, names))
    whole = files()
    assert {"requirements.txt", "lock.toml"} <= {Path(name).name for name in names.read_text().splitlines()}
    for point in points:
        shutil.rmtree(folder)
        shutil.copytree(untouched, folder)
        kills.kill(lock, small.root, point, names)
        lock()
        assert files() == whole, point
