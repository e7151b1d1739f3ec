"""Attacks by somebody who did not write what they attack: on the judgement, the supervisor and what a clone keeps."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import termios
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.base import seal, sources
from builder.base.machine import Hardware
from builder.base.project import Project
from builder.certify import catalogue, hostenv, judgement
from builder.intent import stack
from builder.lock import archives, lockfile
from builder.lock.lockfile import Entry
from builder.publish import attached
from runtime import preflight
from smoke.run import guard, linux, zygote
from smoke.run.job import Job
from smoke.run.zygote import Stack, Zygote
from tests.attacks.test_certificates import DAY, accepted, earned
from tests.attacks.test_certificates import genuine as genuine
from tests.attacks.test_certificates import terms as terms
from tests.attacks.test_supervisor import Attack
from tests.attacks.test_supervisor import attack as attack
from tests.conftest import ROOT

Said = dict[str, Any]
Deep = Callable[[Path], None]


# --- certificates --------------------------------------------------------------------------------------------------


def test_a_number_that_no_float_can_hold(genuine: Said, terms: judgement.Terms) -> None:
    """JSON has whole numbers of any size: the judgement ended in a traceback."""
    genuine = json.loads(json.dumps(genuine))
    genuine["predicate"]["probes"][0]["measurements"][0]["value"] = 10**400
    assert not accepted(genuine, terms)


def test_a_bound_is_written_as_true(genuine: Said, terms: judgement.Terms) -> None:
    """To Python true equals 1, and false 0."""
    tried = 0
    for number, probe in enumerate(genuine["predicate"]["probes"]):
        for place, measured in enumerate(probe["measurements"]):
            for kind, limit in (measured.get("bound") or {}).items():
                if limit in (0, 1):
                    document = json.loads(json.dumps(genuine))
                    document["predicate"]["probes"][number]["measurements"][place]["bound"] = {kind: bool(limit)}
                    tried += 1
                    assert not accepted(document, terms), (probe["name"], measured["name"])
    assert tried


def test_a_machine_of_a_billion_cores(genuine: Said, terms: judgement.Terms) -> None:
    """The class of hardware is made of the number, and is coherent however many digits that has."""
    document = json.loads(json.dumps(genuine))
    machine = Hardware("Some CPU", 10**999)
    document["predicate"]["configuration"][3]["annotations"] |= {"class": machine.hardware_class, "cores": 10**999}
    assert not accepted(document, terms)


def test_one_strong_gpu_speaks_for_the_weak_ones() -> None:
    """A machine with two models was "2x NVIDIA H200", and the judgement agreed."""
    project = Project(ROOT)
    lock = next(
        one for one in (lockfile.load(project, name) for name in stack.names(project)) if one.stack.device == "cuda"
    )
    terms = dataclasses.replace(judgement.terms(project, lock), day=DAY)
    mixed = Hardware("x", 2, ("NVIDIA H200", "Tesla T4"), "580.1")
    assert mixed.hardware_class == "1x NVIDIA H200 + 1x Tesla T4, driver 580.1"
    said = json.loads(earned(terms).to_json())
    said["predicate"]["configuration"][3]["annotations"] = {
        "class": "2x NVIDIA H200, driver 580.1", "cpu": "x", "cores": 2, "gpus": list(mixed.gpus), "driver": "580.1",
    }  # fmt: skip
    statement = type(earned(terms)).model_validate(said)
    assert any("contradicts itself" in doubt for doubt in judgement.doubts(statement, terms))


@pytest.mark.parametrize("where", ["textwrap.py", f"smoke/__pycache__/probe.{sys.implementation.cache_tag}.pyc"])
def test_what_lies_beside_the_suite_changes_the_catalogue(tmp_path: Path, where: str) -> None:
    """Both were imported in place of the suite's own modules when the bounds were read, under an unchanged digest."""
    sources.copy(ROOT / "smoke", tmp_path)
    expected, digest = catalogue.read(ROOT / "smoke"), sources.digest(tmp_path / "smoke")
    planted = tmp_path / where
    planted.parent.mkdir(exist_ok=True)
    if planted.suffix == ".py":
        planted.write_text("raise SystemExit('a stranger is here')\n")
    else:
        planted.write_bytes(_bytecode("raise SystemExit('a stranger is here')\n"))
    # The attack is a real one: where the file lies, Python imports it.
    argv = [sys.executable, "-I", "-S", "-B", str(tmp_path / "smoke" / "__main__.py"), "--list"]
    listing = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "a stranger is here" in listing.stderr
    assert sources.digest(tmp_path / "smoke") == digest
    assert catalogue.read(tmp_path / "smoke") == expected


def _bytecode(source: str) -> bytes:
    """As Python caches it, with a hash that is never checked."""
    import importlib.util
    import marshal

    flags = (0b01).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + flags + bytes(8) + marshal.dumps(compile(source, "planted.py", "exec"))


