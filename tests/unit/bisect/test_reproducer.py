"""The reproducer that a bisection writes shows the fault with uv alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LIBRARY, TINY, make_wheel
from tests.unit.bisect.conftest import Parts, condition, names

pytestmark = pytest.mark.engine  # each of them installs a dozen environments


def test_the_reproducer_shows_it_with_uv_alone(parts: Parts, tmp_path: Path) -> None:
    parts.breaks('has("d")')
    folder = Path(parts.ask()["reproducer"]).parent
    moved = folder.rename(tmp_path / "elsewhere")
    uv = Path(sys.executable).parent
    done = subprocess.run(
        [sys.executable, "-S", str(moved / "reproduce.py")],
        env={**os.environ, "PATH": f"{uv}:{os.environ['PATH']}", "UV_FIND_LINKS": str(parts.small.wheelhouse)},
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "good: passed\nbad: failed: ValueError: it broke\n"
    differing = set((moved / "bad.txt").read_text().splitlines()) - set((moved / "good.txt").read_text().splitlines())
    assert [line.split("==")[0] for line in differing] == ["part-d"]


def test_the_reproducer_patches_what_the_stack_patches(parts: Parts, tmp_path: Path) -> None:
    """The probe is green only where the stack's patch is; the upgrade has none."""
    make_wheel(parts.small.wheelhouse, "tiny-lib", "2.0", {"tiny_lib.py": LIBRARY})
    parts.suite("import tiny_lib\n" + condition('tiny_lib.greeting != "somebody"'))
    argv = ["bisect", "packages", "--good", TINY, "--bad", "tiny-lib==2.0", "--probe", "works", "--json"]
    answer = parts.command(parts.small.root, *argv)
    assert answer.code == 0, answer.err
    assert names(answer.json["culprits"]) == ["tiny-lib"]
    done = subprocess.run(
        [sys.executable, answer.json["reproducer"]],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "UV_FIND_LINKS": str(parts.small.wheelhouse),
        },
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "good: passed\nbad: failed: ValueError: it broke\n"), done.stderr
