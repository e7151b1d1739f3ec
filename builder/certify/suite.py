"""Running the suite: one process, which gets its request as one line of JSON and answers with events."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builder.base import errors, process
from builder.certify import engine, hostenv
from builder.certify.certificate import ProbeResult
from builder.certify.transcript import Answer, Event, Transcript

BAD_REQUEST = 3  # the exit code of a runner that refuses its request


@dataclass(frozen=True)
class Runner:
    """The command that runs the suite in a stack, and its environment variables."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What the runner has to do. `distributions` is what should be installed: normalised names and versions."""

    device: str
    distributions: Mapping[str, str]
    probes: tuple[str, ...] = ()  # empty: all of them
    seed: int = 0
    memory_mib: int = 0  # that the suite may use; 0: what this machine has

    def to_json(self) -> str:
        """The line that the runner reads."""
        return json.dumps(
            {
                "device": self.device,
                "probes": list(self.probes) or None,
                "distributions": dict(self.distributions),
                "seed": self.seed,
                "memory_mib": self.memory_mib or memory_mib(),
            }
        )


def on_host(environment: Path, root: Path, temporary: Path) -> Runner:
    """Run the suite that lies below `root` in an environment of hostenv. It writes only below `temporary`."""
    temporary.mkdir()
    return Runner(
        engine.on_host(root, environment),
        {
            **hostenv.environment(environment),
            "PYTHONPATH": "",
            "TMPDIR": str(temporary),
            "PYTHONDONTWRITEBYTECODE": "",
        },
    )


def memory_mib() -> int:
    """The memory that the suite may use: the machine's, less what the machine itself needs."""
    return usable_mib(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20)


def usable_mib(total: int) -> int:
    """Of this much memory, what the suite may use."""
    return max(total - 2048, total * 3 // 4)


def run(
    runner: Runner,
    request: Request,
    scratch: Path,
    on_event: Callable[[Event], None],
    until: Callable[[ProbeResult], bool] = lambda _: False,
) -> Answer:
    """Run the suite and collect its results; stop early at a result for which `until` is true.

    Raises BadInputError when the runner refuses the request, and VettedError when it reports nothing, reports something
    out of turn, or ends badly after it has reported everything.
    """
    transcript = Transcript(request.probes)
    log = scratch / "suite.log"
    with (
        log.open("wb") as stderr,
        process.running(runner.command, env=runner.environment, stdin=subprocess.PIPE, stderr=stderr, cwd=scratch)
        as child,
    ):  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(request.to_json() + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once: its exit code and its log tell why
        for line in child.stdout:
            if not line.endswith("\n"):
                break  # cut short: the runner died while it wrote
            event = transcript.take(line)
            on_event(event)
            if event["event"] == "end" and until(transcript.results[-1]):
                return transcript.answer()
        code = child.wait()
    stderr_text = log.read_text(errors="replace")
    _refuse_bad_end(runner, transcript, code, stderr_text)
    # The probes that a dying runner left have not passed.
    transcript.results += [
        ProbeResult(
            name=name,
            outcome="crashed",
            reason=f"the suite's runner ended early (exit code {code})",
            log_tail=stderr_text[-4000:] or None,
        )
        for name in transcript.missing
    ]
    return transcript.answer()


def _refuse_bad_end(runner: Runner, transcript: Transcript, code: int, log: str) -> None:
    """Raise the error of a run that has no results, or that did not end as it should; `log`: its standard error."""
    if code == BAD_REQUEST and not transcript.expected:
        raise errors.BadInputError(
            log.strip().splitlines()[-1] if log.strip() else "the suite refused the request",
            next_step="the same command without --probe",
        )
    if runner.command[0] == "docker" and errors.NO_DAEMON.search(log):
        raise errors.from_tool("running the suite", log)
    program = Path(runner.command[0]).name
    if not transcript.expected or (transcript.finished and code != 0):
        raise errors.from_tool(f"running the suite ({program}, exit code {code})", log)
    if not transcript.finished and not transcript.missing:
        raise errors.from_tool(f"running the suite to its end ({program}, exit code {code})", log)
