"""The exchange of a stack for its candidate: one step, so that a kill leaves the old one or the new one, complete."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from builder.certify import certificate, certify
from builder.image import render, target
from builder.intent.platform import ARM64
from builder.lock import lockfile
from builder.upgrade import aside
from tests.commands import spawn
from tests.conftest import TINY, Small
from tests.unit.upgrade.moving import Moving

pytestmark = pytest.mark.engine  # most of them install two environments and run them

KILL = "os.kill(os.getpid(), signal.SIGKILL)"
MOMENTS = {
    "before the exchange": ("1.0", f"aside._exchange = lambda *_: {KILL}"),
    "after the exchange": ("2.0", f"real = aside._exchange; aside._exchange = lambda *a: (real(*a), {KILL})"),
    "before rendering": ("2.0", f"aside._move_state = lambda *_: {KILL}"),
    "while the suite runs": ("1.0", f"from builder.certify import certify; certify.examine = lambda *_, **__: {KILL}"),
    "while it is copied": ("1.0", f"aside._flush = lambda *_: {KILL}"),
}  # fmt: skip


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_the_stack_is_the_old_or_the_new_one_whole(moving: Moving, moment: str) -> None:
    expected, fault = MOMENTS[moment]
    argv = ["vetted", "recertify", TINY, "--engine", "host", "--upgrade", "tiny-lib==2.0"]
    imports = "import os, signal, sys; from builder import cli; from builder.upgrade import aside"
    code = f"{imports}; sys.argv = {argv!r}; {fault}; cli.main()"
    before = moving.committed()
    # What the fixture keeps from this machine's own libraries, a process of its own would look for.
    nothing = "from builder.lock import debian; debian.LIBRARIES = {}; "
    with spawn(["-c", nothing + code], moving.small.root) as child:
        _, err = child.communicate()
    assert child.returncode == -signal.SIGKILL, err
    assert moving.whole() == expected
    if expected == "1.0":
        assert moving.committed() == before
    # The next one finishes what was begun, or does it all.
    assert moving.recertify("tiny-lib==2.0")["outcome"] == ("green" if expected == "1.0" else "nothing")
    assert moving.whole() == "2.0"
    assert moving.command(moving.small.root, "render", "--check").code == 0


def test_what_somebody_edits_meanwhile_is_not_lost(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    run = certify.examine

    def edits(*arguments: Any, **options: Any) -> certificate.Statement:
        moving.small.edit("stack.toml", "it greets nobody", "it greets no one")
        return run(*arguments, **options)

    monkeypatch.setattr(certify, "examine", edits)
    answer = moving.recertify("tiny-lib==2.0", code=1)
    assert "was changed while the candidate was tried" in answer["error"]["what"]
    assert "it greets no one" in moving.small.file("stack.toml").read_text()
    assert moving.small.lock.versions == {"tiny-lib": "1.0"}


def test_a_copy_of_a_stack_makes_the_image_that_the_stack_itself_would(small: Small, tmp_path: Path) -> None:
    copy = aside.make(small.project, TINY, tmp_path / "aside")
    text = small.project.dockerfile(TINY).read_text()
    assert target.inputs_of(copy, lockfile.load(copy, TINY), text) == small.inputs


def test_the_dockerfile_for_another_platform_is_rendered_too(small: Small) -> None:
    small.edit("stack.toml", 'debian = "bookworm"', 'debian = "bookworm"\nplatforms = ["amd64", "arm64"]')
    for file in ("requirements.txt", "debian.txt"):
        shutil.copy(small.file(file), small.file(ARM64.file(file)))
    note = aside._note(small.project, TINY)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()
    assert aside.finish(small.project, TINY, small.scratch())
    assert [render.difference(small.project, lock) for lock in lockfile.load_all(small.project, TINY)] == ["", ""]


def test_folders_that_cannot_be_exchanged_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(OSError, match="No such file"):
        aside._exchange(tmp_path / "one", tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
