"""The contracts of import-linter in pyproject.toml: an import upwards is red. (`./nox -s lint` checks our own.)"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("builder", "doctor", "runtime", "smoke")


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("builder/lock/audit.py", "import builder.certify.certify", "A stage imports what lies below it"),
        ("smoke/run/child.py", "import smoke.kit.tiny", "A probe stands on the kit, the kit on the runner"),
        (
            "runtime/config/look.py",
            "import runtime.train.launch",
            "No check imports the run",
        ),
        ("doctor/case.py", "import builder.base.errors", "What runs elsewhere does not know the builder"),
    ],
)
def test_an_import_upwards_is_red(file: str, line: str, contract: str, tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / file).open("a") as source:
        source.write(f"{line}\n")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{contract} BROKEN" in done.stdout
    assert done.stdout.count(" BROKEN") == 1
