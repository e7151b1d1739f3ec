"""`./vetted`: it finds its clone however it is called, and says how it was called."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

SAY = """\
#!/bin/sh
echo "${PYTHONPATH%%:*}"
echo "$VETTED_COMMAND"
echo "$@"
"""


def make(folder: Path) -> Path:
    """A clone whose environment is there already, and whose Python says what it was started with."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "vetted", folder)
    (folder / "nox").symlink_to("vetted")
    (folder / "requirements.txt").touch()
    stamp = subprocess.run(["cksum"], input="", capture_output=True, text=True, check=True).stdout.strip()
    (folder / ".venv" / "stamp").write_text(stamp)
    (folder / ".venv" / "bin" / "python").write_text(SAY)
    (folder / ".venv" / "bin" / "python").chmod(0o755)
    return folder


def call(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", script], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("'a clone/vetted' show", "a clone/vetted"),
        ("cd 'a clone'; ./vetted show", "./vetted"),
        ("cd 'a clone'; sh vetted show", "./vetted"),  # which is not on PATH
        ("bin/vetted show", "bin/vetted"),  # a link
        ("linked/vetted show", "linked/vetted"),  # a link in a folder that is one
        ("bin/v show", "bin/v"),  # a link to a link, under another name
        ("cd other; ../bin/vetted show", "../bin/vetted"),
        ("export CDPATH=$PWD/other; 'a clone/vetted' show", "a clone/vetted"),
        ("export CDPATH=$PWD/other; sh 'a clone/vetted' show", "a clone/vetted"),
        ("unset HOME; bin/vetted show", "bin/vetted"),
    ],
)
def test_it_finds_its_clone(tmp_path: Path, script: str, said: str) -> None:
    clone = make(tmp_path / "a clone")
    (tmp_path / "bin").mkdir()
    (tmp_path / "other" / "a clone").mkdir(parents=True)
    (tmp_path / "other" / "linked").mkdir()
    (tmp_path / "bin" / "vetted").symlink_to("../a clone/vetted")
    (tmp_path / "bin" / "v").symlink_to(tmp_path / "bin" / "vetted")
    (tmp_path / "linked").symlink_to("bin")
    done = call(script, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [os.path.realpath(clone), said, "-P -m builder show"]


def test_on_path_it_is_called_by_the_path_that_was_found(tmp_path: Path) -> None:
    make(tmp_path / "clone")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vetted").symlink_to(tmp_path / "clone" / "vetted")
    done = call("PATH=$PWD/bin:$PATH vetted show", tmp_path)
    assert done.stdout.splitlines()[1] == f"{tmp_path}/bin/vetted"


def test_a_link_named_nox_is_nox(tmp_path: Path) -> None:
    clone = make(tmp_path / "clone")
    (tmp_path / "nox").symlink_to(clone / "nox")
    assert call("./nox -l", tmp_path).stdout.splitlines()[-1] == "-m nox -l"


def test_a_copy_says_that_it_has_no_clone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "vetted", tmp_path)
    (tmp_path / ".venv").mkdir()
    done = call("./vetted list", tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines() == [
        f"vetted: {tmp_path} has no requirements.txt",
        "vetted: usual cause: this file was copied out of its clone",
        "vetted: next: remove the copy; ln -s /path/to/the/clone/vetted './vetted'",
    ]


def test_a_path_that_python_would_split_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "a:b")
    done = call("./vetted list", tmp_path / "a:b")
    assert (done.returncode, "has a colon" in done.stderr) == (4, True)
