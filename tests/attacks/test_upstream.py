"""Attacks by what packages, repositories and indexes say of themselves."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from builder.base import errors
from builder.lock import metadata, resolve
from builder.lock.index import File
from tests.conftest import Small, make_wheel

BOMB = metadata.LARGEST + 1  # bytes, all of them the same: some 20 kB as an archive has them


def sdist(folder: Path, pyproject: bytes) -> File:
    path = folder / "said-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("said-1.0/pyproject.toml")
        member.size = len(pyproject)
        archive.addfile(member, io.BytesIO(pyproject))
    return File("said", "1.0", path.name, str(path), "0" * 64)


@pytest.mark.parametrize(
    "line",
    [
        "--find-links {evil}", "-r {evil}/more.txt", "-e {evil}", "setuptools\\n--find-links {evil}",
        "setuptools @ file://{evil}/setuptools-666.0-py3-none-any.whl",
    ],
)  # fmt: skip
def test_what_builds_a_source_distribution_is_an_option_of_the_resolver(
    wheels: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """A line of its pyproject.toml once named another index, another file or a URL, and uv asked there."""
    evil = tmp_path / "evil"
    make_wheel(evil, "setuptools", "666.0", {"setuptools.py": ""})
    (evil / "more.txt").write_text(f"--find-links {evil}\n")
    make_wheel(wheels.wheelhouse, "setuptools", "1.0", {"setuptools.py": ""})
    asked: list[str] = []
    monkeypatch.setattr(resolve, "_best", lambda _stack, _scratch, pins: asked.extend(pins) or [])
    file = sdist(tmp_path, f'[build-system]\nrequires = ["setuptools", "{line.format(evil=evil)}"]\n'.encode())
    with pytest.raises(errors.BadInputError, match=r"said-1\.0\.tar\.gz does not say what builds it"):
        resolve._build_entries(wheels.lock.stack, wheels.scratch(), [file])
    assert asked == []


@pytest.mark.parametrize(
    "content",
    [b"\xff", b"= no TOML", b"build-system = 1", b"[build-system]\nrequires = 5", b"[build-system]\nrequires = [5]",
     b"#" * BOMB],
)  # fmt: skip
def test_a_source_distribution_whose_project_file_is_rubbish(tmp_path: Path, content: bytes) -> None:
    """It is no TOML, of another shape, or larger than anything that a person writes."""
    archive = Path(sdist(tmp_path, content).url).read_bytes()
    for damaged in (archive, archive[: len(archive) // 2], b"no archive"):
        with pytest.raises(errors.BadInputError, match="does not say what builds it"):
            metadata.build_requirements(damaged)


def test_metadata_that_unpacks_to_more_than_the_memory_holds(tmp_path: Path) -> None:
    """A wheel of some kilobytes has gigabytes of METADATA, and a licence is asked for."""
    path = tmp_path / "said-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("said-1.0.dist-info/METADATA", b"Metadata-Version: 2.1\nName: said\n\n" + bytes(BOMB))
    file = File("said", "1.0", path.name, str(path), "0" * 64)
    assert metadata.declared(file) is None
    assert metadata.kept(path) == {}
