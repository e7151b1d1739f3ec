"""Hollow wheels: what is filled is what was locked, and anything else is refused."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.base import errors
from builder.bundle import hollow, present
from builder.bundle.unbundle.run import _packages
from scripts import first_contact_machine
from tests.conftest import make_wheel

LARGE, OTHER = "large = 1\n" * 4000, "other = 2\n" * 4000
FILES = {"big/large.py": LARGE, "big/other.py": OTHER, "big/empty.py": "", "big/small.py": "small = 3\n"}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "wheels", "big", "1.0", FILES)[0]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    folder = tmp_path / "host"
    (folder / "host-1.0.dist-info").mkdir(parents=True)
    (folder / "a.py").write_text(LARGE)
    return folder


def listed(*texts: str) -> dict[str, int]:
    return {hashlib.sha256(text.encode()).hexdigest(): len(text) for text in texts}


def contents(wheel: Path) -> dict[str, tuple[bytes, int]]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: (archive.read(info), info.external_attr) for info in archive.infolist()}


def test_a_wheel_comes_back_whole(wheel: Path, host: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.getinfo("big/large.py").external_attr = 0o755 << 16
        archive.comment = b"so that it is written again"
    target, filled = tmp_path / "hollow.whl", tmp_path / "filled.whl"
    record = hollow.make(wheel, listed(LARGE), target)
    assert record is not None
    assert target.stat().st_size < wheel.stat().st_size
    assert contents(target)["big/large.py"] == (b"", 0o755 << 16)
    absent = hollow.absent_files(target, record)
    assert absent == listed(LARGE)
    hollow.fill(target, record, present.find([host], absent), filled)
    assert contents(filled) == contents(wheel)


def test_the_same_wheel_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        hollow.make(wheel, listed(LARGE), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("texts", [(), ("nothing of it",), ("small = 3\n",)])
def test_a_wheel_of_which_too_little_is_there_travels_whole(wheel: Path, tmp_path: Path, texts: tuple[str]) -> None:
    assert hollow.make(wheel, listed(*texts), tmp_path / "hollow.whl") is None
    assert not (tmp_path / "hollow.whl").exists()


def rewritten(wheel: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    files = {name: content for name, (content, _) in contents(wheel).items()}
    change(files)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


RECORD = "big-1.0.dist-info/RECORD"


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files.pop("big/small.py"),
        lambda files: files.update({"more.py": b"not in RECORD"}),
        lambda files: files.update({"big/small.py": b"not as in RECORD"}),
        lambda files: files.update({RECORD: files[RECORD].replace(b"sha256", b"sha512")}),
    ],
)
def test_a_wheel_whose_record_does_not_name_its_files_travels_whole(
    wheel: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None]
) -> None:
    rewritten(wheel, change)
    assert hollow.make(wheel, listed(LARGE), tmp_path / "hollow.whl") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda files: files.pop("big/small.py"), "not those of its RECORD: big/small.py"),
        (lambda files: files.update({"evil.pth": b"import evil"}), "not those of its RECORD: evil.pth"),
        (lambda files: files.update({"big/small.py": b"evil = 3\n"}), "the bundle's file is not big/small.py"),
        (lambda files: files.update({RECORD: files[RECORD] + b"\n"}), "RECORD is not the locked one"),
        (lambda files: files.pop(RECORD), "0 RECORD files"),
        (lambda files: files.clear(), "0 RECORD files"),
    ],
)
def test_a_hollow_wheel_that_was_edited_is_refused(
    wheel: Path, host: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None], words: str
) -> None:
    target = tmp_path / "hollow.whl"
    record = hollow.make(wheel, listed(LARGE), target)
    assert record is not None
    rewritten(target, change)
    with pytest.raises(errors.BadInputError) as caught:
        hollow.fill(target, record, present.find([host], listed(LARGE)), tmp_path / "filled.whl")
    assert words in str(caught.value)


def test_a_hollow_wheel_that_is_cut_short_is_refused(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "hollow.whl"
    record = hollow.make(wheel, listed(LARGE), target)
    assert record is not None
    target.write_bytes(target.read_bytes()[:-30])
    with pytest.raises(errors.BadInputError):
        hollow.absent_files(target, record)


def test_a_file_of_the_host_that_changes_while_it_is_read_is_refused(wheel: Path, host: Path, tmp_path: Path) -> None:
    target = tmp_path / "hollow.whl"
    record = hollow.make(wheel, listed(LARGE), target)
    assert record is not None
    paths = present.find([host], listed(LARGE))
    (host / "a.py").write_text(LARGE.replace("1", "9", 1))
    with pytest.raises(errors.BadInputError, match=r"the host's .*a\.py is not big/large\.py"):
        hollow.fill(target, record, paths, tmp_path / "filled.whl")


def test_only_files_with_that_content_are_found(host: Path, tmp_path: Path) -> None:
    (host / "same_size.py").write_text("x" * len(LARGE))
    (host / "gone.py").symlink_to(tmp_path / "nowhere")
    assert present.find([host, tmp_path / "nowhere"], listed(LARGE, OTHER)) == {
        hashlib.sha256(LARGE.encode()).hexdigest(): host / "a.py"
    }


@pytest.mark.parametrize("text", [None, "{", "[]", '{"short": 1}', '{"' + "0" * 64 + '": "1"}', "[" * 100_000])
def test_what_lists_no_files_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "files.json").write_text(text)
    with pytest.raises(errors.BadInputError, match=r"files\.json") as caught:
        present.read(tmp_path)
    assert "first_contact.py look" in caught.value.next_step


def test_what_a_first_contact_lists_is_read(wheel: Path, host: Path, tmp_path: Path) -> None:
    """`look` on the host, `--have` here: small files and folders of others, a project in PYTHONPATH, are left out."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text(OTHER + OTHER)
    (host / "deep").mkdir()
    (host / "deep" / "b.py").write_text(OTHER)
    (host / "small.py").write_text("small = 3\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "path", [str(wheel.parent), str(project), str(host), str(host), str(tmp_path / "nowhere")])
        first_contact_machine.write_files(tmp_path)
        assert _packages() == [str(host), str(host)]
    assert present.read(tmp_path) == listed(LARGE, OTHER)


def test_a_file_that_vanishes_while_the_host_is_read_is_no_traceback(host: Path, tmp_path: Path) -> None:
    (host / "gone.py").write_text(OTHER + OTHER)
    read = first_contact_machine._sha256

    def vanishing(path: Path) -> str:
        if path.name == "gone.py":
            path.unlink()
        return read(path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "path", ["", str(host)])
        patched.setattr(first_contact_machine, "_sha256", vanishing)
        first_contact_machine.write_files(tmp_path)
    assert present.read(tmp_path) == listed(LARGE)
