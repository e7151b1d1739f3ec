"""The doctor in real broken environments: its first finding is the control's own, and its commands make it good."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import broken
from builder.base import project
from tests.conftest import ROOT

# benchmarks/broken.py has the others, and docs/evidence/broken.json what came of them.
REAL = ("trl0.14-transformers4.52",)


@pytest.mark.parametrize("name", REAL)
def test_its_first_finding_is_right_and_its_commands_help(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VETTED_STATE", str(tmp_path / "state"))
    row = broken.run(project.find(ROOT), name)
    assert (row["rule"], row["confidence"]) == (broken.CONTROLS[name][1], "certain")
    assert (row["before"], row["after"]) == ("fails", "passes"), row
    shutil.rmtree(tmp_path / "state")


@pytest.mark.usefixtures("docker")
def test_an_image_that_docker_does_not_have_is_not_looked_for_elsewhere() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "builder", "doctor", "--image", "vetted-no-such-image:1"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert "Docker has no image vetted-no-such-image:1" in done.stderr
