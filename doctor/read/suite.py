"""The suite, run in an environment: it lies beside the doctor, as a folder or in the single file, and is a program.

This runs what is installed. Nothing is written into the environment: bytecode, caches and homes lie in a folder that
goes at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Callable

from doctor.read.files import UnreadableError

ROOT = Path(__file__).resolve().parents[2]
QUOTED = 500  # characters of a runner that failed
# A probe that allows itself more seconds than this is long: it compares many runs. A quick measurement leaves it out.
LONG = 300
LEFT_OUT = "left out, it is long: --measure-all runs it"


@dataclass(frozen=True)
class Result:
    """What one probe has said. `outcome`: passed, not-run, or why it is red; `log` is the end of its output."""

    probe: str
    outcome: str
    reason: str = ""
    matters: str = ""
    log: str = ""

    @property
    def red(self) -> bool:
        """Did it run, and not pass?"""
        return self.outcome not in ("passed", "not-run")

    @property
    def left_out(self) -> bool:
        """Did nobody ask for it?"""
        return self.reason == LEFT_OUT


def run(
    python: str,
    versions: Mapping[str, str],
    device: str,
    report: Callable[[int, int, str], None],
    supervisor: str = sys.executable,
    *,
    everything: bool = False,
) -> list[Result]:
    """Run the probes that apply in the environment of an interpreter; `report`: done, all, the next one.

    `device`: cpu or cuda. `everything`: the long ones, too. Raises UnreadableError where the suite does not run, or not
    to its end.
    """
    with tempfile.TemporaryDirectory(prefix="vetted-measure-") as scratch, _folder(Path(scratch)) as program:
        quick, long = (None, []) if everything else _by_length(supervisor, program)
        request = json.dumps({"device": device, "distributions": dict(versions), "probes": quick})
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": scratch,
        }
        # Not resolved: that it is a link is what makes it the environment's.
        argv = [supervisor, "-I", "-S", str(program), "--python", os.path.abspath(python)]  # noqa: PTH100
        with (Path(scratch) / "log").open("w+", encoding="utf-8", errors="replace") as log:
            child = subprocess.Popen(
                argv, env=environment, cwd=scratch, text=True, encoding="utf-8", errors="replace",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
            # Its standard input stays open: when this process ends, the suite ends, and every probe with it.
            with child:
                assert child.stdin is not None
                assert child.stdout is not None
                try:
                    child.stdin.write(request + "\n")
                    child.stdin.flush()
                except BrokenPipeError:  # it died at once: its log says why
                    with suppress(BrokenPipeError):  # what is left unwritten; once closed, it is not tried again
                        child.stdin.close()
                results, finished = _read(child.stdout, report)
            if not finished:
                log.seek(0)
                words = log.read()[-QUOTED:].strip()
                raise UnreadableError(f"the suite did not run to its end in {python}: {words or 'it says nothing'}")
    return [*results, *(Result(name, "not-run", LEFT_OUT) for name in long)]


def _by_length(supervisor: str, program: Path) -> tuple[list[str], list[str]]:
    """The names of the quick probes and of the long ones, from the suite's own list."""
    done = subprocess.run(
        [supervisor, "-I", "-S", str(program), "--list"],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, encoding="utf-8", errors="replace", check=False,
    )  # fmt: skip
    try:
        seconds = {str(probe["name"]): float(probe["timeout_s"]) for probe in json.loads(done.stdout)}
    except (ValueError, KeyError, TypeError):
        words = done.stderr[-QUOTED:].strip() or "it says nothing"
        raise UnreadableError(f"the suite does not list its probes: {words}") from None
    return [name for name in seconds if seconds[name] <= LONG], [name for name in seconds if seconds[name] > LONG]


@contextmanager
def _folder(scratch: Path) -> Iterator[Path]:
    """The program of the suite: unpacked where the doctor is a single file."""
    if ROOT.is_dir():
        if not (ROOT / "smoke" / "__main__.py").is_file():
            raise UnreadableError(f"{ROOT} has no suite beside the doctor: use `vetted doctor`, or its single file")
        yield ROOT / "smoke" / "__main__.py"
        return
    with zipfile.ZipFile(ROOT) as archive:
        archive.extractall(scratch / "suite", [name for name in archive.namelist() if name.startswith("smoke/")])
    yield scratch / "suite" / "smoke" / "__main__.py"


def _read(output: IO[str], report: Callable[[int, int, str], None]) -> tuple[list[Result], bool]:
    """The results, and whether there is one for every probe."""
    results: list[Result] = []
    every = 0
    for line in output:
        event = _event(line)
        kind = event.get("event")
        if kind == "start":
            every = len(event.get("probes", []))
        elif kind == "begin":
            report(len(results), every, str(event.get("probe", "")))
        elif kind == "end":
            fields = ("probe", "outcome", "reason", "matters", "log_tail")
            results.append(Result(*(str(event.get(name) or "") for name in fields)))
        elif kind == "finish":
            return results, len(results) == every
    return results, False


def _event(line: str) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}
