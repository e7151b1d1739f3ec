"""The commands of an answer exist in the shell that reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from builder.commands import doctor as command
from doctor import __main__ as program
from doctor.answer import shell
from doctor.answer.shell import INDEX, Shell
from tests.conftest import ROOT

VENV = "venv-a/bin/python"


@pytest.mark.parametrize(
    ("uv", "pip"),
    [
        ("uv pip install --python /v/bin/python 'trl>=0.20'", "/v/bin/python -m pip install 'trl>=0.20'"),
        ("uv pip uninstall --python /v/bin/python flash-attn", "/v/bin/python -m pip uninstall --yes flash-attn"),
        (
            "uv pip install --torch-backend=auto --reinstall-package torchvision 'torchvision==0.23.*'",
            f"/e/bin/python -m pip install --force-reinstall --extra-index-url {INDEX}cu128 'torchvision==0.23.*'",
        ),
        (
            "uv pip install --torch-backend=cu126 --reinstall-package torch torch==2.13.0",
            f"/e/bin/python -m pip install --force-reinstall --extra-index-url {INDEX}cu126 torch==2.13.0",
        ),
        (
            "uv pip install --no-build-isolation --reinstall-package flash-attn 'flash-attn>=2.7.4'",
            "/e/bin/python -m pip install --force-reinstall --no-build-isolation 'flash-attn>=2.7.4'",
        ),
        ("uv venv --python 3.11 venv-a", "python3.11 -m venv venv-a"),
        (
            "uv pip sync --python venv-a --require-hashes --torch-backend cpu a.txt",
            f"{VENV} -m pip install --no-deps --extra-index-url {INDEX}cpu --require-hashes --requirement a.txt",
        ),
        ("apt-get install gcc", "apt-get install gcc"),
    ],
)
def test_without_uv_a_command_is_one_for_pip(uv: str, pip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    assert Shell(uv=None).written(uv, "/e/bin/python", "12.8") == pip
    assert Shell(uv="uv").written(uv) == uv


def test_a_uv_that_only_this_tool_has_is_called_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, user = tmp_path / "own", tmp_path / "user"
    for folder in (own, user):
        folder.mkdir()
    (own / "uv").write_text("#!/bin/sh\n")
    (own / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}{user}")
    assert shell.here("vetted doctor").uv == "uv"
    mine = shell.here("vetted doctor", str(own))
    assert mine.written("uv pip install trl", "/env/bin/python") == f"{own}/uv pip install trl"
    assert mine.written("uv pip install --python p trl") == f"{own}/uv pip install --python p trl"
    # Without a Python it would change the packages of this tool.
    assert mine.written("uv pip install trl") == "python3 -m pip install trl"
    monkeypatch.setenv("PATH", str(user))
    assert shell.here("vetted doctor", str(user)).uv is None


def test_a_python_that_the_shell_does_not_have_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    command = Shell(uv=None).written("uv venv --python 3.11 venv-a")
    assert command == "python3 -m pip install uv && python3 -m uv venv --seed --python 3.11 venv-a"


@pytest.mark.parametrize(
    ("mine", "argv"),
    [
        (Shell(), "uv pip freeze --python /e/bin/python"),
        (Shell(uv="/own/uv"), "/own/uv pip freeze --python /e/bin/python"),
        (Shell(uv=None), "/e/bin/python -m pip freeze"),
        (Shell(uv=None, pip=False), f"{sys.executable} -m pip --python /e/bin/python freeze"),
    ],
)
def test_what_is_installed_is_written_down_by_what_the_shell_has(mine: Shell, argv: str) -> None:
    assert mine.freeze("/e/bin/python", "freeze.txt") == f"{argv} > freeze.txt"


def test_without_a_pip_in_the_environment_that_of_this_program_serves_it() -> None:
    words = Shell(uv=None, pip=False).written("uv pip install trl", "/e/bin/python").split()
    assert words[1:] == ["-m", "pip", "--python", "/e/bin/python", "install", "trl"]


def test_the_answer_names_the_command_as_it_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "freeze.txt").write_text("trl==1.15.0\ntorch==2.13.0+cpu\n")
    monkeypatch.setenv("VETTED_COMMAND", "./vetted")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command._here([f"--requirements={tmp_path / 'freeze.txt'}"]) in (0, 1)
    output = capsys.readouterr().out
    assert "$ ./vetted doctor --lock-of " in output
    assert "$ uv " not in output


def test_the_script_says_how_it_was_called(tmp_path: Path) -> None:
    script = tmp_path / "vetted"
    script.write_text((ROOT / "vetted").read_text())
    script.chmod(0o755)
    (tmp_path / "requirements.txt").write_text("")
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    stamp = subprocess.run(["cksum"], input=b"", capture_output=True, check=True)
    (tmp_path / ".venv" / "stamp").write_text(stamp.stdout.decode().strip())
    (binaries / "python").write_text('#!/bin/sh\necho "$VETTED_COMMAND"\n')
    (binaries / "python").chmod(0o755)
    answer = subprocess.run(["./vetted", "doctor"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer.stdout == "./vetted\n"


def test_a_program_of_its_own_is_called_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VETTED_DOCTOR", raising=False)
    monkeypatch.setattr("sys.argv", ["doctor.py"])
    assert program._own_command().endswith(" doctor.py")