@pytest.fixture
def deep() -> Iterator[Deep]:
    """Makes a folder with others, one in the other; what is left of them would end pytest's own cleaning."""
    made: list[Path] = []

    def make(folder: Path, levels: int = 1200) -> None:
        made.append(folder)
        folder.mkdir()
        here = os.open(folder, os.O_RDONLY)
        for _ in range(levels):
            os.mkdir("d", dir_fd=here)
            inner = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        os.close(here)

    yield make
    subprocess.run(["rm", "-rf", "--", *made], check=True)


# --- the stack under test ------------------------------------------------------------------------------------------


def test_the_zygote_never_stops_talking(tmp_path: Path) -> None:
    """Whoever reads until there is nothing left never looks at the clock, or at the memory, again."""
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable} -IS\nimport fcntl, os, time\nfcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)\n"
        "os.write(1, b'{}\\n' * 300_000)\ntime.sleep(1000)\n"
    )
    program.chmod(0o755)
    hostile = Zygote([], {}, tmp_path, Stack(str(program)))
    try:
        waiting = 0
        while waiting < 900_000:
            waiting = int.from_bytes(fcntl.ioctl(hostile.output, termios.FIONREAD, bytes(4)), sys.byteorder)
        assert 0 < len(hostile.answers()) <= zygote._LONGEST
    finally:
        hostile.kill()


def test_the_zygote_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe to it fills up, and the supervisor waited to write for ever, past every limit of time."""
    monkeypatch.setattr(zygote, "_READS_WITHIN_S", 0.1)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    hostile = Zygote([], {"PATH": os.environ["PATH"]}, tmp_path, Stack(str(program)))
    try:
        hostile.start(Job("x", "cpu", 0, 1, str(tmp_path), {"x" * 100_000: "1"}))
        assert hostile._process.wait() == -9
    finally:
        hostile.kill()


RESULTS = {
    "an endless time": b'{"reading": "answer", "value": "42", "detail": ""}\n{"done": true, "seconds": NaN}\n',
    "an infinite time": b'{"done": true, "seconds": 1e999}\n',
    "a number that no float can hold": b'{"reading": "answer", "detail": "", "value": 1' + b"0" * 400 + b"}\n",
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_kills_the_supervisor(attack: Attack, name: str) -> None:
    """One probe's process writes it, and the probes after it were never run."""
    code = f"""
        import os, sys
        def setsid():
            job = sys._getframe(1).f_locals["job"]
            if job.directory.endswith("/good"):
                with open(os.path.join(job.directory, "result-0.jsonl"), "wb") as file:
                    file.write({RESULTS[name]!r})
                os._exit(0)
        if "smoke.run.zygote" in sys.orig_argv:
            os.setsid = setsid
        """
    results, _ = attack(textwrap.dedent(code), "good", "raises")
    assert results["raises"].outcome == "failed"


def test_a_reason_of_many_megabytes(attack: Attack) -> None:
    """It went into the report, and to the terminal."""
    code = """
        import json, os, sys
        def setsid():
            job = sys._getframe(1).f_locals["job"]
            with open(os.path.join(job.directory, "result-0.jsonl"), "w") as file:
                file.write(json.dumps({"failure": "x" * 2**23}) + "\\n")
            os._exit(1)
        if "smoke.run.zygote" in sys.orig_argv:
            os.setsid = setsid
        """
    results, _ = attack(textwrap.dedent(code))
    assert results["good"].outcome == "failed"
    assert len(results["good"].reason or "") < 10_000


def test_the_interpreter_leaves_a_process_behind(attack: Attack, tmp_path: Path) -> None:
    """Asked for its version, it starts one that was then spared: outside every limit, beside every probe."""
    pid, witness = tmp_path / "pid", tmp_path / "witness"
    code = f"""
        import os, sys, time
        def setsid():
            stranger = open({str(pid)!r}).read()
            open({str(witness)!r}, "w").write(str(os.path.exists("/proc/" + stranger)))
        if "smoke.run.zygote" in sys.orig_argv:
            os.setsid = setsid
        elif "-c" in sys.orig_argv:
            started = os.fork()
            if started == 0:
                os.setsid()
                os.closerange(0, 3)
                time.sleep(1000)
            with open({str(pid)!r}, "w") as file:
                file.write(str(started))
        """
    results, _ = attack(textwrap.dedent(code))
    assert results["good"].outcome == "passed"
    assert witness.read_text() == "False"


