"""Attacks of the stack under test on the supervisor, by somebody who did not write it."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
import textwrap
from pathlib import Path

import pytest

from smoke.run import guard, linux, zygote
from smoke.run.job import Job
from smoke.run.zygote import Stack, Zygote
from tests.attacks.test_outsider import Deep
from tests.attacks.test_outsider import deep as deep
from tests.attacks.test_supervisor import Attack
from tests.attacks.test_supervisor import attack as attack


def test_the_zygote_never_stops_talking(tmp_path: Path) -> None:
    """A reader that reads to the end would never check the time or the memory again."""
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
    """The pipe to it fills up, and the supervisor once waited forever, past every time limit."""
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
    """One probe's process writes it; the following probes once never ran."""
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
    """The text once went into the report and to the terminal."""
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
    """Asked for its version, it starts a process that once survived, outside every limit and beside every probe."""
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
    "answer",
    [
        "while True: os.write(1, b'x' * 65536)",
        """os.write(1, b'["\\\\ud800", []]\\n')""",
        """os.write(1, b'["' + b'9' * 100000 + b'", []]\\n')""",
    ],
    ids=["endless", "half a surrogate", "long"],
)
def test_the_interpreter_answers_what_no_python_answers(attack: Attack, answer: str) -> None:
    """Its version goes into the statement: it once filled the memory or ended in a traceback."""
    code = f"import os, sys\nif '-c' in sys.orig_argv:\n    {answer}\n    os._exit(0)\n"
    results, events = attack(code)
    assert events[0]["python"] == "unknown"
    assert results["good"].outcome == "passed"


def test_an_inner_directory_is_swapped_while_it_is_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes' user already owns the outer one, and replaces the inner one with a link that root follows."""
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
    """Python's own removal ends in a RecursionError: the supervisor once died, and the folders stayed."""
    monkeypatch.setattr(linux, "kill_descendants", lambda: None)
    deep(tmp_path / "run")
    guard._clean(tmp_path / "run")
    assert not (tmp_path / "run").exists()
