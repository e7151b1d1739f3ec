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


def run(
    python: str,
    versions: Mapping[str, str],
    device: str,
    report: Callable[[int, int, str], None],
    supervisor: str = sys.executable,
) -> list[Result]:
    """Run every probe that applies in the environment of an interpreter; `report`: done, all, the next one.

    `device`: cpu or cuda. Raises UnreadableError where the suite does not run, or not to its end.
    """
    request = json.dumps({"device": device, "distributions": dict(versions)})
    with tempfile.TemporaryDirectory(prefix="vetted-measure-") as scratch, _folder(Path(scratch)) as program:
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
    return results


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
