"""What a distribution declares: where it is read, and what is made of broken or hostile metadata."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.base import errors
from builder.lock import index, metadata
from builder.lock.index import File
from tests.conftest import make_wheel

FIELDS = "Metadata-Version: 2.4\nName: said\nVersion: 1.0\n"


def wheel(folder: Path, text: str) -> File:
    path = folder / "said-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("said-1.0.dist-info/METADATA", text)
    return File("said", "1.0", path.name, str(path), "0" * 64)


def sdist(folder: Path, text: str) -> File:
    path = folder / "said-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("said-1.0/PKG-INFO")
        member.size = len(text.encode())
        archive.addfile(member, io.BytesIO(text.encode()))
    return File("said", "1.0", path.name, str(path), "0" * 64)


@pytest.mark.parametrize("make", [wheel, sdist])
def test_metadata_is_read_in_the_file(tmp_path: Path, make: Callable[[Path, str], File]) -> None:
    file = make(tmp_path, f"{FIELDS}Requires-Dist: vllm>=0.10\nLicense-Expression: MIT\n\nA description.\n")
    assert metadata.read(file)["requires_dist"] == ["vllm>=0.10"]
    assert metadata.licence(file) == "MIT"


@pytest.mark.parametrize("make", [wheel, sdist])
@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_a_file_without_metadata_is_a_bad_input(
    tmp_path: Path, make: Callable[[Path, str], File], content: bytes
) -> None:
    file = make(tmp_path, FIELDS)
    Path(file.url).write_bytes(content)
    with pytest.raises(errors.BadInputError, match="has no metadata that can be read"):
        metadata.read(file)
    assert metadata.declared(file) is None
    assert metadata.licence(file) == "unknown"


REMOTE = File("said", "1.0", "said-1.0-py3-none-any.whl", "https://index.test/said-1.0-py3-none-any.whl#x", "0" * 64)


def test_metadata_that_the_index_serves_beside_a_wheel_spares_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = []

    def download(file: File) -> bytes:
        urls.append(file.url)
        return FIELDS.encode()

    monkeypatch.setattr(index, "download", download)
    assert metadata.read(REMOTE)["name"] == "said"
    assert urls == ["https://index.test/said-1.0-py3-none-any.whl.metadata"]


def test_a_large_file_is_not_downloaded_for_its_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = []

    def download(file: File) -> bytes:
        urls.append(file.url)
        return b"<html>not found</html>"

    monkeypatch.setattr(index, "download", download)
    monkeypatch.setattr(index, "size", lambda _: metadata.SMALL)
    assert metadata.declared(REMOTE) is None
    monkeypatch.setattr(index, "size", lambda _: None)
    assert metadata.declared(REMOTE) is None
    assert len(set(urls)) == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("License-Expression: Apache-2.0\nLicense: MIT", ("Apache-2.0",)),
        ("License: MIT", ("MIT",)),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: BSD License", ("BSD License",)),
        ("License: a whole text\n        in several lines\nClassifier: License :: Public Domain", ("Public Domain",)),
        (f"License: {'x' * 121}", ()),
        ("License: \x1b[31mMIT", ()),
        ("Classifier: License :: OSI Approved", ()),
        ("Classifier: Licensed :: x\nClassifier: Topic :: y", ()),
        ("", ()),
    ],
)
def test_licences_are_what_the_metadata_names(text: str, names: tuple[str, ...]) -> None:
    assert metadata.licences(metadata.parse(f"{FIELDS}{text}\n")) == names


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"License", b"Name: \x00\n\n", b"\n\n\n", b"Name: a\nName: b\n"]
)
def test_no_metadata_ends_in_a_traceback(content: bytes) -> None:
    assert metadata.licences(metadata.parse(content)) == ()


def test_the_metadata_of_a_real_wheel_is_read(tmp_path: Path) -> None:
    path, sha256 = make_wheel(tmp_path, "said", "1.0", {}, ["needed>=2"])
    file = File("said", "1.0", path.name, str(path), sha256)
    assert metadata.read(file)["requires_dist"] == ["needed>=2"]


def archive_of(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"x-1/{name.replace('__', '/')}.toml")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("files", "requires"),
    [
        ({"pyproject": '[build-system]\nrequires = ["hatchling>=1", "ninja"]\n'}, ["hatchling>=1", "ninja"]),
        ({"pyproject": "[project]\nname = 'x'\n"}, ["setuptools"]),
        ({"other": ""}, ["setuptools"]),
        ({"vendored__pyproject": '[build-system]\nrequires = ["other"]\n'}, ["setuptools"]),
    ],
)
def test_a_source_distribution_says_what_builds_it(files: dict[str, str], requires: list[str]) -> None:
    assert metadata.build_requirements(archive_of(**files)) == requires
