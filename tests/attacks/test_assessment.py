"""Attacks on what is kept of judged certificates: no kept answer lets one count that would not count today."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from builder.base import seal
from builder.base.project import sha256
from builder.certify import assessment as assessing
from builder.certify import certificate, judgement, standing
from builder.certify.assessment import Assessments
from builder.intent import advisory
from tests.conftest import GOOD_RUN, STACK_TOML, TINY, Small

ADVISORY = """\
id = "VETTED-9001"
summary = "Tiny greets nobody"
severity = "silent-wrong"
published = 2026-01-01
details = "It greets nobody."
references = [{ type = "REPORT", url = "https://example.org/1" }]

[[affected]]
packages = { tiny-lib = "==1.0" }

[[fix]]
packages = { tiny-lib = ">=2" }

[evidence]
kind = "executed"
says = "it was run"
"""


@pytest.fixture
def path(small: Small) -> Path:
    """A certificate that holds, and that was judged."""
    issued = small.issue("docker")
    assert counts(small) == 1
    return issued


def counts(small: Small) -> int:
    """The certificates that count today."""
    return len(standing.certified_on(small.project, small.lock, certificate.today()))


def kept(small: Small) -> Path:
    return small.project.state / "assessments" / f"{TINY}.json"


def worthless(path: Path) -> None:
    """Make of a certificate the report of a failed run, written as this tool writes."""
    statement = certificate.read(path)
    predicate = statement.predicate.model_copy(update={"result": "FAILED"})
    path.write_text(statement.model_copy(update={"predicate": predicate}).to_json())


def test_a_certificate_is_altered_after_it_was_judged(small: Small, path: Path) -> None:
    """Its size and its times are as before."""
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"result": "PASSED"', b'"result": "FAILED"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert counts(small) == 0


@pytest.mark.parametrize("way", ["in place", "by a rename"])
def test_a_settled_certificate_is_altered(small: Small, path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """It was hashed, and would not be read again: its size and all times that a program can set are as before."""
    monkeypatch.setattr(assessing, "SETTLED", 0)
    assert counts(small) == 1 == counts(small)
    assert list(json.loads(kept(small).read_text())["files"]) == [path.name]
    before = path.stat()
    time.sleep(0.05)  # longer than a tick of the clock of files
    altered = path if way == "in place" else path.with_name("other.txt")
    altered.write_bytes(path.read_bytes().replace(b'"result": "PASSED"', b'"result": "FAILED"'))
    os.utime(altered, ns=(before.st_atime_ns, before.st_mtime_ns))
    altered.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert counts(small) == 0


def test_a_kept_verdict_outlives_its_certificate(small: Small, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was judged while it was valid; no answer about a day is kept."""
    late = certificate.read(path).predicate.expires
    assert late
    monkeypatch.setattr(certificate, "today", lambda: late + datetime.timedelta(days=1))
    (assessment,) = Assessments(small.project).of(small.lock)
    assert any(doubt.startswith("it expired on") for doubt in assessment.doubts(certificate.today()))
    assert standing.certified_on(small.project, small.lock, certificate.today())[0].endswith(f"expired on {late}")


