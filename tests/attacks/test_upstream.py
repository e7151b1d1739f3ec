"""Attacks by what packages, repositories and indexes say of themselves."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.lock import index, metadata, resolve
from builder.lock.index import File
from tests.conftest import Small, make_wheel
from tests.localhost import Response, Server

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
    monkeypatch.setattr(resolve, "_best", lambda _stack, _scratch, pins: list(map(asked.append, pins)))
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


class Index(Server):
    """An index that lists one wheel, as somebody made it up."""

    def __init__(self, hashes: Mapping[str, str], url: str = "/x-1.0-py3-none-any.whl") -> None:
        file = {"filename": "x-1.0-py3-none-any.whl", "url": url, "hashes": hashes, "size": 9, "core-metadata": False}
        self.page = json.dumps({"meta": {"api-version": "1.1"}, "name": "x", "files": [file]}).encode()
        super().__init__()

    def respond(self, path: str, _: Mapping[str, str]) -> Response:
        here = path.strip("/") == "x"
        return Response(200 if here else 404, self.page, {"Content-Type": "application/vnd.pypi.simple.v1+json"})


@pytest.fixture
def lists(wheels: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[File]]:
    """What the tool reads of such an index."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))

    def ask(*listed: Any) -> list[File]:
        server = Index(*listed)
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.root)
        try:
            return index.offers(wheels.lock.stack, wheels.scratch(), ["x==1.0"])[0]["x"]
        finally:
            server.close()

    return ask


@pytest.mark.parametrize("hashes", [{"sha512": "a" * 128}, {"md5": "a" * 32}])
def test_an_index_lists_another_hash_than_a_lock_has(
    lists: Callable[..., list[File]], hashes: Mapping[str, str]
) -> None:
    """Old indexes list MD5 alone: it once ended in a traceback."""
    with pytest.raises(errors.BadInputError, match=r"x 1\.0: the index lists no SHA-256"):
        lists(hashes)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_an_index_lists_a_pipe_of_this_machine(lists: Callable[..., list[File]], tmp_path: Path, kind: str) -> None:
    """The address of a file is one of this machine: opening a pipe would wait for a writer, and a device never ends."""
    path = {"pipe": tmp_path / "pipe", "device": Path("/dev/null"), "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    (file,) = lists({"sha256": "a" * 64}, path.as_uri())
    with pytest.raises(errors.NetworkError, match="and no file"):
        index.download(file)
    assert metadata.declared(file) is None
