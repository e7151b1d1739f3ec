"""The command, the program and the single file."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from doctor import __main__ as program
from tests.conftest import ROOT
from tests.unit.conftest import Command
from tests.unit.doctor.kit import install


def test_the_command_answers_with_its_exit_code(command: Command, tmp_path: Path) -> None:
    freeze = tmp_path / "freeze.txt"
    freeze.write_text("trl==0.14.0\ntransformers==4.52.4\n")
    answer = command(ROOT, "doctor", "--requirements", str(freeze), "--json")
    assert answer.code == 1
    assert answer.json["findings"][0]["rule"] == "VETTED-0001"
    freeze.write_text("left-pad==1.0\n")
    assert command(ROOT, "doctor", "--requirements", str(freeze)).code == 0
    answer = command(ROOT, "doctor", "--requirements", str(tmp_path / "none.txt"))
    assert (answer.code, answer.out) == (3, "")
    assert "No such file" in answer.err and "next: vetted doctor --help" in answer.err
    assert command(ROOT, "doctor", "--requirements", str(freeze), "--python", "x").code == 2


def test_its_json_is_json_for_every_program(command: Command, tmp_path: Path) -> None:
    (tmp_path / "freeze.txt").write_text("left-pad==1.0\n")
    answer = command(tmp_path, "doctor", "--requirements", "freeze.txt", "--error", "\udcff", "--json")
    assert answer.json["run"]["error"] == "\ufffd"


def test_the_environment_that_is_active_is_the_one_looked_at(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    install(tmp_path / "lib" / "python3.11" / "site-packages", "trl", "0.14.0")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert command(ROOT, "doctor", "--json").json["packages"] == {"trl": "0.14.0"}


def test_the_single_file_runs_alone_and_is_the_same_twice(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "doctor.py"
    assert command(ROOT, "doctor", "--single-file", str(file)).code == 0
    first_bytes = file.read_bytes()
    assert command(ROOT, "doctor", "--single-file", str(file), "--json").json["bytes"] == len(first_bytes)
    assert file.read_bytes() == first_bytes
    (tmp_path / "freeze.txt").write_text("trl==0.14.0\ntransformers==4.52.4\n")
    argv = [sys.executable, "-I", str(file), "--requirements", str(tmp_path / "freeze.txt"), "--json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["findings"][0]["rule"] == "VETTED-0001"


def test_its_program_speaks_json_when_it_cannot_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert program.main(["--requirements", str(tmp_path / "none"), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 3
    assert program.main(["--log", str(tmp_path / "none"), "--python", sys.executable]) == 3
    assert program.main(["--lock-of", "no-such"]) == 3
    assert program.main(["--lock-of", "trl1.16-cpu"]) == 0
    assert "trl==1.16.0 --hash=sha256:" in capsys.readouterr().out


def test_an_image_needs_an_engine(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = command(ROOT, "doctor", "--image", "x")
    assert (answer.code, answer.out) == (4, "")


def test_what_is_no_name_of_an_image_is_no_option_of_docker(command: Command) -> None:
    answer = command(ROOT, "doctor", "--image", "--privileged")
    assert answer.code == 3
    assert "--privileged is no name of an image" in answer.err


def test_a_configuration_that_states_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "pins.txt").write_text("trl==1.16.0\n")
    arguments = ["--requirements", str(tmp_path / "pins.txt"), "--config", str(tmp_path / "empty.yaml")]
    program.main(arguments)
    assert "empty.yaml has no setting that the doctor knows" in capsys.readouterr().out.replace("\n  ", " ")


def test_a_list_does_not_show_that_pip_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without uv
    (tmp_path / "freeze.txt").write_text("trl==0.14.0\ntransformers==4.52.4\n")  # `pip freeze` leaves pip out
    program.main(["--requirements", str(tmp_path / "freeze.txt")])
    assert "$ python3 -m pip install 'transformers<4.52'" in capsys.readouterr().out


def test_it_is_written_for_python_3_9_and_imports_nothing_else() -> None:
    for file in (ROOT / "doctor").rglob("*.py"):
        tree = ast.parse(file.read_text(), feature_version=(3, 9))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                assert top in {*sys.stdlib_module_names, "doctor", "packaging", "pip"}, f"{file.name}: {name}"
                assert top not in {"tomllib"}, file.name
