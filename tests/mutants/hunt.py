"""Running the suite on every mutant, several at a time, and remembering what came of it."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from builder.base import errors, project, sources
from builder.base.project import Project
from builder.certify import suite, transcript
from builder.certify.certificate import ProbeResult
from builder.lock.lockfile import Lock
from builder.trajectory.record import Record
from tests.mutants import mutant as mutants
from tests.mutants import trajectories
from tests.mutants.mutant import Placed

_REASON = 300  # characters


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Verdict(_Record):
    """What became of one mutant; `by` and `reason` are the probe that killed it and what it said."""

    outcome: Literal["killed", "survived"]
    by: str | None = None
    reason: str | None = None
    seconds: float


class Baseline(_Record):
    """The suite without any mutant: each probe's seconds, in the suite's order, and those of the whole run."""

    probes: dict[str, float]
    seconds: float


class Watcher(Protocol):
    """Whoever wants to know how it goes; called from several threads."""

    def started(self, name: str) -> None: ...

    def event(self, name: str, event: transcript.Event) -> None: ...

    def finished(self, name: str, verdict: Verdict | None, remembered: bool) -> None: ...


BASELINE = "without a mutant"
Kept = TypeVar("Kept", bound=_Record)


@dataclass
class Hunt:
    """The suite, copied, and an environment of the lock to make mutants of; everything written lies in `scratch`."""

    home: Project
    lock: Lock
    scratch: Path
    watcher: Watcher
    golden: Record | None = None  # the band that survivors are judged by; recorded on this machine
    suite: str = field(init=False)
    pristine: Path = field(init=False)

    def __post_init__(self) -> None:
        self.suite = sources.copy(self.home.smoke, self.scratch / "suite")
        self.pristine = self.scratch / "pristine"

    @property
    def site_packages(self) -> Path:
        return self.pristine / self.lock.site_packages

    def adopt(self, environment: Path) -> None:
        """Take a clone of the environment: it stays what it is, whatever becomes of the original meanwhile."""
        mutants.clone(environment, self.pristine)

    def baseline(self) -> Baseline:
        """Run the whole suite without a mutant; a probe that fails then can kill nothing. Raises VettedError."""
        store = self._memory("baseline")
        if (remembered := _recall(Baseline, store)) is not None:
            return remembered
        start = time.monotonic()
        self.watcher.started(BASELINE)
        results = self._run(BASELINE, self.scratch / "baseline", self.pristine, (), lambda _: False)
        if failing := [result for result in results if _red(result)]:
            raise errors.VettedError(
                "without any mutant, the suite fails already:\n"
                + "\n".join(f"{result.name}: {result.outcome}: {result.reason}" for result in failing),
                next_step=f"vetted certify {self.lock.name} --engine host",
            )
        if not any(result.outcome == "passed" for result in results):
            raise errors.VettedError("no probe runs on this machine, so none could kill a mutant")
        baseline = Baseline(probes={result.name: result.seconds for result in results}, seconds=_since(start))
        self.watcher.finished(BASELINE, None, remembered=False)
        project.write(store, baseline.model_dump_json(indent=2) + "\n", self.scratch)
        return baseline

    def run(self, placed: Sequence[Placed], baseline: Baseline, jobs: int) -> dict[str, Verdict]:
        """Every mutant's verdict, by its ID: what is remembered of an earlier run first, then the rest."""
        verdicts: dict[str, Verdict] = {}
        waiting: queue.SimpleQueue[Placed] = queue.SimpleQueue()
        for entry in placed:
            remembered = self._remembered(entry)
            if remembered is None:
                waiting.put(entry)
            else:
                verdicts[entry.mutant.id] = remembered
                self.watcher.finished(entry.mutant.id, remembered, remembered=True)
        done: queue.SimpleQueue[tuple[Placed, Verdict] | BaseException] = queue.SimpleQueue()

        def work(environment: Path) -> None:
            try:
                mutants.clone(self.pristine, environment)
                while True:
                    entry = waiting.get_nowait()
                    done.put((entry, self._try(entry, environment, _order(baseline, list(verdicts.values())))))
            except queue.Empty:
                pass
            except BaseException as error:
                done.put(error)

        # Daemons: a run that is interrupted must not wait for them. What they started ends with this process.
        for number in range(min(jobs, waiting.qsize())):
            threading.Thread(target=work, args=(self.scratch / f"host-{number}",), daemon=True).start()
        while len(verdicts) < len(placed):
            answer = done.get()
            if isinstance(answer, BaseException):
                raise answer
            entry, verdict = answer
            self._remember(entry, verdict)
            verdicts[entry.mutant.id] = verdict
            self.watcher.finished(entry.mutant.id, verdict, remembered=False)
        return {entry.mutant.id: verdicts[entry.mutant.id] for entry in placed}

    def _try(self, placed: Placed, environment: Path, order: tuple[str, ...]) -> Verdict:
        """Make the mutant in a clone, run the suite there until it turns red, and make the clone whole again."""
        start = time.monotonic()
        name = placed.mutant.id
        self.watcher.started(name)
        folder = self.scratch / f"mutant-{name}"
        site_packages = environment / self.lock.site_packages
        mutants.make(placed, site_packages)
        strays = None
        try:
            known = _recall(Verdict, self._memory(placed.mutant.digest()))  # that it survives the suite
            results = () if known else self._run(name, folder, environment, order, _red)
            if self.golden and not any(map(_red, results)):
                strays = trajectories.strays(self.golden, environment, self.scratch / "suite", folder)
        except errors.VettedError as error:
            error.what = f"{name}: {error.what}"
            raise
        finally:
            mutants.undo(placed, site_packages, self.site_packages)
            shutil.rmtree(folder, ignore_errors=True)
        killer = next((result for result in results if _red(result)), None)
        if strays is not None:
            return Verdict(outcome="killed", by=trajectories.KILLER, reason=strays, seconds=_since(start))
        if killer is None:
            return Verdict(outcome="survived", seconds=_since(start))
        reason = " ".join(f"{killer.outcome}: {killer.reason}".replace(str(self.scratch), "<scratch>").split())
        short = reason if len(reason) <= _REASON else reason[: _REASON - 1] + "…"
        return Verdict(outcome="killed", by=killer.name, reason=short, seconds=_since(start))

    def _run(
        self,
        name: str,
        folder: Path,
        environment: Path,
        order: tuple[str, ...],
        until: Callable[[ProbeResult], bool],
    ) -> tuple[ProbeResult, ...]:
        folder.mkdir(exist_ok=True)
        runner = suite.on_host(environment, self.scratch / "suite", folder / "run")
        request = suite.Request(self.lock.stack.device, self.lock.versions, order)
        return suite.run(runner, request, folder, lambda event: self.watcher.event(name, event), until).results

    def _remembered(self, entry: Placed) -> Verdict | None:
        """What is known of a mutant. That it survives the suite says nothing about its trajectories."""
        own = _recall(Verdict, self._memory(self._with_golden(entry)))
        plain = _recall(Verdict, self._memory(entry.mutant.digest()))
        return own or (plain if plain and (plain.outcome == "killed" or not self.golden) else None)

    def _remember(self, entry: Placed, verdict: Verdict) -> None:
        document = verdict.model_dump_json(indent=2) + "\n"
        project.write(self._memory(self._with_golden(entry)), document, self.scratch)

    def _with_golden(self, entry: Placed) -> str:
        golden = project.sha256(self.golden.to_json().encode()) if self.golden else ""
        return f"{entry.mutant.digest()} {golden}".strip()

    def _memory(self, what: str) -> Path:
        """Where the result is kept of something under this very suite and lock."""
        key = project.sha256(f"{self.suite} {self.lock.digest} {what}".encode()).removeprefix("sha256:")
        return self.home.state / "mutants" / f"{key[:32]}.json"


