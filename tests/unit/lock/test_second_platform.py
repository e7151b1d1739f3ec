"""A stack that is for arm64 too: locked at the same versions, with the files of each platform."""

from __future__ import annotations

import io
import tarfile

import pytest

from builder.base import errors
from builder.lock import debian, lockfile
from builder.lock.lockfile import Entry
from tests.conftest import TINY, make_wheel
from tests.unit.lock.conftest import Bench


def arm64(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack is for arm64 as well, where the mirror has one package."""
    bench.small.edit("stack.toml", 'debian = "bookworm"', 'debian = "bookworm"\nplatforms = ["amd64", "arm64"]')
    monkeypatch.setattr(debian, "resolve", lambda stack, _: [Entry(f"libc6-{stack.platform.machine}", "1", "0" * 64)])


def retag(bench: Bench, name: str, version: str, tag: str) -> str:
    """A wheel for one platform, of another content than the others of this version."""
    folder = bench.small.root / tag
    wheel, sha256 = make_wheel(folder, name, version, {f"{name}.py": f"tag = {tag!r}\n"})
    wheel.rename(bench.small.wheelhouse / wheel.name.replace("none-any", f"none-{tag}"))
    return sha256


def test_a_second_platform_is_locked_at_the_same_versions_with_its_own_files(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm64(bench, monkeypatch)
    ours, theirs = (retag(bench, "one", "1.0", f"manylinux_2_28_{machine}") for machine in ("x86_64", "aarch64"))
    retag(bench, "one", "2.0", "manylinux_2_28_aarch64")  # newer, and not for amd64
    shared = bench.offer("two", "1.0")
    bench.require("tiny-lib==1.0", "one", "two")
    assert bench.lock() is True
    first, second = lockfile.load_all(bench.small.project, TINY)
    assert first.versions == second.versions and first.versions["one"] == "1.0"
    files = [{entry.name: entry.sha256 for entry in lock.python} for lock in (first, second)]
    assert [(each["one"], each["two"]) for each in files] == [(ours, shared), (theirs, shared)]
    assert second.debian == (Entry("libc6-aarch64", "1", "0" * 64),)
    assert bench.lock() is False


def test_a_distribution_without_a_file_for_the_second_platform_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm64(bench, monkeypatch)
    retag(bench, "one", "1.0", "manylinux_2_28_x86_64")
    bench.require("tiny-lib==1.0", "one")
    before = bench.written
    with pytest.raises(errors.BadInputError, match="no solution on arm64") as caught:
        bench.lock()
    assert "one" in caught.value.what
    assert bench.written == before


def test_a_source_distribution_is_built_for_the_second_platform_only_where_it_is_built_anyway(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm64(bench, monkeypatch)
    retag(bench, "one", "1.0", "manylinux_2_28_x86_64")
    with tarfile.open(bench.small.wheelhouse / "one-1.0.tar.gz", "w:gz") as archive:
        for name, text in {"PKG-INFO": "Metadata-Version: 2.1\nName: one\nVersion: 1.0\n", "setup.py": ""}.items():
            member = tarfile.TarInfo(f"one-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    bench.require("tiny-lib==1.0", "one")
    with pytest.raises(errors.BadInputError, match=r"no wheel for arm64: one 1\.0"):
        bench.lock()
