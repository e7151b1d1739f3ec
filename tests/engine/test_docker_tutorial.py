"""docs/tutorial/own-run.md: every command of it, in its order, in the image of test_docker.py, within ten minutes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engine.conftest import Workshop
from tests.engine.training import rows, runs

PAGE = (ROOT / "docs" / "tutorial" / "own-run.md").read_text(encoding="utf-8")
ALLOWED = 600  # seconds
TYPED = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.org"}


# For the certificate of the newcomer's image two probes will do here: test_docker.py has the whole suite.
CERTIFY = "./vetted certify mine\n"
SHORT = "mv smoke/probes probes && mkdir smoke/probes && cp probes/imports.py probes/chat_template.py smoke/probes"


def commands() -> str:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    typed = "".join(blocks)
    assert typed.count(CERTIFY) == 1
    return typed.replace(CERTIFY, f"{SHORT}\n{CERTIFY}")


@pytest.fixture
def whole_suite(chosen: Workshop) -> Iterator[None]:
    """The tests that follow have the whole suite again."""
    yield
    if (whole := chosen.root / "probes").exists():
        shutil.rmtree(chosen.root / "smoke" / "probes")
        whole.rename(chosen.root / "smoke" / "probes")


@pytest.mark.usefixtures("whole_suite")
def test_a_newcomer_trains_an_own_script_with_an_own_package_in_ten_minutes(
    chosen: Workshop, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    command = chosen.root / "vetted"  # as in a clone, with this Python
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m builder "$@"\n')
    command.chmod(0o755)
    request.addfinalizer(command.unlink)
    mine = tmp_path / "my-training"
    names = {name.replace("AUTHOR", "COMMITTER"): value for name, value in TYPED.items()}
    env = {**os.environ, **TYPED, **names, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euc", commands()], cwd=chosen.root, env={**env, "PWD": str(chosen.root)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=ALLOWED,
    )  # fmt: skip
    request.addfinalizer(lambda: subprocess.run(["docker", "image", "rm", "--force", *images()], capture_output=True))
    assert done.returncode == 0, done.stdout
    first, plain, packaged = runs(mine)
    assert [len(rows(run)) for run in (first, plain, packaged)] == [5, 20, 20]
    assert all((run / "plot.png").is_file() for run in (plain, packaged))
    assert "mine is certified for this hardware" in done.stdout
    committed = subprocess.run(["git", "ls-files"], cwd=mine, capture_output=True, text=True, check=True).stdout.split()
    assert {"compose.yaml", "vetted/certificates.json", "my_train.py", "stacks/mine/requirements.txt"} <= set(committed)
    assert ".env" not in committed


def images() -> list[str]:
    listed = subprocess.run(["docker", "images", "--quiet", "vetted/mine"], capture_output=True, text=True, check=False)
    return listed.stdout.split()
