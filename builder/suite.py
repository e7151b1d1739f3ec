"""Running the suite: one process that is asked in one line of JSON and answers with events."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from builder import engine, errors, hostenv, process
from builder.certificate import ProbeResult

Event = dict[str, Any]

BAD_REQUEST = 3  # the exit status of `python -m smoke` that refuses what it was asked


@dataclass(frozen=True)
class Runner:
    """The command that runs the suite where the stack is, and its environment variables."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """What the runner is asked. `distributions` is what should be installed: normalised name to version."""

    device: str
    distributions: Mapping[str, str]
    probes: tuple[str, ...] = ()  # empty: all of them
    seed: int = 0


@dataclass(frozen=True)
class Answer:
    """Every probe's result; the stack's Python version; how long the imports that all probes share took."""

    results: tuple[ProbeResult, ...]
    python: str
    imports_s: float = 0.0


def digest(smoke: Path) -> str:
    """The identity of the suite: every module in smoke/, by path and content. Good for any other package, too."""
    identity = hashlib.sha256()
    for file in sorted(smoke.rglob("*.py")):
        content = file.read_bytes()
        identity.update(f"{file.relative_to(smoke)}\0{len(content)}\0".encode())
        identity.update(content)
    return "sha256:" + identity.hexdigest()


def copy(smoke: Path, root: Path) -> str:
    """Copy the suite below `root`, so that what is spoken of is what ran even if somebody edits smoke/ meanwhile."""
    shutil.copytree(smoke, root / "smoke", ignore=shutil.ignore_patterns("__pycache__"))
    return digest(root / "smoke")


def on_host(environment: Path, root: Path, temporary: Path) -> Runner:
    """The suite copied below `root`, in an environment that hostenv made; it writes below `temporary` only."""
    temporary.mkdir()
    return Runner(
        engine.on_host(environment),
        {
            **hostenv.environment(environment),
            "PYTHONPATH": str(root),
            "TMPDIR": str(temporary),
            "PYTHONDONTWRITEBYTECODE": "",
        },
    )


def memory_mib() -> int:
    """What the suite may use: the machine's memory less room for the machine itself."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(total - 2048, total * 3 // 4)


def run(
    runner: Runner,
    asked: Asked,
    scratch: Path,
    on_event: Callable[[Event], None],
    until: Callable[[ProbeResult], bool] = lambda _: False,
) -> Answer:
    """Run the suite and collect what it reports; stop, with what there is, at a result that `until` is true of.

    Raises BadInputError when the runner refuses what it was asked, VettedError when it says nothing at all.
    """
    request = {
        "device": asked.device,
        "probes": list(asked.probes) or None,
        "distributions": dict(asked.distributions),
        "seed": asked.seed,
        "memory_mib": memory_mib(),
    }
    results: list[ProbeResult] = []
    python, imports_s, expected, finished = "", 0.0, [], False
    log = scratch / "suite.log"
    with (
        log.open("wb") as stderr,
        process.running(runner.command, env=runner.environment, stdin=subprocess.PIPE, stderr=stderr, cwd=scratch)
        as child,
    ):  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; its exit code and its log say why
        for line in child.stdout:
            event = _event(line)
            if event is None:
                continue
            try:
                if event["event"] == "start":
                    python, expected = event["python"], event["probes"]
                elif event["event"] == "ready":
                    imports_s = float(event.get("seconds", 0.0))
                elif event["event"] == "end":
                    results.append(_result(event))
                finished |= event["event"] == "finish"
                on_event(event)
            except KeyError as error:
                raise errors.VettedError(
                    f"the suite's runner sent an event without {error}: {line.strip()[:200]}",
                    cause="smoke/ and builder/ are of different versions",
                    next_step="git status smoke builder",
                ) from error
            if event["event"] == "end" and until(results[-1]):
                return Answer(tuple(results), python, imports_s)
        code = child.wait()
    said = log.read_text(errors="replace")
    if code == BAD_REQUEST and not expected:
        raise errors.BadInputError(
            said.strip().splitlines()[-1] if said.strip() else "the suite refused the request",
            next_step="the same command without --probe",
        )
    missing = [name for name in expected if name not in {result.name for result in results}]
    if not expected or (not finished and not missing):
        raise errors.from_tool(f"running the suite ({Path(runner.command[0]).name}, exit code {code})", said)
    # A runner that died took its remaining probes with it: they have not passed.
    results += [
        ProbeResult(
            name=name,
            outcome="crashed",
            reason=f"the suite's runner ended early (exit code {code})",
            log_tail=said[-4000:] or None,
        )
        for name in missing
    ]
    return Answer(tuple(results), python, imports_s)


def _event(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _result(event: Event) -> ProbeResult:
    data = {key: value for key, value in event.items() if key not in ("event", "probe")}
    try:
        return ProbeResult.model_validate({"name": event["probe"], **data})
    except ValidationError as error:
        # Not a number, say: a result that cannot be written down is not a pass.
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        seconds = event.get("seconds")
        return ProbeResult(
            name=event["probe"],
            outcome="failed",
            reason=f"its result cannot be recorded: {where}: {first['msg']}",
            seconds=seconds if isinstance(seconds, float) and math.isfinite(seconds) else 0.0,
        )
