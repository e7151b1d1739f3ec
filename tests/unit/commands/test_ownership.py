"""A path that a person names for an answer: a file of theirs that is there is neither overwritten nor followed to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.base import ownership
from builder.base.errors import StorageError
from builder.trajectory import record
from tests.conftest import ROOT, TINY, Small
from tests.registry.conftest import make_image
from tests.unit.conftest import Command
from tests.unit.publish.policy.test_policy import write as write_policy

CLUSTER = ("--on", "kubernetes", "--image-registry", "registry.example/team/images")
# What is typed, without the path, and the file below it that would be written.
FILES = {
    "policy": (("policy", "policy.toml", "--output"), "cosign.rego"),
    "manifest": (("fleet", TINY, *CLUSTER, "--manifest"), ""),
    "statements": (("fleet", TINY, "--on", "local", "--output"), f"{TINY}-host.json"),
    "doctor": (("doctor", "--single-file"), ""),
    "picture": (("trajectories", TINY, "--engine", "host", "--picture"), ""),
    "record": (("trajectories", TINY, "--engine", "host", "--output"), ""),
    "statements of OSV": (("watch", TINY, "--osv", "osv", "--vex"), ""),
}
# What is there is read, and kept or refused as what it is.
READ = ("record", "statements of OSV")


@pytest.fixture
def project(small: Small) -> Small:
    make_image(small)
    write_policy(small)
    (small.root / "osv").mkdir()
    (small.root / "doctor").symlink_to(ROOT / "doctor")
    for name in record.TASK:
        (small.project.smoke / name).parent.mkdir(exist_ok=True)
        (small.project.smoke / name).touch()
    return small


@pytest.fixture(params=[name for name in FILES if name not in READ])
def written(request: pytest.FixtureRequest) -> Iterator[tuple[tuple[str, ...], str]]:
    yield FILES[request.param]


def test_a_file_of_somebody_else_stays_and_is_named(
    command: Command, project: Small, written: tuple[tuple[str, ...], str], tmp_path: Path
) -> None:
    argv, name = written
    file = tmp_path / "mine" / name if name else tmp_path / "mine"
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"mine": 1}')
    answer = command(project.root, *argv, str(tmp_path / "mine"))
    assert (answer.code, file.read_text()) == (6, '{"mine": 1}'), answer.err
    assert f"{file} is not Vetted's, so it stays as it is\nnext: " in answer.err


@pytest.mark.parametrize("which", FILES)
def test_a_link_is_neither_followed_nor_lost(command: Command, project: Small, which: str, tmp_path: Path) -> None:
    argv, name = FILES[which]
    file = tmp_path / "mine" / name if name else tmp_path / "mine"
    file.parent.mkdir(exist_ok=True)
    file.symlink_to(tmp_path / "behind")
    answer = command(project.root, *argv, str(tmp_path / "mine"))
    assert (answer.code, file.is_symlink(), (tmp_path / "behind").exists()) == (6, True, False), answer.err
    assert f"{file} is a link, so it stays as it is\nnext: " in answer.err


@pytest.mark.parametrize("which", ["policy", "manifest", "doctor"])
def test_what_was_written_is_written_again(command: Command, project: Small, which: str, tmp_path: Path) -> None:
    argv, name = FILES[which]
    file = tmp_path / "ours" / name if name else tmp_path / "ours"
    assert command(project.root, *argv, str(tmp_path / "ours")).code == 0
    content = file.read_bytes()
    file.write_bytes(content + b"\n# of an older version\n")
    assert command(project.root, *argv, str(tmp_path / "ours")).code == 0
    assert file.read_bytes() == content


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="is there and is not a file"):
        ownership.refuse(tmp_path / "folder", lambda _: True, "")
    ownership.refuse(tmp_path / "none", lambda _: False, "")