@pytest.mark.parametrize(
    "said",
    [
        "while True: os.write(1, b'x' * 65536)",
        """os.write(1, b'["\\\\ud800", []]\\n')""",
        """os.write(1, b'["' + b'9' * 100000 + b'", []]\\n')""",
    ],
    ids=["endless", "half a surrogate", "long"],
)
def test_the_interpreter_answers_what_no_python_answers(attack: Attack, said: str) -> None:
    """Its version goes into the statement: it filled the memory, or ended in a traceback there."""
    code = f"import os, sys\nif '-c' in sys.orig_argv:\n    {said}\n    os._exit(0)\n"
    results, events = attack(code)
    assert events[0]["python"] == "unknown"
    assert results["good"].outcome == "passed"


def test_an_inner_directory_is_swapped_while_it_is_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes' user has the outer one already, and puts a link that root follows in place of the inner one."""
    outer, outside, touched = tmp_path / "job", tmp_path / "outside", list[Path]()
    (outer / "work").mkdir(parents=True)
    outside.mkdir()

    def chown(path: Path, _uid: int, _gid: int, *, follow_symlinks: bool = True) -> None:
        touched.append(path.resolve() if follow_symlinks else path)
        if path == outer and (outer / "work").is_dir() and not (outer / "work").is_symlink():
            (outer / "work").rmdir()
            (outer / "work").symlink_to(outside)

    monkeypatch.setattr(os, "chown", chown)
    Stack("python", (1000, 1000)).hand_over(outer, outer / "work")
    assert sorted(touched) == [outer, outer / "work"]


def test_folders_deeper_than_python_can_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deep: Deep) -> None:
    """Python's own removal ends in a RecursionError: the supervisor died of it, and the folders stayed."""
    monkeypatch.setattr(linux, "kill_descendants", lambda: None)
    deep(tmp_path / "run")
    guard._clean(tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- what a clone keeps, and what an image says ---------------------------------------------------------------------


def test_a_killed_run_leaves_folders_deeper_than_python_can_follow(tmp_path: Path, deep: Deep) -> None:
    """On a host the stack writes below the scratch folder: no command worked on that stack any more."""
    project = Project(tmp_path)
    project.scratch("tiny").parent.mkdir(parents=True)
    deep(project.scratch("tiny"))
    with project.holding("tiny") as scratch:
        assert list(scratch.iterdir()) == []


def test_a_wheel_brings_folders_deeper_than_python_can_follow(tmp_path: Path, deep: Deep) -> None:
    """The environment could be neither sealed nor removed."""
    environment = tmp_path / "environment"
    deep(environment)
    before = seal.tree(environment)
    (environment / "d" / "d" / "file").touch()
    assert seal.tree(environment) != before
    hostenv.remove(environment)
    assert not environment.exists()


def test_a_kept_wheel_has_the_name_of_another(tmp_path: Path) -> None:
    """Its hash is the locked one; where uv looks for both, it was written over the other, through a hard link."""
    project, contents = Project(tmp_path), {"one": b"the wheel of one", "two": b"the wheel of two"}
    entries = [Entry(name, "1.0", hashlib.sha256(content).hexdigest()) for name, content in contents.items()]
    for entry in entries:
        path = tmp_path / ".vetted" / "wheels" / entry.sha256 / "one-1.0-py3-none-any.whl"
        path.parent.mkdir(parents=True)
        path.write_bytes(contents[entry.name])
    assert [path is not None for path in (archives.kept(project, entry) for entry in entries)] == [True, False]


def test_the_scratch_folder_is_a_link(tmp_path: Path) -> None:
    """A state from elsewhere brings it: what it names stays, and nothing ends in a traceback."""
    project, theirs = Project(tmp_path / "clone"), tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").touch()
    project.scratch("tiny").parent.mkdir(parents=True)
    project.scratch("tiny").symlink_to(theirs)
    with project.holding("tiny") as scratch:
        assert not scratch.is_symlink()
    assert (theirs / "file").exists()


def test_a_container_sees_one_strong_gpu_first(tmp_path: Path) -> None:
    """With a weaker one beside it, the machine was taken for one with two of the first."""
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1.1  Tue\n")
    expected = Hardware("x", 2, ("NVIDIA H200", "Tesla T4"), "580.1.1").hardware_class
    assert preflight.hardware(tmp_path, ["NVIDIA H200", "Tesla T4"]) == expected
    assert expected == "1x NVIDIA H200 + 1x Tesla T4, driver 580.1.1"


# --- what is attached ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digest", ["x@sha256:" + "0" * 64, "sha256:" + "0" * 65, "sha256:" + "0" * 64 + "\n"])
def test_a_layer_is_named_by_more_than_a_digest(digest: str) -> None:
    """It went to oras, whose refusal then ended `verify` and `publish`; the good layers beside it did not count."""
    ignored: list[str] = []
    manifest = {"layers": [{"digest": digest, "mediaType": "application/vnd.dsse.envelope.v1+json", "size": 1}]}
    assert attached._layers(manifest, ignored) == []
    assert ignored
