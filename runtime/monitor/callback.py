"""The callback that joins hooks, judgement and output at every step. Made for any Trainer; most checks need GRPO."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from . import certificate, judge, picture, record
from .checks import CHECKS
from .hooks import Guard
from .observer import Observer
from .ranks import MARK, Ranks

PREFIX = "monitor/"  # of its numbers in the trainer's log
AGAIN = (10, 100, 1000, 10000)  # a breach is shown once, and at these counts
JUDGED = {check.column for check in CHECKS}


class Monitor(TrainerCallback):  # type: ignore[misc]
    """Watches one trainer. `folder`: where its files go, by default the trainer's output_dir.

    `certify`: write the run certificate at the end of training; `vetted train` does that later, with the model saved.
    """

    def __init__(self, trainer: Any, folder: str | Path | None = None, *, certify: bool = True) -> None:
        self.guard = Guard(self._failed)
        self.trainer, self.certify = trainer, certify
        self.folder = Path(folder or trainer.args.output_dir)
        self.rank = int(trainer.args.process_index)
        self.observer: Observer | None = None
        self.ranks: Ranks | None = None  # of a run with several, on rank 0
        self.unseen = ""  # how many ranks could not be compared
        self.counts: dict[str, int] = {}
        self.logged: dict[str, list[float]] = {}
        self.started = time.monotonic()
        self.failure = ""
        self.guard(self._attach)

    @classmethod
    def on(cls, trainer: Any, **options: Any) -> Any:
        """Put a monitor on a trainer, before all its callbacks, so that they see its numbers in the log."""
        if not any(isinstance(callback, cls) for callback in trainer.callback_handler.callbacks):
            trainer.callback_handler.callbacks.insert(0, cls(trainer, **options))
        return trainer

    def _attach(self) -> None:
        self.observer = Observer(self.trainer, self.guard)

    # --- the events of a run -----------------------------------------------------------------------------------------

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        self.guard(self._begin, state)

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, model: Any = None, **_: Any) -> None:
        if self.observer:
            self.guard(self.observer.begin, model)

    def on_pre_optimizer_step(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        if self.observer:
            self.guard(self.observer.unscaled)

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        self.guard(self._end_step, state)

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self.guard(self._log, logs)

    def on_train_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if self.rank == 0:
            self.guard(self._compare_last, int(state.global_step))
            ok, self.guard.on = self.guard.on, True  # what was seen is written even after a failure
            self.guard(self._finish, state, ok)

    # --- what they do ------------------------------------------------------------------------------------------------

    def _begin(self, state: Any) -> None:
        assert self.observer is not None
        self.started, self.guard.seconds = time.monotonic(), 0.0
        ranks = int(getattr(self.trainer.accelerator, "num_processes", 1))
        last = record.begin(self.folder, self.rank, state.global_step, ranks)
        if state.global_step > 0:
            self.observer.resume(last)
        self.observer.prepared()
        self.ranks, self.unseen = None, ""
        if self.rank:
            return
        if ranks > 1:
            self.ranks = Ranks(self.folder, ranks)
        absent = [check for check in CHECKS if check.needs in self.observer.absent]
        reasons = sorted({self.observer.absent[check.needs] for check in absent})
        without = f"; {len(absent)} do not apply ({'; '.join(reasons)})" if absent else ""
        self._say("monitor", f"{len(CHECKS) - len(absent)} checks at every step{without}")

    def _end_step(self, state: Any) -> None:
        assert self.observer is not None
        row = {"step": int(state.global_step), "rank": self.rank, **self.observer.row(), **record.memory()}
        if self.ranks:
            row.update(self.ranks.after(row))
        record.add(self.folder, self.rank, row)
        for name, value in row.items():
            if name not in ("step", "rank", MARK):
                self.logged.setdefault(name, []).append(value)
        for breach in judge.breaches(row):
            self._report(breach)

    def _report(self, breach: judge.Breach) -> None:
        check = breach.check
        count = self.counts[check.name] = self.counts.get(check.name, 0) + 1
        if count in AGAIN:
            self._say(check.level, f"{breach}; {count} times so far")
        if count > 1:
            return
        self._say(check.level, f"{breach}; healthy: at most {check.at_most:g}", f"likely: {check.cause}")
        if check.advisories:
            self._say(
                "", f"known faults like this: {', '.join(check.advisories)}; vetted doctor compares your versions"
            )

    def _log(self, logs: Any) -> None:
        for name, values in self.logged.items():
            known = [value for value in values if not math.isnan(value)]
            if known:
                logs[PREFIX + name] = max(known) if name in JUDGED else sum(known) / len(known)
        self.logged = {}

    def _finish(self, state: Any, complete: bool) -> None:
        rows = record.read(self.folder)
        absent = dict(self.observer.absent) if self.observer else {}
        blind = []
        if self.unseen and self.ranks and self.ranks.compared:
            blind = [f"the weights of some ranks: {self.unseen}"]
        elif self.unseen:
            absent["replicas"] = self.unseen
        results = judge.results(rows, absent)
        share = self.guard.seconds / max(1e-9, time.monotonic() - self.started)
        record.summary(self.folder, self.trainer, absent, blind, results, share, self.failure)
        drawn = picture.write(self.folder, rows, results)
        if self.certify:
            certificate.write(self.folder)
        broken = [result for result in results if result.outcome in (judge.ALARM, judge.ADVICE)]
        words = [f"{result.check.name} ({result.outcome}, from step {result.first})" for result in broken]
        outcome = ", ".join(words) if broken else "no alarm, no advice"
        ended = "" if complete else f"; it failed and saw only a part: {self.failure}"
        self._say("monitor", f"{state.global_step} steps: {outcome}; {share:.1%} of the time{ended}")
        if drawn:
            self._say("", f"{drawn}")

    def _compare_last(self, step: int) -> None:
        """Compare the ranks after the last steps, in a row of its own, and say which could not be compared."""
        if not self.ranks or not self.observer:
            return
        if numbers := self.ranks.at_end(step):
            row = {"step": step, "rank": self.rank, **numbers}
            record.add(self.folder, self.rank, row)
            for breach in judge.breaches(row):
                self._report(breach)
        if (unseen := self.ranks.unseen()) and "replicas" not in self.observer.absent:
            self.unseen = f"{unseen} of the other ranks wrote no rows into this folder"

    def _failed(self, error: Exception) -> None:
        self.failure = f"{type(error).__name__}: {error}".splitlines()[0]
        if os.environ.get("VETTED_MONITOR_DEBUG"):
            import traceback

            traceback.print_exc()
        self._say("monitor", f"has stopped, the run goes on: {self.failure}")

    def _say(self, word: str, *lines: str) -> None:
        rank = f"rank {self.rank}: " if self.rank else ""
        for number, line in enumerate(lines):
            print(f"{word if number == 0 else '':<8} {rank}{line}", file=sys.stderr, flush=True)
