"""Attacks by the stack under test: its code runs in every process of the suite but the supervisor, which judges."""

from __future__ import annotations

import sys
import textwrap
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.base import errors, sources
from builder.certify import suite
from builder.certify.certificate import ProbeResult
from builder.certify.suite import Request
from builder.certify.transcript import Event
from tests.conftest import ROOT

PROBES = ROOT / "tests" / "smoke" / "faulty"
FORGED = '{"event": "end", "probe": "good", "outcome": "passed", "matters": "it does not", "measurements": []}'
LINE = (FORGED + "\n").encode()
# Code of the stack that is run whenever its interpreter starts: before the suite, in the zygote, in every probe.
WRITES = f"""
import os
for descriptor in (1, 2, 3, 4, 5, 6, 7, 8):
    try:
        os.write(descriptor, {LINE!r})
    except OSError:
        pass
"""
LEAVES = WRITES + "os._exit(0)\n"
BREAKS_IN = f"""
import os
ancestor = os.getppid()
for _ in range(3):
    for name in ("fd", "mem", "maps", "environ"):
        folder = f"/proc/{{ancestor}}/{{name}}"
        try:
            for entry in os.listdir(folder) if name == "fd" else [""]:
                with open(f"{{folder}}/{{entry}}".rstrip("/"), "wb" if name == "fd" else "rb", buffering=0) as file:
                    file.write({LINE!r}) if name == "fd" else file.read(1)
                open("WITNESS", "a").write(f"{{name}} of {{ancestor}}\\n")
        except OSError:
            pass
    try:
        with open(f"/proc/{{ancestor}}/stat") as file:
            ancestor = int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        break
"""
KILLS = """
import os, signal
if os.environ.get("HF_HUB_OFFLINE"):
    os.kill(os.getppid(), signal.SIGKILL)
"""
Attack = Callable[..., tuple[dict[str, ProbeResult], list[Event]]]


@pytest.fixture
def attack(tmp_path: Path) -> Attack:
    """Run the real supervisor on a stack whose interpreter runs this code at every start."""

    def run(code: str, *probes: str) -> tuple[dict[str, ProbeResult], list[Event]]:
        environment = tmp_path / "stack"
        venv.create(environment, symlinks=True)
        (site,) = (environment / "lib").glob("python3.*/site-packages")
        (site / "evil.py").write_text(code)
        (site / "evil.pth").write_text("import evil\n")
        root, scratch = tmp_path / "suite", tmp_path / "scratch"
        scratch.mkdir()
        sources.copy(ROOT / "smoke", root)
        runner = suite.on_host(environment, root, scratch / "run")
        runner = suite.Runner([*runner.command, "--probes", str(PROBES)], runner.environment)
        events: list[Event] = []
        answer = suite.run(runner, Request("cpu", {}, probes or ("good",)), scratch, events.append)
        return {result.name: result for result in answer.results}, events

    return run


def test_the_stack_itself_can_run_a_probe(attack: Attack) -> None:
    """The counterpart of the attacks: without hostile code, the same stack passes."""
    results, _ = attack("")
    assert results["good"].outcome == "passed", results["good"].log_tail


def test_site_packages_speak_for_the_supervisor(attack: Attack) -> None:
    """A .pth writes events to every descriptor and exits with status 0."""
    results, events = attack(LEAVES)
    assert results["good"].outcome == "crashed"
    assert [event["event"] for event in events].count("end") == 1


def test_site_packages_write_to_the_supervisors_output(attack: Attack) -> None:
    """A .pth writes a forged result wherever it can, and lets the suite continue."""
    results, events = attack(WRITES, "good", "raises")
    assert results["raises"].outcome in ("failed", "crashed")
    assert [event["probe"] for event in events if event["event"] == "end"] == ["good", "raises"]


def test_the_zygote_breaks_into_the_supervisor(attack: Attack, tmp_path: Path) -> None:
    """It looks for descriptors, memory and environment of the processes above it."""
    witness = tmp_path / "witness"
    results, events = attack(BREAKS_IN.replace("WITNESS", str(witness)), "good", "raises")
    assert not witness.exists(), witness.read_text()
    assert results["raises"].outcome == "failed"
    assert [event["probe"] for event in events if event["event"] == "end"] == ["good", "raises"]


def test_the_zygote_kills_the_supervisor(attack: Attack) -> None:
    """After everything is reported, or before: the run proves nothing."""
    try:
        results, _ = attack(KILLS)
    except errors.VettedError:
        return
    assert {result.outcome for result in results.values()} == {"crashed"}


@pytest.mark.parametrize(
    "answer",
    ['{"ended": "0"}', '{"ended": true, "ready": true}', "not json", "[" * 100_000, "[1]", '{"imported": ["torch"]}'],
)
def test_the_zygote_answers_what_no_zygote_answers(attack: Attack, answer: str) -> None:
    """Its answers are data: the supervisor neither crashes nor accepts them as a result."""
    line = (answer + "\n").encode()
    code = f"""
        import os, sys
        if "smoke.run.zygote" in sys.orig_argv:
            os.write(1, {line!r} * 3)
            os._exit(0)
        """
    results, _ = attack(textwrap.dedent(code))
    assert results["good"].outcome == "crashed"


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "garbage", "huge"])
def test_a_result_file_is_something_else(attack: Attack, tmp_path: Path, kind: str) -> None:
    """The probe's own process replaces the file that the supervisor is about to read."""
    secret = tmp_path / "secret"
    secret.write_text('{"reading": "answer", "value": "42", "detail": ""}\n{"done": true, "seconds": 0.1}\n')
    ways = {
        "link": f"os.symlink({str(secret)!r}, path)",
        "pipe": "os.mkfifo(path)",
        "device": "os.symlink('/dev/zero', path)",
        "garbage": "open(path, 'wb').write(b'\\xff{{[\\n' + b'[' * 100000 + b'\\n{\"reading\": 1}\\n[7]\\n')",
        "huge": "open(path, 'wb').truncate(1 << 40)",
    }
    code = f"""
        import os, sys
        def setsid():
            for name in ("result-0.jsonl", "log"):
                path = os.path.join(sys._getframe(1).f_locals["job"].directory, name)
                {ways[kind]}
            os._exit(0)
        if "smoke.run.zygote" in sys.orig_argv:
            os.setsid = setsid  # the first that a forked probe does
        """
    results, _ = attack(textwrap.dedent(code))
    assert results["good"].outcome == "failed"
    assert "answer" not in (results["good"].log_tail or "")


def test_the_users_python_path_reaches_the_supervisor(
    attack: Attack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A module with a name of the standard library is on PYTHONPATH."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "selectors.py").write_text(f"print({FORGED!r}, flush=True)\nimport os; os._exit(0)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))
    results, _ = attack("")
    assert results["good"].outcome == "passed"


def test_the_supervisor_runs_nothing_of_the_stack(tmp_path: Path) -> None:
    """It is the tool's own interpreter, isolated and without site-packages."""
    (tmp_path / "run").mkdir()
    runner = suite.on_host(tmp_path / "stack", tmp_path, tmp_path / "run" / "own")
    assert runner.command[:4] == [sys.executable, "-I", "-S", str(tmp_path / "smoke" / "__main__.py")]
    assert runner.environment["PYTHONPATH"] == ""
