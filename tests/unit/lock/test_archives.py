"""Locked files: where they are downloaded from, and what is kept."""

from __future__ import annotations

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from builder.base import errors
from builder.lock import archives
from builder.lock.index import File
from builder.lock.lockfile import Entry
from tests.conftest import Small


def fetch(small: Small) -> list[Path]:
    paths = archives.fetch(small.project, small.lock.stack, small.lock.python, small.scratch(), lambda _: None)
    return list(paths.values())


def test_a_locked_file_is_fetched_once(wheels: Small) -> None:
    (kept,) = fetch(wheels)
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == wheels.lock.python[0].sha256
    for wheel in wheels.wheelhouse.iterdir():
        wheel.unlink()
    assert fetch(wheels) == [kept]


def test_a_file_that_several_fetch_at_once_is_kept_once(
    wheels: Small, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Controls run side by side and share what they fetch."""
    entry = wheels.lock.python[0]
    (wheel,) = wheels.wheelhouse.iterdir()
    file = File(entry.name, entry.version, wheel.name, str(wheel), entry.sha256)
    tmp_path = tmp_path_factory.mktemp("scratch")

    def once(number: int) -> Path:
        scratch = tmp_path / str(number)
        scratch.mkdir()
        return archives.download(wheels.project, scratch, [file], lambda _: None)[file]

    for _ in range(20):
        shutil.rmtree(wheels.project.state, ignore_errors=True)
        shutil.rmtree(tmp_path, ignore_errors=True)
        tmp_path.mkdir()
        with ThreadPoolExecutor(8) as pool:
            (kept,) = set(pool.map(once, range(8)))
        assert list(kept.parent.iterdir()) == [kept]
        assert archives.kept(wheels.project, entry) == kept


def test_two_files_below_one_hash_are_none(wheels: Small) -> None:
    (kept,) = fetch(wheels)
    (kept.parent / "other.whl").touch()
    assert archives.kept(wheels.project, wheels.lock.python[0]) is None
    assert fetch(wheels) == [kept]
    assert list(kept.parent.iterdir()) == [kept]


def test_a_file_that_is_offered_with_another_hash_only_is_none_of_ours() -> None:
    entry = Entry("tiny-lib", "1.0", "a" * 64)
    offered = [File("tiny-lib", "1.0", "tiny_lib-1.0-py3-none-any.whl", "http://mirror.test/x", "b" * 64)]
    for offers, got in ((offered, f"sha256:{'b' * 64}"), ([], "nothing")):
        with pytest.raises(errors.NetworkError, match=f"got      {got}"):
            archives.of_hash(entry, offers)
