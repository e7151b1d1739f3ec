"""A first contact, as on a borrowed machine: ended in the middle, continued, asked how far it is, brought back."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import first_contact_machine
from scripts import first_contact_work as work
from tests.conftest import ROOT, make_wheel

PATIENCE_S = 60  # for what happens in a blink, unless it never does
PROBE = '''\
"""Does it run?"""
import time
from pathlib import Path
from smoke.probe import Bound, Probe, Reading

PROBE = Probe(matters="", bounds=(Bound("ran", "", equals={equals}, headline=True),), links=(), needs={needs})

def run(context):
    with Path({diary!r}).open("a") as file:
        file.write("{name}\\n")
    while not Path({until!r}).exists():
        time.sleep(0.01)
    yield Reading("ran", 1)
'''


class Visit:
    """A copy of what travels, with three probes. The second waits until it is let go; `diary` is what really ran."""

    def __init__(self, folder: Path) -> None:
        self.seconds = 0
        self.root, self.out, self.diary, self.gate = (folder / name for name in ("tree", "out", "diary", "gate"))
        for name in ("builder", "runtime", "scripts", "smoke"):
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (self.root / "smoke" / "probes").iterdir():
            path.unlink()
        for name in ("first", "second", "third"):
            self.probe(name, until=self.gate if name == "second" else folder)

    def probe(self, name: str, *, until: Path, equals: int = 1, needs: tuple[str, ...] = ()) -> None:
        text = PROBE.format(name=name, equals=equals, needs=needs, diary=str(self.diary), until=str(until))
        path = self.root / "smoke" / "probes" / f"{name}.py"
        path.write_text(text)
        # Python takes a file of the same size and second for the one that it compiled.
        self.seconds += 1
        os.utime(path, (self.seconds, self.seconds))

    def start(self, command: str, *words: str, **environment: str) -> subprocess.Popen[str]:
        argv = [sys.executable, str(self.root / "scripts" / "first_contact.py"), command, "--out", str(self.out)]
        return subprocess.Popen(
            [*argv, *words], env={**os.environ, **environment}, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, command: str, *words: str, **environment: str) -> tuple[int, str, str]:
        with self.start(command, *words, **environment) as child:
            out, err = child.communicate()
        assert "Traceback" not in err, err
        return child.returncode, out, err

    def run(self, *words: str) -> tuple[int, str, str]:
        return self.ask("run", "--device", "cpu", *words)

    def ran(self) -> list[str]:
        return self.diary.read_text().split() if self.diary.exists() else []

    def wait_for(self, name: str) -> None:
        """Until a probe is at work, and that is written down."""
        deadline, begin = time.monotonic() + PATIENCE_S, json.dumps({"event": "begin", "probe": name})
        while name not in self.ran() or begin not in (self.out / "events.jsonl").read_text():
            assert time.monotonic() < deadline, f"{name} has never begun"
            time.sleep(0.01)

    def ends(self, file: str = "events.jsonl") -> list[str]:
        """The probes whose end was written down."""
        events: list[dict[str, Any]] = [json.loads(line) for line in (self.out / file).read_text().splitlines()]
        return [event["probe"] for event in events if event["event"] == "end"]


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Visit]:
    begun = Visit(tmp_path)
    yield begun
    begun.gate.touch()  # whatever a test that failed has left at work ends by itself


def test_what_is_ended_in_the_middle_is_continued_and_no_probe_that_ended_runs_again(visit: Visit) -> None:
    with visit.start("run", "--device", "cpu") as child:
        visit.wait_for("second")
        child.send_signal(signal.SIGKILL)
    assert visit.ends() == ["first"]
    code, out, _ = visit.ask("status", "--wait", str(PATIENCE_S))
    assert (code, out.splitlines()[:2]) == (1, ["ended early: in second", "1 of 3 probes have ended: 1 passed"])
    assert "next: the same run again" in out
    with (visit.out / "events.jsonl").open("a") as events:
        events.write('{"event": "end", "probe": "third", ')  # as one that was killed while it wrote leaves it
    visit.gate.touch()
    code, out, err = visit.run()
    assert code == 0, err
    assert out.splitlines()[1] == "1 of 3 probes have ended before" and out.splitlines()[-1] == "failed: none"
    assert visit.ran() == ["first", "second", "second", "third"]
    assert visit.ends() == ["first", "second", "third"]
    assert visit.run()[0] == 0
    assert len(visit.ran()) == 4 and len(visit.ends()) == 3, "everything has ended"


def test_in_the_background_it_outlives_its_command_and_says_how_far_it_is(visit: Visit) -> None:
    code, _, err = visit.ask("status")
    assert (code, "nothing has run in" in err) == (3, True)
    code, out, err = visit.run("--background")
    (process,) = map(int, re.findall(r"at work in the background, process (\d+)", out))
    assert code == 0, err
    assert os.getsid(process) == process, "what ends a session or its terminal does not end this"
    visit.wait_for("second")
    code, out, _ = visit.ask("status")
    assert (code, out) == (3, "at work: in second\n1 of 3 probes have ended: 1 passed\n")
    code, _, err = visit.run()
    assert (code, "another run is at work" in err) == (3, True)
    visit.gate.touch()
    code, out, _ = visit.ask("status", "--wait", str(PATIENCE_S))
    assert (code, out) == (0, "ended\n3 of 3 probes have ended: 3 passed\n")
    assert visit.ran() == ["first", "second", "third"]


def test_a_run_that_begins_again_has_not_ended(tmp_path: Path) -> None:
    """Also before it has written down what it is of: it may be killed while it unpacks wheels."""
    first_contact_machine.write(tmp_path / work.RUN, {"probes": ["first"], "exit": 0})
    os.close(work.hold(tmp_path))
    assert work.status(tmp_path, 0) == 1


def test_all_of_it_comes_back_in_one_file(visit: Visit, tmp_path: Path) -> None:
    visit.run("--probe", "first")
    code, out, _ = visit.ask("status", "--pack", str(tmp_path / "back" / "all.tar.gz"))
    assert code == 0 and "all.tar.gz: " in out
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["all.tar.gz"]
    with tarfile.open(tmp_path / "back" / "all.tar.gz") as archive:
        names = {"events.jsonl", "freeze.txt", "machine.json", "records.json", "run.json", "suite.log"}
        assert set(archive.getnames()) == {f"out/{name}" for name in names}
        events = archive.extractfile("out/events.jsonl")
        assert events is not None and events.read() == (visit.out / "events.jsonl").read_bytes()


def test_a_probe_that_lacked_a_package_runs_when_its_wheel_has_come(visit: Visit, tmp_path: Path) -> None:
    visit.probe("second", until=tmp_path, needs=("carried",))
    code, out, _ = visit.run()
    assert code == 0 and "not installed: carried" in out
    assert visit.ran() == ["first", "third"]
    make_wheel(tmp_path / "wheels", "carried", "1.0", {"carried.py": "here = True\n"})
    code, out, err = visit.run("--wheels", str(tmp_path / "wheels"))
    assert code == 0, err
    assert visit.ran() == ["first", "third", "second"]
    assert json.loads((visit.out / "run.json").read_text())["carried"] == ["carried-1.0"]


def test_a_red_probe_stays_red_until_the_suite_is_another_one(visit: Visit, tmp_path: Path) -> None:
    visit.probe("second", until=tmp_path, equals=2)
    for _ in range(2):
        code, out, _ = visit.run()
        assert (code, out.splitlines()[-1]) == (1, "failed: second")
    assert len(visit.ran()) == 3
    code, out, _ = visit.ask("status")
    assert code == 1 and "second: failed: ran is 1, must be exactly 2" in out
    visit.probe("second", until=tmp_path)
    code, out, _ = visit.run()
    assert code == 0 and "events of another suite" in out
    assert visit.ends() == ["first", "second", "third"] == visit.ends("earlier.jsonl")


def test_without_a_gpu_it_says_so_and_what_the_machine_has(visit: Visit) -> None:
    for words in ([], ["--background"]):
        code, _, err = visit.ask("run", "--probe", "first", *words, CUDA_VISIBLE_DEVICES="")
        assert (code, err.startswith("no GPU is visible: ")) == (4, True), err
        assert "--device cpu" in err.splitlines()[-1]
    assert "devices" in json.loads((visit.out / "machine.json").read_text())
    assert visit.ran() == []


def test_a_probe_that_is_not_there_is_a_usage_error(visit: Visit) -> None:
    code, _, err = visit.run("--probe", "fourth")
    assert code == 2 and "'fourth'" in err


def test_a_probe_may_use_what_the_machine_has(visit: Visit) -> None:
    """Without it, the suite holds a probe to what it declares for small machines: on two ranks vLLM needs more."""
    (visit.root / "smoke" / "__main__.py").write_text("import sys\nprint(sys.stdin.readline(), file=sys.stderr)\n")
    code, out, _ = visit.run("--probe", "first")
    assert code == 1 and "not run: first" in out, "the suite has ended, and said nothing"
    request = json.loads((visit.out / "suite.log").read_text())
    assert request["probes"] == ["first"] and request["memory_mib"] > 0
