"""`pip freeze` of a host: what it lists, and what a bundle leaves out because of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.bundle import freeze
from builder.lock import lockfile
from tests.conftest import TINY, Small
from tests.unit.conftest import Command


def test_a_freeze_is_read_by_normalised_names() -> None:
    text = """\
# made on the host
Torch==2.11.0
nvidia_cublas==13.1.0.3
some.Thing===1.0+local

pinned==1.0 ; python_version > "3"
-e git+ssh://somewhere#egg=editable
--hash=sha256:00
from-a-file @ file:///wheels/from_a_file-1.0-py3-none-any.whl
ranged>=1.0
several==1.0,!=1.1
commented==1.0 # and why
"""
    assert freeze.parse(text, "freeze.txt") == {
        "torch": "2.11.0", "nvidia-cublas": "13.1.0.3", "some-thing": "1.0+local", "pinned": "1.0", "commented": "1.0",
    }  # fmt: skip


@pytest.mark.parametrize("line", ["Package    Version", "torch 2.11.0", "WARNING: no index", "{}", "<html>"])
def test_what_is_no_freeze_names_the_line(line: str) -> None:
    with pytest.raises(errors.BadInputError, match=r"freeze\.txt, line 2: ") as caught:
        freeze.parse(f"torch==2.11.0\n{line}\n", "freeze.txt")
    assert "pip freeze" in caught.value.next_step


@pytest.mark.parametrize("content", [None, b"\xff\xfet\x00o\x00"])
def test_a_freeze_that_cannot_be_read_ends_with_3(
    command: Command, small: Small, tmp_path: Path, content: bytes | None
) -> None:
    if content:
        (tmp_path / "freeze.txt").write_bytes(content)
    answer = command(
        small.root, "bundle", TINY, "--output", str(tmp_path / "out"), "--have", str(tmp_path / "freeze.txt")
    )
    assert answer.code == 3
    assert "freeze.txt" in answer.err
    assert not (tmp_path / "out").exists()


def test_only_the_locked_version_is_left_out_and_never_what_is_patched(real: Project, small: Small) -> None:
    lock = lockfile.load(real, "trl1.16-cpu")
    versions = {**lock.versions, "transformers": "5.16.0", "unknown": "1.0"}
    without = freeze.left_out(lock, versions)
    patched = {patch.package for patch in lock.stack.patch}
    assert set(lock.versions) - set(without) == {*patched, "transformers"}
    assert freeze.left_out(small.lock, {"tiny-lib": "1.0"}) == []
