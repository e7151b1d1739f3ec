"""Golden trajectories: every seed is reported, with numbers or with the reason for which it has none."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smoke.trajectories import task

HERE = Path(__file__).parent
PROGRAM = HERE.parents[1] / "smoke" / "trajectories" / "__main__.py"


def answer(request: str, directory: Path, *cores: int) -> tuple[int, list[dict[str, Any]], str]:
    """The exit status, the events and the errors of a run of the stand-in, with standard input left open."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), "--task", str(HERE / "standin_task.py")]
    chosen = set(cores) or os.sched_getaffinity(0)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(directory)}, preexec_fn=lambda: os.sched_setaffinity(0, chosen),
    ) as run:  # fmt: skip
        assert run.stdin and run.stdout and run.stderr
        run.stdin.write(request + "\n")
        run.stdin.flush()
        events = [json.loads(line) for line in run.stdout]
        return run.wait(), events, run.stderr.read()


def test_every_seed_has_its_numbers_or_the_reason_why_not(tmp_path: Path) -> None:
    one_core = min(os.sched_getaffinity(0))
    status, events, errors = answer('{"seeds": 5, "first": 2, "steps": 3}', tmp_path, one_core)
    assert status == 0, errors
    seeds = {event["seed"]: event for event in events if event["event"] == "seed"}
    assert list(seeds) == [2, 3, 4, 5, 6]
    assert seeds[2]["numbers"] == {"reward": [2.0, 2.25, 2.5]}
    assert seeds[3]["failure"] == "FloatingPointError: kl is nan at step 2"
    assert "numbers" not in seeds[4]
    assert seeds[5]["failure"] == "killed by SIGSEGV"
    assert seeds[6]["numbers"] == {"reward": [6.0, 6.25, 6.5]}  # a crash ends its own part only
    assert events[-1] == {"event": "finish"}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("request_line", "words"),
    [
        ("", "not JSON"),
        ("[]", "no JSON object"),
        ('{"seed": 1}', "unknown keys: seed"),
        ('{"device": "tpu"}', "device must be"),
        ('{"steps": 0}', "steps must be a whole number from 1"),
        ('{"seeds": true}', "seeds must be a whole number from 1"),
    ],
)
def test_a_bad_request_is_refused_in_words(tmp_path: Path, request_line: str, words: str) -> None:
    status, events, errors = answer(request_line, tmp_path)
    assert (status, events) == (3, [])
    assert words in errors and "Traceback" not in errors


LOG = [{"loss": 0.1, "reward": 0.5, "kl": 0.0, "completion_length": 8.0, "grad_norm": 1.0}] * 2


def test_numbers_are_read_by_the_names_of_every_release() -> None:
    old = task.numbers(LOG, [0.12345678912, 0.25], 2)
    assert old["length"] == [8.0, 8.0]
    assert old["loss"] == [0.123456789, 0.25]
    assert "entropy" not in old
    new = [{**entry, "completions/mean_length": 7.0, "entropy": 4.5} for entry in LOG]
    assert task.numbers(new[:1], [0.1], 1)["entropy"] == [4.5]


def test_a_number_that_is_not_finite_or_not_there_fails_its_seed() -> None:
    with pytest.raises(FloatingPointError, match="loss is nan at step 2"):
        task.numbers(LOG, [0.1, math.nan], 2)
    with pytest.raises(ValueError, match="reward was logged at 2 of 3 steps"):
        task.numbers(LOG, [0.1, 0.1, 0.1], 3)


def test_the_reward_counts_lower_case_letters() -> None:
    assert [task.Reward.score(text) for text in ("", "AB12", "abCD", "abcdefgh")] == [0, 0, 0.25, 1]
