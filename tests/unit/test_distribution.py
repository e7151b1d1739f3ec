"""Files of tests that follow another one, in one worker and in this order; files that take long come first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import distribution
from tests.conftest import ROOT


def test_a_file_and_the_one_that_it_follows_are_collected_in_this_order() -> None:
    for file, first in distribution.FOLLOWS.items():
        collected = sorted(path.name for path in (ROOT / first).parent.glob("test_*.py"))
        assert collected.index((ROOT / first).name) < collected.index((ROOT / file).name)


def test_long_files_are_there_and_follow_no_other() -> None:
    assert [file for file in distribution.LONG if not (ROOT / file).is_file()] == []
    assert len(set(distribution.LONG)) == len(distribution.LONG)
    assert not set(distribution.LONG) & distribution.FOLLOWS.keys()


@pytest.fixture
def some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of many short tests, a long file, and one that follows it."""
    (tmp_path / "conftest.py").write_text(
        "from tests import distribution\n"
        "distribution.LONG, distribution.FOLLOWS = ('test_long.py',), {'test_z_after.py': 'test_long.py'}\n"
        "pytest_collection_modifyitems = distribution.pytest_collection_modifyitems\n"
        "pytest_xdist_make_scheduler = distribution.pytest_xdist_make_scheduler\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, count in (("test_a.py", 5), ("test_b.py", 5), ("test_long.py", 1), ("test_z_after.py", 2)):
        (tmp_path / name).write_text("".join(f"def test_{number}(): pass\n" for number in range(count)))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def session(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--numprocesses", "2", "--dist", "loadfile"]
    return subprocess.run([*argv, *options], cwd=folder, capture_output=True, text=True, check=False)


def test_the_long_file_is_begun_first_and_what_follows_it_is_in_its_worker(some: Path) -> None:
    done = session(some)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("[gw")]
    by_worker: dict[str, list[str]] = {}
    for worker, *_, test in lines:
        by_worker.setdefault(worker, []).append(test)
    (long,) = (tests for tests in by_worker.values() if "test_long.py::test_0" in tests)
    assert long[:3] == ["test_long.py::test_0", "test_z_after.py::test_0", "test_z_after.py::test_1"]


HANGING = """\
import os, time

def test_0():
    time.sleep(600)

def test_1():
    os._exit(1)

"""


def test_a_test_that_hangs_or_dies_fails_once_and_shows_where_and_the_others_run(some: Path) -> None:
    (some / "pytest.ini").write_text("[pytest]\nfaulthandler_timeout = 1\nfaulthandler_exit_on_timeout = true\n")
    # Its worker has completed another file before.
    (some / "test_b.py").write_text(HANGING + "def test_2(): pass\n")
    done = session(some)
    assert done.returncode == 1
    for test in ("test_0", "test_1"):
        assert f"crashed while running 'test_b.py::{test}'" in done.stdout
        assert done.stdout.count(f"FAILED test_b.py::{test} - ") == 1
    assert "2 failed, 9 passed" in done.stdout
    assert 'test_b.py", line 4 in test_0' in done.stderr
