"""A small stack to lock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.intent import stack
from builder.lock import resolve
from tests.conftest import TINY, Small, make_wheel
from tests.unit.lock import mirror as mirrors

FILES = ("requirements.txt", "build.txt", "debian.txt", "lock.toml")


class Bench:
    """A stack whose wheels lie in its wheelhouse, to be locked."""

    def __init__(self, small: Small) -> None:
        self.small = small
        self.requirements = '"tiny-lib==1.0"'

    def offer(self, name: str, version: str, *requires: str) -> str:
        return make_wheel(self.small.wheelhouse, name, version, {f"{name}.py": ""}, requires)[1]

    def require(self, *requires: str) -> None:
        requirements = ", ".join(f'"{line}"' for line in requires)
        self.small.edit("stack.toml", f"requires = [{self.requirements}]", f"requires = [{requirements}]")
        self.requirements = requirements

    def lock(self, upgrade: Sequence[str] | None = None) -> bool:
        changed = stack.load(self.small.project, TINY)
        resolve.refuse_upgrade(self.small.project, TINY, upgrade or ())
        return resolve.make(self.small.project, TINY, changed, self.small.scratch(), upgrade)

    @property
    def versions(self) -> dict[str, str]:
        return self.small.lock.versions

    @property
    def written(self) -> dict[str, bytes]:
        return {name: self.small.file(name).read_bytes() for name in FILES}


@pytest.fixture
def bench(small: Small, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(small.wheelhouse))
    return Bench(small)


@pytest.fixture
def mirror(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A stack of one Debian package, and a mirror that has it: the one whose faults a test chooses."""
    mirrors.install(small, tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:/usr/bin:/bin")
    monkeypatch.setenv("VETTED_DEBIAN_MIRROR", mirrors.MIRROR)
    monkeypatch.setenv("VETTED_DEBIAN_SNAPSHOT", "http://127.0.0.1:9")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    return small
