"""Files are written whole or not at all, and a stack is held by one process at a time."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.base import errors, project
from builder.base.project import Project
from tests.commands import spawn
from tests.conftest import ROOT, TINY, Small
from tests.unit.conftest import Command

HOLD = f"""\
import sys
from pathlib import Path
from builder.base.project import Project
with Project(Path.cwd()).holding({TINY!r}) as scratch:
    (scratch / "half-done").write_text("x")
    print("held", flush=True)
    sys.stdin.readline()
"""


def line_of(stream: object) -> str:
    assert hasattr(stream, "readline")
    return str(stream.readline())


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """A folder on another file system than the temporary one."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev:
        pytest.skip("this machine has no second file system to write to")
    folder = Path(tempfile.mkdtemp(dir=shared))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("data", ["tëxt\n", b"\x00\xff", ""])
def test_a_written_file_is_whole_and_alone(tmp_path: Path, scratch: Path, data: str | bytes) -> None:
    path = tmp_path / "new" / "folder" / "file"
    project.write(path, data, scratch)
    assert path.read_bytes() == (data if isinstance(data, bytes) else data.encode())
    assert tree(tmp_path) == ["new", "new/folder", "new/folder/file", "scratch"]


def test_a_file_is_replaced_and_not_written_into(tmp_path: Path, scratch: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("before")
    link.hardlink_to(path)
    project.write(path, "after", scratch)
    assert (path.read_text(), link.read_text()) == ("after", "before")


def test_a_file_on_another_disk_is_written_whole_and_alone(tmp_path: Path, other_disk: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    project.write(path, "after", other_disk)
    assert path.read_text() == "after"
    assert tree(tmp_path) == ["file"]


LIMITED = """\
import resource, signal, sys
from pathlib import Path
from builder.base import project
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    project.write(Path(sys.argv[1]), "x" * 5000, Path(sys.argv[2]))
except OSError as error:
    print(error.strerror)
"""


def test_a_write_that_fails_halfway_leaves_the_file_as_it_was(tmp_path: Path, scratch: Path) -> None:
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_text("before")
    with spawn(["-c", LIMITED, str(path), str(scratch)], tmp_path) as child:
        out, err = child.communicate()
    assert (out, err) == ("File too large\n", "")
    assert path.read_text() == "before"
    assert tree(path.parent) == ["file"]


def test_a_write_that_fails_across_disks_leaves_nothing_beside(tmp_path: Path, other_disk: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        project.write(path, "after", other_disk)
    assert tree(tmp_path) == ["file"]


def hold(small: Small) -> subprocess.Popen[str]:
    return spawn(["-c", HOLD], small.root)


def test_a_second_process_waits_and_says_so(small: Small) -> None:
    with hold(small) as first:
        assert line_of(first.stdout) == "held\n"
        with hold(small) as second:
            assert line_of(second.stderr) == f"another vetted is at work on {TINY}; waiting for it to finish\n"
            assert second.poll() is None
            assert second.stdout is not None
            assert select.select([second.stdout], [], [], 0.3)[0] == []  # it is not in, and waits
            assert (small.project.scratch(TINY) / "half-done").exists()
            first.communicate("\n")
            assert first.returncode == 0
            assert line_of(second.stdout) == "held\n"
            second.communicate("\n")
            assert second.returncode == 0


def test_a_killed_holder_frees_the_stack_and_its_scratch_is_wiped(small: Small) -> None:
    with hold(small) as first:
        assert line_of(first.stdout) == "held\n"
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert tree(small.project.scratch(TINY)) == ["half-done"]
    with small.project.holding(TINY) as scratch:
        assert scratch == small.project.scratch(TINY)
        assert tree(scratch) == []


def test_what_is_held_and_is_no_stack_has_a_name_that_no_stack_can_have() -> None:
    """Else a stack of that name would wait for itself."""
    held = re.compile(r"""holding\(f?"(.)|"locks" / f?"(.)""")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "builder").rglob("*.py")]
    first = [match[1] or match[2] for source in sources for match in held.finditer(source)]
    assert len(first) > 20
    assert set(first) == {"."}


def test_a_stack_may_be_called_as_a_part_of_the_work_is(command: Command, small: Small) -> None:
    shutil.copytree(small.project.stack_dir(TINY), small.project.stack_dir("bake"))
    answer = command(small.root, "bake", "bake", "--prepare")
    assert answer.code == 1
    assert answer.err.endswith("next: vetted render bake\n")  # it is held, and looked at


def test_two_stacks_are_held_at_once(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    with small.project.holding("one") as first, small.project.holding("two") as second:
        assert first != second
        assert first.is_dir() and second.is_dir()
    assert capsys.readouterr().err == ""


def test_an_error_while_holding_frees_the_stack_and_wipes_its_scratch(
    small: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), small.project.holding(TINY) as scratch:
        (scratch / "half-done").write_text("x")
        raise ZeroDivisionError
    assert not scratch.exists()
    with small.project.holding(TINY):
        assert capsys.readouterr().err == ""


def test_the_project_is_found_from_any_folder_in_it(small: Small) -> None:
    assert project.find(small.project.stack_dir(TINY)).root == small.root.resolve()


def test_outside_of_a_project_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(errors.BadInputError, match="is not inside a Vetted project") as caught:
        project.find(tmp_path)
    assert "cd " in caught.value.next_step


def test_the_state_can_lie_elsewhere(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert small.project.state == small.root / ".vetted"
    monkeypatch.setenv("VETTED_STATE", str(tmp_path / "elsewhere"))
    with small.project.holding(TINY) as scratch:
        assert scratch.is_relative_to(tmp_path / "elsewhere")
    assert not (small.root / ".vetted").exists()


def test_paths_are_shown_as_a_person_would_type_them(tmp_path: Path) -> None:
    home = Project(tmp_path / "home")
    assert home.relative(home.dockerfile("x")) == "images/x/Dockerfile"
    assert home.relative(tmp_path / "elsewhere") == str(tmp_path / "elsewhere")


def test_a_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert project.sha256(b"abc") == project.sha256_file(tmp_path / "file") == digest
