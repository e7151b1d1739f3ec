"""The doctor on shared objects, made here byte by byte, and on garbage of every kind: an answer, no traceback."""

from __future__ import annotations

import io
import json
import random
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from doctor import __main__ as program
from doctor.answer import diagnose
from doctor.case import Case
from doctor.checks.compiled import LIBRARIES
from doctor.know import data
from doctor.read import requirements, symptoms
from doctor.read.elf import NotElfError, SharedObject, gnu_hash
from tests.conftest import ROOT
from tests.unit.doctor.test_doctor import install, of, only, rules

KNOWLEDGE = data.load()
SYMBOL = "_ZN3c105ErrorC2ENS_14SourceLocationESs"


def shared_object(needs: Sequence[str] = (), asks: Sequence[str] = (), offers: Sequence[str] = ()) -> bytes:
    """A 64-bit ELF file with the sections that a loader reads: strings, symbols, their hash table, what it needs."""
    offers = sorted(offers, key=lambda one: gnu_hash(one) % 2)
    strings, places = b"\0", {}
    for text in (*needs, *asks, *offers):
        places[text] = len(strings)
        strings += text.encode() + b"\0"
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for name in asks:
        symbols += struct.pack("<IBBHQQ", places[name], 0x12, 0, 0, 0, 0)
    for name in offers:
        symbols += struct.pack("<IBBHQQ", places[name], 0x12, 0, 7, 4096, 8)
    first = 1 + len(asks)
    buckets, chain = [0, 0], b""
    for number, name in enumerate(offers):
        bucket = gnu_hash(name) % 2
        buckets[bucket] = buckets[bucket] or first + number
        last = number + 1 == len(offers) or gnu_hash(offers[number + 1]) % 2 != bucket
        chain += struct.pack("<I", (gnu_hash(name) & ~1) | last)
    table = struct.pack("<IIIIQII", 2, first, 1, 5, 2**64 - 1, *buckets) + chain
    dynamic = b"".join(struct.pack("<QQ", 1, places[name]) for name in needs) + struct.pack("<QQ", 0, 0)
    parts = [(3, strings, 0), (11, symbols, 1), (0x6FFFFFF6, table, 2), (6, dynamic, 1)]
    body, headers = b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for kind, content, link in parts:
        headers += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, 64 + len(body), len(content), link, 0, 8, 0)
        body += content + b"\0" * (-len(content) % 8)
    start = 64 + len(body)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, start, 0, 64, 56, 0, 64, len(parts) + 1, 0)
    return head + body + headers


def test_a_shared_object_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.so"
    file.write_bytes(shared_object(["libc10.so", "libm.so.6"], [SYMBOL, "malloc"], ["one", "two", "three"]))
    with SharedObject(file) as found:
        assert found.needed == ["libc10.so", "libm.so.6"]
        assert found.undefined(("_ZN3c10",)) == {SYMBOL}
        assert [found.offers(name) for name in ("one", "two", "three", "four", "malloc")] == [True] * 3 + [False] * 2


def torch(folder: Path, offers: Sequence[str]) -> None:
    files = {f"torch/lib/{name}": shared_object(offers=["other"]) for name in LIBRARIES if "cuda" not in name}
    files["torch/lib/libc10.so"] = shared_object(offers=[*offers, "another"])
    install(folder, "torch", "2.8.0+cpu", files=files)


def extension(folder: Path, content: bytes, name: str = "flash-attn") -> None:
    install(folder, name, "2.7.4", files={f"{name.replace('-', '_')}_cuda.cpython-311-x86_64-linux-gnu.so": content})


def test_an_extension_built_for_another_torch_is_seen_in_its_symbols(tmp_path: Path) -> None:
    torch(tmp_path, offers=["_ZN3c105Error"])
    extension(tmp_path, shared_object(["libc10.so"], [SYMBOL]))
    found = only(of(tmp_path), "built-for-another-torch")
    assert (found.confidence, found.packages) == ("certain", {"flash-attn": "2.7.4", "torch": "2.8.0+cpu"})
    assert SYMBOL in found.evidence


def test_an_extension_built_for_this_torch_is_left_alone(tmp_path: Path) -> None:
    torch(tmp_path, offers=[SYMBOL])
    extension(tmp_path, shared_object(["libc10.so"], [SYMBOL]))
    assert rules(of(tmp_path)) == []