def _since(start: float) -> float:
    return round(time.monotonic() - start, 1)


def _red(result: ProbeResult) -> bool:
    return result.outcome not in ("passed", "not-run")


def _order(baseline: Baseline, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """The probes by how often they have killed so far in a second of theirs; before any has, the quick ones first."""
    kills = Counter(verdict.by for verdict in verdicts)
    return tuple(sorted(baseline.probes, key=lambda name: -(kills[name] + 0.5) / (baseline.probes[name] + 0.2)))


def _recall(kind: type[Kept], path: Path) -> Kept | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def evidence(
    *, placed: Sequence[Placed], verdicts: dict[str, Verdict], baseline: Baseline, **run: Any
) -> dict[str, Any]:
    """What is committed as a measurement. `run` is what describes the run as a whole."""
    packages = list(dict.fromkeys(entry.mutant.package for entry in placed))
    return {
        **run,
        "baseline": {"probes": len(baseline.probes), "seconds": baseline.seconds},
        "total": tally(list(verdicts.values())),
        "packages": {
            package: tally([verdicts[entry.mutant.id] for entry in placed if entry.mutant.package == package])
            for package in packages
        },
        "mutants": [
            {
                "id": entry.mutant.id,
                "package": entry.mutant.package,
                **verdicts[entry.mutant.id].model_dump(exclude_none=True),
                **(_survivor(entry) if verdicts[entry.mutant.id].outcome == "survived" else {}),
            }
            for entry in placed
        ],
    }


def _survivor(entry: Placed) -> dict[str, str]:
    explained = {"reason_survived": entry.mutant.survives} if entry.mutant.survives else {}
    return {"why": " ".join(entry.mutant.why.split()), **explained}


def tally(verdicts: Sequence[Verdict]) -> dict[str, float | int]:
    """How many there are, how many were killed, and the rate."""
    killed = sum(verdict.outcome == "killed" for verdict in verdicts)
    return {"mutants": len(verdicts), "killed": killed, "rate": round(killed / len(verdicts), 4)}
