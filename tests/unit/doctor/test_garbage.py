"""Garbage of every kind: an answer, no traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor import __main__ as program
from doctor.answer import diagnose
from doctor.case import Case
from doctor.read import requirements, symptoms
from doctor.read.files import UnreadableError
from tests.conftest import ROOT
from tests.unit.doctor.kit import KNOWLEDGE, install

GARBAGE = {
    "empty": b"",
    "binary": bytes(range(256)) * 64,
    "zeros": b"\0" * 10000,
    "one line": b"x" * 3_000_000,
    "not utf-8": b"Name: \xff\xfe\nVersion: 1.\xff\n\n",
    "no version": b"Name: trl\n\n",
    "a huge version": b"Name: trl\nVersion: " + b"9" * 100_000 + b"\n\n",
    "a huge requirement": b"Name: trl\nVersion: 1.0\nRequires-Dist: " + b"a" * 100_000 + b"\n\n",
    "many requirements": b"Name: trl\nVersion: 1.0\n" + b"Requires-Dist: torch<1\n" * 20_000 + b"\n",
    "a broken requirement": b"Name: trl\nVersion: 1.0\nRequires-Dist: torch >>> 1 ;; what\nRequires-Python: ?\n\n",
    "a broken marker": b"Name: trl\nVersion: 1.0\nRequires-Dist: torch>1; nonsense == 'x'\n\n",
    "a hostile name": b"Name: ../../etc/passwd\nVersion: 1.0\n\n",
    "a shell's name": b"Name: trl; rm -rf /\nVersion: 1.0\n\n",
    "escapes": b"Name: trl\nVersion: 1.0\nRequires-Dist: \x1b[2Jtorch<0.1\n\n",
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_garbage_for_metadata(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    info = tmp_path / "trl-1.0.dist-info"
    info.mkdir()
    for name in ("METADATA", "RECORD"):
        (info / name).write_bytes(content)
    install(tmp_path, "torch", "2.8.0")
    assert program.main(["--python", str(tmp_path)]) in (0, 1)
    output = capsys.readouterr()
    assert (output.err, "\x1b" in output.out) == ("", False)
    assert program.main(["--python", str(tmp_path), "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["packages"]["torch"] == "2.8.0"


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("option", ["--requirements", "--config", "--log"])
def test_garbage_for_every_file_that_can_be_named(
    tmp_path: Path, content: bytes, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, freeze = tmp_path / "garbage", tmp_path / "freeze.txt"
    file.write_bytes(content)
    freeze.write_text("left-pad==1.0\n")
    more = [] if option == "--requirements" else ["--requirements", str(freeze)]
    code = program.main([option, str(file), *more, "--json"])
    answer = json.loads(capsys.readouterr().out)
    sure = [finding for finding in answer.get("findings", ()) if finding["confidence"] != "possible"]
    assert code == (3 if "error" in answer else 1 if sure else 0)
    rubbish = content in (GARBAGE["binary"], GARBAGE["zeros"])
    if rubbish:
        assert "binary" in answer["error"]["what"] or "empty of text" in answer["error"]["what"]
    elif option != "--requirements":
        assert code == 0


def test_text_of_an_unusual_kind_is_text(tmp_path: Path) -> None:
    odd = {
        "colours": b"\x1b[31mValueError: x\x1b[0m\r 10%|#",
        "Chinese": "报错：显存不足\n".encode() * 2000,
        "latin": "Erreur : m\xe9moire insuffisante, d\xe9j\xe0 prise\n".encode("latin-1"),
        "cut while it was written": b"\0" * 500_000 + b"ValueError: x\n" * 9000,
        "nothing": b"",
    }
    for name, content in odd.items():
        file = tmp_path / name
        file.write_bytes(content)
        symptoms.read(str(file))
    for name, content in (("UTF-16", "ValueError".encode("utf-16")), ("an archive", b"PK\x03\x04 and so on")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnreadableError, match=r"iconv|binary"):
            symptoms.read(str(tmp_path / name))


def test_for_chinese_text_in_gbk_the_command_is_named(tmp_path: Path) -> None:
    words = "训练中断:模型的权重没有加载,显存不足。请检查版本是否匹配\n" * 9
    log = tmp_path / "log"
    for cut in range(3):
        log.write_bytes(words.encode("gbk")[: 400 - cut])
        with pytest.raises(UnreadableError, match="if it is Chinese, iconv -f GBK -t UTF-8"):
            symptoms.read(str(log))
    log.write_bytes(words.encode())
    assert "显存不足" in str(symptoms.read(str(log)))
    for rubbish in (bytes(range(128, 256)) * 64, words.encode("gbk")[:400] + bytes(range(32)) * 9):
        log.write_bytes(rubbish)
        with pytest.raises(UnreadableError, match="is binary"):
            symptoms.read(str(log))


@pytest.mark.parametrize(
    "name", ["a folder", "METADATA a folder", "a link to itself", "unreadable", "newline\nname", "-1.0", "\udcff"]
)
def test_hostile_entries_beside_good_ones(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    install(tmp_path, "trl", "0.14.0")
    install(tmp_path, "transformers", "4.52.4")
    entry = tmp_path / f"{name}-1.0.dist-info"
    if name == "a link to itself":
        entry.symlink_to(entry)
    else:
        entry.mkdir()
    if name == "METADATA a folder":
        (entry / "METADATA").mkdir()
    if name == "unreadable":
        (entry / "METADATA").write_text("Name: x\nVersion: 1\n")
        (entry / "METADATA").chmod(0)
    assert program.main(["--python", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["rule"] == "VETTED-0001"


def test_deep_json_and_long_lines_for_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    freeze = tmp_path / "freeze.txt"
    freeze.write_text("left-pad==1.0\n")
    for text in ('{"a":' * 100_000, "[" * 1_000_000, "a=" * 500_000, "a: 'b" * 100_000, "--" + "x " * 400_000):
        for name, code in (("config.json", 1), ("config.yaml", 0)):  # it is no JSON; long lines of YAML are not judged
            config = tmp_path / name
            config.write_text(text)
            assert program.main(["--requirements", str(freeze), "--config", str(config)]) == code
        assert program.main(["--requirements", str(freeze), str(config)]) in (0, 3)
    assert "Traceback" not in capsys.readouterr().err


class Endless(io.RawIOBase):
    """A log of so many bytes, made while it is read."""

    def __init__(self, size: int, line: bytes) -> None:
        self.left, self.line = size, line

    def read(self, size: int = -1) -> bytes:
        chunk = (self.line * (size // len(self.line) + 1))[: min(size, self.left)]
        self.left -= len(chunk)
        return chunk


@pytest.mark.parametrize("line", [b"{'loss': 0.1}\n", b"x", b"\n", b"RuntimeError: it failed with 17\n", b"\x00\xff\n"])
def test_a_log_of_many_megabytes_is_read_once_and_little_is_kept(line: bytes) -> None:
    output = symptoms.condense(Endless(25 * 2**20, line))
    assert sum(map(len, output)) < 500_000


def test_an_error_of_any_length_is_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    freeze = tmp_path / "freeze.txt"
    freeze.write_text("trl==1.0.0\n")
    for text in ("x" * 1_000_000, "'a' has no attribute " * 50_000, "cannot import name '" * 50_000, "\n" * 100_000):
        assert program.main(["--requirements", str(freeze), "--error", text]) in (0, 1)
    assert capsys.readouterr().err == ""


def test_ten_thousand_distributions_are_read() -> None:
    lines = "".join(f"package-{number}==1.0\n" for number in range(10_000))
    case = Case(requirements.of_lines("x", lines + "trl==0.14.0\ntransformers==4.52.4\n"), knowledge=KNOWLEDGE)
    assert diagnose.findings(case)[0].rule == "VETTED-0001"


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_it_says_nothing_of_a_pipe_that_was_closed(more: list[str]) -> None:
    """The reader is gone before it begins: what a small answer leaves in the buffer is written at exit."""
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "doctor", "--requirements", str(ROOT / "requirements.txt"), *more]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(argv, cwd=ROOT, env=buffered, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