def test_a_cuda_build_beside_a_torch_for_cpus_is_seen_in_what_it_needs(tmp_path: Path) -> None:
    torch(tmp_path, offers=[SYMBOL])
    extension(tmp_path, shared_object(["libc10.so", "libtorch_cuda.so"]), "torchvision")
    found = only(of(tmp_path), "built-for-another-torch")
    assert "libtorch_cuda.so" in found.evidence[0]


def test_an_extension_that_is_cut_off_is_said_to_be(tmp_path: Path) -> None:
    torch(tmp_path, offers=[SYMBOL])
    whole = shared_object(["libc10.so"], [SYMBOL])
    extension(tmp_path, whole[: len(whole) // 2])
    found = only(of(tmp_path), "broken-file")
    assert (found.confidence, "cut off" in found.evidence[0]) == ("likely", True)


def test_a_torch_that_cannot_be_read_accuses_nobody(tmp_path: Path) -> None:
    files = {f"torch/lib/{name}": b"not ELF" for name in LIBRARIES}
    install(tmp_path, "torch", "2.8.0+cpu", files=files)
    extension(tmp_path, shared_object(["libc10.so"], [SYMBOL]))
    assert rules(of(tmp_path)) == []


def test_a_record_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    site = tmp_path / "site"
    torch(site, offers=[SYMBOL])
    info = install(site, "xformers", "1.0")
    (tmp_path / "outside.so").write_bytes(shared_object(["libc10.so"], ["_ZN3c10missing"]))
    (info / "RECORD").write_text("../outside.so,,\n")
    assert rules(of(site)) == []


def test_any_change_of_a_shared_object_is_read_or_refused(tmp_path: Path) -> None:
    """A thousand files with a few bytes changed, or cut off: never another exception, never a hang."""
    whole = shared_object(["libc10.so"], [SYMBOL], ["one", "two", "three", "four"])
    generator = random.Random(1)
    file = tmp_path / "x.so"
    refused = 0
    for _ in range(1000):
        bytes_ = bytearray(whole)
        for _ in range(generator.choice((1, 2, 8))):
            bytes_[generator.randrange(len(bytes_))] = generator.choice((0, 1, 0x7F, 0xFF, generator.randrange(256)))
        file.write_bytes(
            bytes(bytes_[: generator.choice((len(whole), len(whole), generator.randrange(len(whole)))) or 1])
        )
        try:
            with SharedObject(file) as found:
                assert isinstance(found.needed, list)
                assert isinstance(found.undefined(("_ZN",)), set)
                assert found.offers("one") in (True, False, None)
        except NotElfError:
            refused += 1
    assert 0 < refused < 1000


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
    said = capsys.readouterr()
    assert (said.err, "\x1b" in said.out) == ("", False)
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
    sure = [one for one in answer.get("findings", ()) if one["confidence"] != "possible"]
    assert code == (3 if "error" in answer else 1 if sure else 0)
    if option != "--requirements":
        assert code == 0


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
        config = tmp_path / "config.json"
        config.write_text(text)
        assert program.main(["--requirements", str(freeze), "--config", str(config)]) == 0
    assert capsys.readouterr().err == ""


class Endless(io.RawIOBase):
    """A log of so many bytes, made while it is read."""

    def __init__(self, size: int, line: bytes) -> None:
        self.left, self.line = size, line

    def read(self, size: int = -1) -> bytes:
        chunk = (self.line * (size // len(self.line) + 1))[: min(size, self.left)]
        self.left -= len(chunk)
        return chunk


@pytest.mark.parametrize("line", [b"{'loss': 0.1}\n", b"x", b"\n", b"RuntimeError: it failed with 17\n", b"\x00\xff\n"])
def test_a_log_of_a_hundred_megabytes_is_read_once_and_little_is_kept(line: bytes) -> None:
    said = symptoms.condense(Endless(100 * 2**20, line))
    assert sum(map(len, said)) < 500_000


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


def test_it_says_nothing_of_a_pipe_that_was_closed() -> None:
    argv = [sys.executable, "-m", "doctor", "--requirements", str(ROOT / "requirements.txt"), "--json"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
