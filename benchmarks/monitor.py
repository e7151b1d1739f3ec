"""What does the run monitor say of healthy runs, and of runs with a fault? `python -m benchmarks.monitor [--record]`

Tiny GRPO runs on the CPU stack: some over the options of GRPO, and one for each fault of
benchmarks/monitored/faults.py, which must raise its own alarm within ten steps. Of the first, those in which a group
has had two different rewards, by what the reward functions returned, and a weight has changed, are healthy and may
raise no alarm; the others have nothing to learn from. The healthy runs give the distribution of every number that is
judged, beside its bound. Some of them run without the monitor, too, and must end with the same bits. With `--record` it
goes to docs/evidence/monitor.json, from which `vetted render` makes the documents' tables.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import environments
from benchmarks.monitored import faults, healthy
from builder.base import errors, project, sources
from builder.certify import hostenv
from builder.lock import lockfile
from builder.pages import evidence, generate
from runtime.monitor import judge
from runtime.monitor.checks import CHECKS
from runtime.monitor.table import TABLE

ROOT = Path(__file__).resolve().parents[1]
STACK = "trl1.16-cpu"
PAIRS = 5  # healthy runs that run without the monitor, too
# A step of about a second, in which the cost of the monitor is measured. The end of a run costs as much as two steps.
SECOND: dict[str, Any] = {
    "name": "cost", "seed": 5,
    "options": {
        "per_device_train_batch_size": 128, "num_generations": 8, "max_completion_length": 64, "beta": 0.04,
        "max_steps": 12,
    },
}  # fmt: skip
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitor", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="runs over the options")
    parser.add_argument("--reuse", action="append", default=[], help="results of an earlier runtime, by its digest")
    parser.add_argument("--again", action="append", default=[], help="a job that is not reused")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--python", type=Path, help="of an environment of the stack; by default one is prepared")
    parser.add_argument(
        "--record", action="store_true", help="write docs/evidence/monitor.json, and render the documents"
    )
    options = parser.parse_args(arguments)
    home = project.find()
    lock = lockfile.load(home, STACK)
    with home.holding(STACK) as scratch:
        python, variables = options.python, dict[str, str]()
        if python is None:
            environment = environments.locked(home, lock, scratch)
            python, variables = environment / "bin" / "python", hostenv.environment(environment)
        known = Known(home.state / "monitor", sources.digest(home.runtime), earlier=options.reuse)
        for name in options.again:
            if known.results.get(name, {}).get("runtime") != known.file.stem:
                known.results.pop(name, None)
        work = [job for job in jobs(options.runs) if job["name"] not in known.results]
        with ThreadPoolExecutor(options.jobs) as pool:
            parts = [work[place :: options.jobs] for place in range(options.jobs)]
            list(pool.map(lambda part: known.add(run(python, part, variables)), parts))
        results = {job["name"]: known.results[job["name"]] for job in jobs(options.runs)}
        measured = {"stack": lock.name, "lock": lock.digest, "cores": os.cpu_count(), **summary(results)}
        if options.record:
            command = f"python -m benchmarks.monitor --runs {options.runs} --record"
            document = {**evidence.head(command), "runtime": sources.digest(home.runtime), "checks": TABLE, **measured}
            evidence.store(home, "monitor", document, scratch)
            generate.refresh(home, scratch)
    missed = [name for name, fault in measured["faults"].items() if fault["step"] is None]
    wrong = [*measured["alarms"], *measured["crashed"], *measured["unequal"], *missed]
    cost, noticed = measured["cost"], len(measured["faults"]) - len(missed)
    print(f"{measured['runs']} healthy runs, {len(measured['alarms'])} with an alarm; {len(measured['idle'])} idle")
    print(f"{noticed} of {len(measured['faults'])} faults noticed")
    print(f"{measured['pairs']} pairs with and without the monitor, {len(measured['unequal'])} unequal")
    print(f"{cost['share']:.2%} of a step of {cost['step_seconds']:.1f} s")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


class Known:
    """The results so far with this very runtime, so that a benchmark that was interrupted goes on where it was."""

    def __init__(self, folder: Path, runtime: str, earlier: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"{runtime.removeprefix('sha256:')[:16]}.jsonl"
        self.results: dict[str, dict[str, Any]] = {}
        for file in (*(folder / f"{name}.jsonl" for name in earlier), self.file):
            for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
                row = json.loads(line)
                self.results[row["name"]] = {**row, "runtime": file.stem}

    def add(self, results: Iterable[dict[str, Any]]) -> None:
        """Keep results as they come, and say what came of each."""
        for result in results:
            self.results[result["name"]] = {**result, "runtime": self.file.stem}
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            print(f"{len(self.results):>4}  {result['name']}: {outcome(result)}", file=sys.stderr)


def jobs(runs: int) -> Iterator[dict[str, Any]]:
    """All jobs: healthy runs, some of them once more without the monitor, the faults, and the cost."""
    drawn = healthy.jobs(runs)
    yield SECOND
    yield from map(faults.job, faults.FAULTS)
    yield from drawn
    yield from ({**job, "name": f"{job['name']}-alone", "monitor": False} for job in drawn[:PAIRS])


def run(python: Path, work: Iterable[Mapping[str, Any]], variables: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Run jobs in the stack's Python, one after the other."""
    environ = {**os.environ, **VARIABLES, **variables, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [str(python), "-m", "benchmarks.monitored"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as child:  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        for job in work:
            child.stdin.write(json.dumps(job) + "\n")
            child.stdin.flush()
            yield json.loads(child.stdout.readline())
        child.stdin.close()


def outcome(result: Mapping[str, Any]) -> str:
    """A run in a few words."""
    if reason := failed(result):
        return reason
    seen = [
        f"{finding['check']} ({finding['outcome']}, step {finding['first']})" for finding in result.get("findings", [])
    ]
    return ", ".join(seen) or "nothing"


def failed(result: Mapping[str, Any]) -> str:
    """Why a run or its monitor did not come to its end; "" if both did."""
    if "crashed" in result:
        return f"the process ended with {result['crashed']}"
    if result.get("failure"):
        return f"the monitor failed: {result['failure']}"
    return str(result.get("refused") or result.get("stopped") or "")


def summary(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The distribution of each number over healthy runs, their alarms, and what came of each fault."""
    drawn = {name: result for name, result in results.items() if name.startswith("healthy-")}
    idle = {name: result for name, result in drawn.items() if reason_idle(result)}
    well = {name: result for name, result in drawn.items() if name.removesuffix("-alone") not in idle}
    watched = {name: result for name, result in well.items() if not name.endswith("-alone")}
    alone = {name.removesuffix("-alone"): result for name, result in well.items() if name.endswith("-alone")}
    cost = results["cost"]
    return {
        "runs": len(watched),
        "idle": {name: outcome(result) for name, result in idle.items()},
        "pairs": len(alone),
        "runtimes": dict(Counter(str(result["runtime"]) for result in results.values())),
        "crashed": [name for name, result in results.items() if failed(result)],
        "alarms": [f"{name}: {outcome(result)}" for name, result in watched.items() if _of(result, judge.ALARM)],
        "advice": sum(1 for result in watched.values() if _of(result, judge.ADVICE)),
        "unequal": [name for name, result in alone.items() if _bits(result) != _bits(watched[name])],
        "columns": {check.column: _distribution(check.column, watched.values()) for check in CHECKS},
        "faults": {name: _fault(name, results[name]) for name in faults.FAULTS},
        "cost": {"share": cost["share"], "step_seconds": round(cost["seconds"] / SECOND["options"]["max_steps"], 2)},
    }


def reason_idle(result: Mapping[str, Any]) -> str:
    """Why a run had nothing to learn from, by what it did without the monitor; "" if it had something."""
    if result.get("signal") is False:
        return "no group had two different rewards"
    return "no weight changed" if result.get("moved") is False else ""


def _of(result: Mapping[str, Any], level: str) -> list[Mapping[str, Any]]:
    return [finding for finding in result.get("findings", []) if finding["outcome"] == level]


def _bits(result: Mapping[str, Any]) -> tuple[Any, ...]:
    return result.get("weights"), result.get("rng"), result.get("losses"), result.get("others")


def _distribution(column: str, results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Over runs, of the largest value of a run."""
    runs = [
        [v for row in result.get("rows", []) if (v := judge.number(row.get(column))) is not None] for result in results
    ]
    largest = sorted(max(values) for values in runs if values)
    if not largest:
        return {"runs": 0, "steps": 0}
    return {
        "runs": len(largest), "steps": sum(map(len, runs)),
        "median": float(f"{statistics.median(largest):.3g}"), "max": float(f"{largest[-1]:.3g}"),
    }  # fmt: skip


def _fault(name: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """The check that must notice a fault, and the step at which it did; None if it did not."""
    fault = faults.FAULTS[name]
    alarms = sorted((finding["first"], finding["check"]) for finding in _of(result, judge.ALARM))
    caught = [(step, check) for step, check in alarms if check in fault.caught]
    step, check = caught[0] if caught else (None, None)
    return {"why": fault.why, "check": check, "step": step, "all": sorted({check for _, check in alarms})}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except errors.VettedError as error:
        print(f"monitor: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
