"""Attacks on the doctor with files: environments, lists and logs that are made to stop it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from doctor import __main__ as program
from doctor.answer import diagnose
from doctor.case import Case
from doctor.read import files, requirements, symptoms
from doctor.read.elf import Effort, NotElfError, SharedObject
from tests.attacks.doctor import ask, venv
from tests.unit.doctor.elf import SYMBOL, shared_object
from tests.unit.doctor.kit import KNOWLEDGE, install, of, only

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
    """Opening a pipe waits for a writer, and a device never ends."""
    special(tmp_path / "hostile", kind)
    more = ["--python", str(venv(tmp_path / "venv"))] if option in ("--config", "--log") else []
    code, out, err = ask(option, str(tmp_path / "hostile"), *more)
    assert (code, out) == (3, "")
    assert str(tmp_path / "hostile") in err


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipe_or_a_device_is_named_without_an_option(tmp_path: Path, kind: str) -> None:
    """What a path is can only be told by opening it."""
    special(tmp_path / "hostile", kind)
    code, out, err = ask(str(tmp_path / "hostile"))
    assert (code, out) == (3, "")
    assert str(tmp_path / "hostile") in err


def test_a_log_names_an_environment_of_its_author(tmp_path: Path) -> None:
    """Its Python is a program of whoever sent the log: the packages are read, and it is never run."""
    root = venv(tmp_path / "venv")
    for name in ("python", "python3", "python3.11"):
        (root / "bin" / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (root / "bin" / name).chmod(0o755)
    site = root / "lib" / "python3.11" / "site-packages"
    (site / "x.py").touch()
    (tmp_path / "run.log").write_text(
        f'Traceback (most recent call last):\n  File "{site}/x.py", line 1\nKeyError: 1\n'
    )
    for more in ([], ["--measure"]):
        assert ask(str(tmp_path / "run.log"), *more)[0] == (3 if more else 0)
    assert not (tmp_path / "ran").exists()
    (root / "pyvenv.cfg").unlink()  # then its Python would have to be asked
    assert ask(str(tmp_path / "run.log"))[0] in (0, 1)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipe_or_a_device_lies_in_the_environment(tmp_path: Path, kind: str) -> None:
    """Every file that the doctor reads in an environment is a pipe or a device."""
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
    """Between the check and the opening the file becomes a pipe."""
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
    """A sparse file costs its author nothing, but reading all of it fills the memory."""
    root = venv(tmp_path / "venv")
    with (root / "pyvenv.cfg").open("wb") as file:
        file.write(content)
        file.truncate(50 * 2**30)
    code, out, err = ask("--python", str(root))
    assert (code, err) == (1, "")
    assert "pyvenv.cfg is larger than 64 KB" in out
    assert ": 1 package," in out


def test_a_log_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the beginning and the end of a very large log are read."""
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
    """Not all of a million names are listed, and the answer says so."""
    monkeypatch.setattr(files, "MOST_NAMES", 50)
    for number in range(100):
        (tmp_path / f"package_{number}-1.0.dist-info").mkdir()
    case = of(tmp_path)
    assert len(case.environment.packages) <= 50
    assert not case.environment.complete
    assert "more than 50" in only(case, "unread").title


def test_metadata_that_fills_the_memory_of_who_keeps_it(tmp_path: Path) -> None:
    """Hundreds of distributions declare thousands of requirements, each far too long."""
    line = "Requires-Dist: " + "a" * 400 + "\n"
    for number in range(400):
        info = install(tmp_path, f"p{number}", "1.0")
        (info / "METADATA").write_text(f"Name: p{number}\nVersion: 1.0\n" + line * 1200 + "\n")
    code, out, err = ask("--python", str(tmp_path), memory=700)
    assert (code, err) == (1, "")
    assert "more metadata than any environment needs" in out


def test_a_shared_object_with_endless_symbols_and_names(tmp_path: Path) -> None:
    """Symbols that share one long string table cost their author little, but copying each name takes gigabytes."""
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
    """A RECORD names files by an absolute path, or by a path that no system can open."""
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
    """Brackets are nested deeper than Python's recursion limit, and blanks make a pattern backtrack."""
    (tmp_path / "list.txt").write_text("left-pad==1.0\n" + f"{line}\n" * 3000)
    code, _, err = ask("--requirements", str(tmp_path / "list.txt"))
    assert (code, err) == (0, "")
    info = install(tmp_path / "site", "trl", "1.0.0")
    (info / "METADATA").write_text(f"Name: trl\nVersion: 1.0.0\nRequires-Dist: {line}\n")
    code, _, err = ask("--python", str(tmp_path / "site"))
    assert (code, err) == (0, "")


def test_an_error_without_end_is_cut() -> None:
    """An error of megabytes is cut before any pattern is tried."""
    assert len(symptoms.plain("\n".join(["x" * 2000] * 5000))) <= symptoms.MOST + 5000


@pytest.mark.parametrize("piece", ["a1-", "A.", "a(", "increas", "/a.so", "a 1 requires b <1,"])
def test_an_error_that_patterns_try_in_every_way(piece: str) -> None:
    """Each line has two thousand letters that begin a match: it once took minutes."""
    text = symptoms.plain("\n".join([(piece * 2000)[:2000]] * 40))
    case = Case(requirements.of_versions("x", {"torch": "2.8.0"}), error=text, knowledge=KNOWLEDGE)
    assert isinstance(diagnose.findings(case), list)


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", "a" * 5000, "/root\udcff/x"])
def test_a_path_that_no_system_can_open(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A user that does not exist, a name that is too long, invalid characters."""
    for option in ("--python", "--requirements", "--log"):
        assert program.main([option, name]) == 3
    assert capsys.readouterr().err.count("doctor: ") == 3


def test_a_name_that_leads_out_of_its_folder(tmp_path: Path) -> None:
    """METADATA names ../../x, and a version of ten megabytes."""
    for number, (name, version) in enumerate((("../../x", "1.0"), ("x", "9" * 10_000_000))):
        (tmp_path / f"y{number}-1.0.dist-info").mkdir()
        (tmp_path / f"y{number}-1.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n\n")
    assert {package.name: package.version for package in of(tmp_path).environment.packages.values()} == {
        "y0": "1.0",
        "y1": "1.0",
    }