def test_a_certificate_of_tomorrow_was_judged_tomorrow(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes ahead lets it count; set right, it must not."""
    today = certificate.today()
    with monkeypatch.context() as ahead:
        ahead.setattr(certificate, "today", lambda: today + datetime.timedelta(days=3))
        small.issue(day=today + datetime.timedelta(days=3))
        assert counts(small) == 1
    assert counts(small) == 0


@pytest.mark.parametrize("part", ["suite", "lock", "inputs", "advisories", "code"])
def test_what_decided_has_changed_since(
    small: Small, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str
) -> None:
    """The file is the same, and it would not be judged so today."""
    assert path.is_file()
    if part == "suite":
        small.suite(GOOD_RUN + "# another line\n")
    elif part == "lock":
        small.edit("lock.toml", "1700000000", "1700000001")
    elif part == "inputs":
        carried = small.project.runtime / "preflight.py"
        carried.write_text(carried.read_text() + "# another line\n")
    elif part == "advisories":
        small.project.advisories.mkdir()
        (small.project.advisories / "VETTED-9001.toml").write_text(ADVISORY)
        assert advisory.load_all(small.project)[0].matches(small.lock.versions) == "certain"
    else:
        monkeypatch.setattr(assessing, "_code", lambda: "a stricter judge")
        monkeypatch.setattr(judgement, "lasting", lambda *_: ["it is not enough any more"])
    assert counts(small) == 0
    assert tmp_path.is_dir()


def test_the_code_that_judged_cannot_be_seen(small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an archive all versions of the tool would look the same: there, none believes what another kept."""
    monkeypatch.setattr(assessing, "CODE", tmp_path / "archive.pyz")
    assessing._code.cache_clear()
    try:
        small.issue("host")
        assert counts(small) == 1
        assessing._code.cache_clear()  # another process
        monkeypatch.setattr(judgement, "lasting", lambda *_: ["it is not enough any more"])
        assert counts(small) == 0
    finally:
        assessing._code.cache_clear()


def test_the_lock_of_a_run_on_a_host_has_changed_since(small: Small) -> None:
    """No inputs of an image tell the two apart."""
    small.issue("host")
    assert counts(small) == 1
    small.edit("lock.toml", "1700000000", "1700000001")
    assert counts(small) == 0


def test_a_verdict_is_written_for_a_worthless_certificate(small: Small, path: Path) -> None:
    """The state comes from elsewhere: a cache of CI, or an archive. Its seal is missing, or that of other content."""
    worthless(path)
    assert counts(small) == 0
    content = json.loads(kept(small).read_text())
    (row,) = content["rows"].values()
    row["lasting"] = []
    kept(small).write_text(json.dumps(content))
    assert counts(small) == 0
    kept(small).write_text(json.dumps(content))
    kept(small).with_suffix(".seal").unlink()
    assert counts(small) == 0


def test_a_verdict_is_sealed_by_somebody_else(small: Small, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's key seals it well, and it is not this user's."""
    worthless(path)
    assert counts(small) == 0
    content = json.loads(kept(small).read_text())
    (row,) = content["rows"].values()
    row["lasting"] = []
    forged = json.dumps(content).encode()
    with monkeypatch.context() as theirs:
        theirs.setenv("XDG_STATE_HOME", str(small.root / "theirs"))
        kept(small).write_bytes(forged)
        seal.put(kept(small).with_suffix(".seal"), f"assessments of {TINY}", sha256(forged), small.scratch())
        assert seal.intact(kept(small).with_suffix(".seal"), f"assessments of {TINY}", sha256(forged))
    assert counts(small) == 0


def test_the_verdict_of_another_certificate_is_given_to_this_one(small: Small, path: Path) -> None:
    """Rows are swapped within the file."""
    good = path.read_bytes()
    bad = path.with_name("cpu-bad.json")
    bad.write_bytes(good)
    worthless(bad)
    assert [bool(assessment.lasting) for assessment in Assessments(small.project).of(small.lock)] == [True, False]
    content = json.loads(kept(small).read_text())
    first, second = content["rows"]
    content["rows"] = {first: content["rows"][second], second: content["rows"][first]}
    kept(small).write_text(json.dumps(content))
    assert [bool(assessment.lasting) for assessment in Assessments(small.project).of(small.lock)] == [True, False]


def test_the_verdicts_of_another_stack_are_put_in_the_place_of_these(small: Small, path: Path) -> None:
    """Their seal is good, and it is that of the other stack."""
    other = small.project.stack_dir("other")
    shutil.copytree(path.parents[1], other)
    assert (other / "stack.toml").read_text() == STACK_TOML
    for suffix in (".json", ".seal"):
        shutil.copy(kept(small).with_suffix(suffix), kept(small).with_name(f"other{suffix}"))
    lock = dataclasses.replace(small.lock, name="other")
    (assessment,) = Assessments(small.project).of(lock)
    assert assessment.lasting[0].startswith("it speaks of vetted/tiny:")


def test_earlier_verdicts_are_put_back(small: Small, path: Path) -> None:
    """They were sealed before an advisory was published."""
    assert path.is_file()
    earlier = {suffix: kept(small).with_suffix(suffix).read_bytes() for suffix in (".json", ".seal")}
    small.project.advisories.mkdir()
    (small.project.advisories / "VETTED-9001.toml").write_text(ADVISORY)
    assert counts(small) == 0
    for suffix, content in earlier.items():
        kept(small).with_suffix(suffix).write_bytes(content)
    assert counts(small) == 0


def test_a_file_is_exchanged_between_its_hash_and_its_judgement(
    small: Small, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is about the bytes that were judged: the worthless ones do not get the verdict of the good ones."""
    good = path.read_bytes()
    worthless(path)
    bad, real = path.read_bytes(), assessing._hash
    shutil.rmtree(small.project.state)

    def exchanged(file: Path) -> str | None:
        digest = real(file)
        file.write_bytes(good)
        return digest

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(assessing, "_hash", exchanged)
        assert counts(small) == 1  # the good one is there now
    path.write_bytes(bad)
    assert counts(small) == 0


def test_every_byte_of_the_kept_verdicts_is_changed(small: Small, path: Path) -> None:
    """Whatever becomes of the file: the worthless certificate does not count, and nothing ends in a traceback."""
    worthless(path)
    assert counts(small) == 0
    content = kept(small).read_bytes()
    for at in range(0, len(content), 23):
        kept(small).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert counts(small) == 0
