"""The environment that a log names: looked at where it is on this machine, and never run."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from doctor import __main__ as program
from doctor.read import mention
from tests.conftest import ROOT
from tests.unit.conftest import Command
from tests.unit.doctor.kit import install

LOG = 'Traceback (most recent call last):\n  File "{}/trl/x.py", line 1, in <module>\n    x()\nValueError: x\n'


def log(tmp_path: Path, *folders: object) -> str:
    for folder in map(Path, map(str, folders)):
        if folder.is_dir():  # the module of the frame
            (folder / "trl").mkdir(exist_ok=True)
            (folder / "trl" / "x.py").touch()
    path = tmp_path / "run.log"
    path.write_text("".join(LOG.format(folder) for folder in folders))
    return str(path)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The packages of a virtual environment whose Python would leave a trace if it was run."""
    root = tmp_path / "other"
    (root / "bin").mkdir(parents=True)
    (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    (root / "bin" / "python3").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (root / "bin" / "python3").chmod(0o755)
    site = root / "lib" / "python3.11" / "site-packages"
    install(site, "trl", "0.14.0")
    install(site, "transformers", "4.52.4")
    return site


def ask(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    program.main([*argv, "--json"])
    return json.loads(capsys.readouterr().out)


def test_it_is_looked_at_and_never_run(other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ask(capsys, "--log", log(tmp_path, "/nowhere/lib/python3.11/site-packages", other))
    assert said["looked_at"] == f"the environment that the error names, {tmp_path / 'other'}"
    assert said["packages"] == {"trl": "0.14.0", "transformers": "4.52.4"}
    assert said["findings"][0]["rule"] == "VETTED-0001"
    assert said["run"]["folder_of_the_error"] is None
    assert program.main(["--log", log(tmp_path, other), "--measure"]) == 3
    assert "--measure needs a Python to run" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_the_command_looks_at_it_instead_of_the_usual_python(command: Command, other: Path, tmp_path: Path) -> None:
    answer = command(ROOT, "doctor", "--log", log(tmp_path, other), "--json")
    assert answer.json["packages"] == {"trl": "0.14.0", "transformers": "4.52.4"}


def test_an_environment_that_was_named_goes_before_it(
    other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "freeze.txt").write_text("left-pad==1.0\n")
    said = ask(capsys, "--log", log(tmp_path, other), "--requirements", str(tmp_path / "freeze.txt"))
    assert said["packages"] == {"left-pad": "1.0"}


def test_the_usual_one_stays_where_it_is_the_same(
    command: Command, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "other"))
    answer = command(ROOT, "doctor", "--log", log(tmp_path, other), "--json")
    assert answer.json["looked_at"] == f"the Python {tmp_path / 'other'}"


@pytest.mark.parametrize("kind", ["nothing is installed", "Permission denied"])
def test_one_that_cannot_be_read_is_said_and_the_usual_one_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = tmp_path / "other" / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    if kind == "Permission denied":
        stat = os.stat

        def refused(path: Any, **more: Any) -> os.stat_result:
            if str(path).startswith(f"{folder}/trl/"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return stat(path, **more)

        monkeypatch.setattr(os, "stat", refused)
    said = ask(capsys, "--log", log(tmp_path, folder))
    assert said["looked_at"].startswith("this Python, ")
    assert said["run"]["unreadable"].startswith(f"{folder} cannot be read: ")
    assert (kind == "Permission denied") == ("Permission denied" in said["run"]["unreadable"])
    program.main(["--log", log(tmp_path, folder)])
    out = capsys.readouterr().out
    assert f"The error comes from {folder}, which cannot be read: " in out
    assert "So another environment was looked at." in out


def test_a_folder_of_the_same_name_without_the_files_of_the_error_is_another_machines(
    other: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Every image has /usr/local/lib/python3.11/site-packages."""
    (tmp_path / "run.log").write_text(LOG.format(other))
    said = ask(capsys, "--log", str(tmp_path / "run.log"))
    assert said["looked_at"].startswith("this Python, ")
    assert (said["run"]["folder_of_the_error"], said["run"]["unreadable"]) == (str(other), None)


def test_one_on_another_machine_is_no_problem() -> None:
    text = LOG.format("/nowhere/lib/python3.11/site-packages") + LOG.format("lib/python3.11/site-packages")
    assert mention.of_error(text + LOG.format(r"C:\env\Lib\site-packages")) == (None, None)


def test_a_folder_alone_is_not_taken_for_all_that_is_installed(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    install(site, "trl", "0.14.0", files={"trl/x.py": b""})
    found, problem = mention.of_error(LOG.format(site))
    assert found is not None and problem is None
    assert (found.complete, found.executable, found.version("trl")) == (False, None, "0.14.0")


def test_a_usual_python_that_does_not_answer_is_a_fact_beside_a_log(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    answer = command(ROOT, "doctor", "--error", "KeyError: 1", "--json")
    assert answer.json["run"]["silent"] == f"{tmp_path}/python3 prints something else than what it was asked"
    assert command(ROOT, "doctor").code == 3
