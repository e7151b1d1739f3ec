"""The run monitor on the real TRL: healthy runs, injected faults, equal bits, and the certificate of `vetted train`."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import monitor
from benchmarks.monitored import faults, healthy
from builder.base import project
from builder.publish import training
from runtime.monitor import judge, pack
from tests.conftest import ROOT
from tests.engine import hosted

SCRIPT = """
import sys
sys.path.insert(0, {packed!r})
import vetted_monitor
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
import mine

arguments = GRPOConfig("out", max_steps=2, per_device_train_batch_size=4, num_generations=4, max_completion_length=8,
                       use_cpu=True, bf16=False, report_to="none", logging_steps=1, save_strategy="no")
data = load_dataset("json", data_files="task/data/train.jsonl", split="train")
trainer = GRPOTrainer("task/model", reward_funcs=mine.length, args=arguments, train_dataset=data)
assert vetted_monitor.watch(vetted_monitor.watch(trainer)) is trainer
trainer.train()
assert sum(type(c).__name__ == "Monitor" for c in trainer.callback_handler.callbacks) == 1
"""
REWARD = "def length(completions, **_):\n    return [float(len(text)) for text in completions]\n"
CONSTANT = "def constant(completions, **_):\n    return [0.5] * len(completions)\n"
CONFIG = """\
model_name_or_path: task/model
dataset_name: task/data/train.jsonl
reward_funcs: [mine.length]
max_steps: 6
per_device_train_batch_size: 4
num_generations: 4
max_completion_length: 8
learning_rate: 1e-3
logging_steps: 1
save_steps: 3
"""
PAIRS = (0, 4)  # one that Transformers samples for, and one with an engine; the benchmark has more
Results = Mapping[str, Mapping[str, Any]]


def ran(python: Path, jobs: Sequence[Mapping[str, Any]]) -> Results:
    return {result["name"]: result for result in monitor.run(python, jobs, {})}


@pytest.fixture(scope="module")
def faulty(python: Path) -> Results:
    return ran(python, [faults.job(name) for name in faults.FAULTS])


@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_fault_raises_its_alarm_within_ten_steps(faulty: Results, name: str) -> None:
    result = faulty[name]
    assert result.get("failure") == "", result
    alarms = {finding["check"] for finding in result["findings"] if finding["outcome"] == "alarm"}
    assert alarms & set(faults.FAULTS[name].caught)


@pytest.fixture(scope="module")
def pairs(python: Path) -> Results:
    jobs = [healthy.jobs(5)[number] for number in PAIRS]
    return ran(python, [*jobs, *({**job, "name": f"{job['name']}-alone", "monitor": False} for job in jobs)])


@pytest.mark.parametrize("number", PAIRS)
def test_a_run_ends_with_the_same_bits_and_no_alarm(pairs: Results, number: int) -> None:
    watched, alone = pairs[f"healthy-{number}"], pairs[f"healthy-{number}-alone"]
    for what in ("weights", "rng", "losses"):
        assert watched[what] == alone[what]
    assert watched["failure"] == ""
    assert [finding for finding in watched["findings"] if finding["outcome"] == "alarm"] == []
    assert [row["step"] for row in watched["rows"]] == list(range(1, 11))
    assert "rows" not in alone


def of_ranks(result: Mapping[str, Any]) -> dict[int, set[str]]:
    """The alarms of each rank of two, by its own rows."""
    assert {(row["rank"], row["step"]) for row in result["rows"]} == {
        (rank, step) for rank in range(2) for step in range(1, 11)
    }
    return {
        rank: {
            found.check.name
            for found in judge.results([row for row in result["rows"] if row["rank"] == rank], result["absent"])
            if found.outcome == judge.ALARM
        }
        for rank in range(2)
    }


TWO: dict[str, Any] = {"ranks": 2, "options": {"per_device_train_batch_size": 4, "beta": 0.04}}


def test_two_ranks_are_watched_and_end_with_the_same_bits(python: Path, tmp_path: Path) -> None:
    results = ran(
        python, [{**TWO, "name": "watched", "out": str(tmp_path)}, {**TWO, "name": "alone", "monitor": False}]
    )
    watched, alone = results["watched"], results["alone"]
    assert of_ranks(watched) == {0: set(), 1: set()}
    apart = [row["ranks_apart"] for row in watched["rows"] if "ranks_apart" in row]
    assert (set(apart), "replicas" in watched["absent"]) == ({0}, False)
    for what in ("weights", "rng", "losses", "others"):
        assert watched[what] == alone[what]
    assert watched["others"][0]["weights"] == watched["weights"]
    assert training.judge(project.Project(ROOT), tmp_path).doubts == ()


def test_ranks_that_write_elsewhere_are_not_compared_and_the_run_says_so(python: Path, tmp_path: Path) -> None:
    jobs = {**TWO, "apart": 1, "name": "none"}, {**TWO, "ranks": 3, "apart": 2, "name": "some", "out": str(tmp_path)}
    results = ran(python, jobs)
    none, some = results["none"], results["some"]
    reason = "1 of the other ranks wrote no rows into this folder"
    assert (none["failure"], {row["rank"] for row in none["rows"]}) == ("", {0})
    assert none["absent"]["replicas"] == reason
    assert (some["failure"], {row["rank"] for row in some["rows"]}) == ("", {0, 1})
    assert "replicas" not in some["absent"]
    predicate = json.loads((tmp_path / training.NAME).read_text())["predicate"]
    assert "ranks-agree" in predicate["passedTests"]
    assert f"the weights of some ranks: {reason}" in predicate["blindSpots"]
    assert training.judge(project.Project(ROOT), tmp_path).doubts == ()


def test_a_fault_of_one_rank_is_an_alarm_of_that_rank(python: Path, tmp_path: Path) -> None:
    job = {**TWO, "name": "one", "fault": "advantage-zeroed", "fault_rank": 1, "out": str(tmp_path)}
    alarms = of_ranks(ran(python, [job])["one"])
    assert (alarms[0], "gradient-reaches" in alarms[1]) == (set(), True)
    assert not training.judge(project.Project(ROOT), tmp_path).good


# What raised false alarms: dropout and a sampler with log-probabilities of its own, clipping, rounding.
UNUSUAL: dict[str, dict[str, Any]] = {
    "dropout": {"lora": {"lora_dropout": 0.3, "lora_alpha": 256}},
    "sequences": {
        "lora": {"lora_dropout": 0.3},
        "options": {"importance_sampling_level": "sequence", "loss_type": "grpo", "epsilon": 3e-4},
    },
    "rounding": {
        "options": {"bf16": True, "max_steps": 2}, "engine_type": "bfloat16",
        "model": {"options": {"num_hidden_layers": 12, "initializer_range": 0.3}},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def unusual(python: Path) -> Results:
    jobs = [{"name": name, "sampler": "standin", **job} for name, job in UNUSUAL.items()]
    return ran(python, [*jobs, *({**job, "name": f"{job['name']}-alone", "monitor": False} for job in jobs)])


@pytest.mark.parametrize("name", UNUSUAL)
def test_a_run_that_is_only_unusual_raises_no_alarm_and_ends_with_the_same_bits(unusual: Results, name: str) -> None:
    result, alone = unusual[name], unusual[f"{name}-alone"]
    assert result["failure"] == ""
    assert [finding for finding in result["findings"] if finding["outcome"] == "alarm"] == []
    for what in ("weights", "rng", "losses"):
        assert result[what] == alone[what]


def test_rounding_that_keeps_sampler_and_trainer_apart_is_advice_with_its_number(unusual: Results) -> None:
    (finding,) = (each for each in unusual["rounding"]["findings"] if each["check"] == "sampler-rounding")
    assert finding["outcome"] == "advice"
    assert all(row["sampler_noise"] > 0.1 for row in unusual["rounding"]["rows"])
    assert max(row["gradient_angle"] for row in unusual["dropout"]["rows"]) < 1e-4


def printed(python: Path, script: str, *options: str) -> list[dict[str, Any]]:
    """What a script beside this file prints in the stack's Python: lines of JSON."""
    environment = {**monitor.VARIABLES, "PYTHONPATH": str(ROOT)}
    command = [str(python), str(Path(__file__).with_name(script)), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_model_is_scored_in_another_type_as_if_it_had_been_loaded_in_it(python: Path) -> None:
    (distances,) = printed(python, "retyped.py")
    assert distances["torch.float32"] == distances["torch.bfloat16"] == 0
    assert distances["autocast"] > 0.01


def test_the_direction_of_every_loss_is_that_of_the_library(python: Path) -> None:
    rows = printed(python, "pushed.py")
    judged = [row for row in rows if "gradient_angle" in row]
    assert len(judged) > 1000
    assert [row for row in judged if row["gradient_angle"] > 1e-5 or row["gradient_lost"]] == []


def test_other_weights_have_another_mark_and_vllm_is_known_by_its_ratio(python: Path) -> None:
    marks, distances = printed(python, "monitored_tensors.py")
    assert (marks["same"], marks["again"], marks["kept"]) == ({"one": 0, "cancelling": 0}, True, True)
    assert 2**23 < marks["largest"] < 2**24
    assert distances == {
        "log-probabilities": 0.3, "a ratio": 0.3, "a ratio to the old policy": 0.3,
        "a ratio beyond the limit": 0.693147, "a ratio of sequences": None, "nothing": None,
    }  # fmt: skip


@pytest.mark.parametrize("spread", [(), ("--spread",)])
def test_the_numbers_of_a_step_are_computed_where_its_tensors_are(python: Path, spread: tuple[str, ...]) -> None:
    (step,) = printed(python, "monitored_elsewhere.py", *spread)
    assert step["absent"] == {}
    # One of each observer: the loss, its gradient, the update, the generation, the engine, the completions, the ranks.
    assert step["numbers"].keys() >= {
        "sampler_diff", "gradient_angle", "elements_moved", "past_end", "engine_stale", "advantage_error",
        "weights_mark",
    }  # fmt: skip


@pytest.fixture(scope="module")
def task(built_in_task: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    here = tmp_path_factory.mktemp("monitored")
    hosted.folder(built_in_task, here)
    (here / "mine.py").write_text(REWARD + CONSTANT)
    (here / "my.yaml").write_text(CONFIG)
    yield here


def test_a_run_of_train_is_judged_certified_and_verified(python: Path, task: Path) -> None:
    code, output = hosted.train(python, task, "--config", "my.yaml")
    assert code == 0, output
    run = hosted.runs(task)[-1]
    assert "monitor  18 checks at every step; 7 do not apply" in output
    assert "monitor  6 steps: no alarm" in output
    assert re.search(rf"certificate (PASSED|WARNED): runs/{run.name}/{re.escape(training.NAME)};", output)
    assert [step for step, _ in hosted.rows(run, "monitor/gradient_angle")] == [1, 2, 3, 4, 5, 6]
    assert (run / "monitor.svg").read_text().startswith("<svg")
    verdict = training.judge(project.Project(ROOT), run)
    assert verdict.doubts == ()
    names = {entry.name for entry in verdict.statement.subject}
    assert {"config.yaml", "run.json", "metrics.jsonl", "monitor.jsonl", "model.safetensors"} <= names

    code, output = hosted.train(python, task, "--resume", run.name, "--max_steps", "8")
    assert code == 0, output
    assert [row["step"] for row in map(json.loads, (run / "monitor.jsonl").read_text().splitlines())] == [*range(1, 9)]
    assert training.judge(project.Project(ROOT), run).doubts == ()


def test_a_constant_reward_is_an_alarm_with_its_likely_cause(python: Path, task: Path) -> None:
    code, output = hosted.train(python, task, "--config", "my.yaml", "--reward_funcs", "mine.constant")
    assert code == 0, output
    assert "alarm    step 5: no group has had two different rewards, in 5 generations since the start" in output
    assert "likely: the reward function is constant" in output
    assert "certificate FAILED" in output
    run = hosted.runs(task)[-1]
    assert not training.judge(project.Project(ROOT), run).good

    code, output = hosted.train(python, task, "--resume", run.name, "--max_steps", "8")
    assert code == 0, output
    assert "certificate FAILED" in output
    rows = [json.loads(line) for line in (run / "monitor.jsonl").read_text().splitlines()]
    assert [row["signal_never"] for row in rows if "signal_never" in row] == list(range(1, 9))


def test_one_file_watches_a_script_elsewhere(python: Path, task: Path, tmp_path: Path) -> None:
    packed = tmp_path / "vetted_monitor.zip"
    pack.pack(packed)
    assert zipfile.is_zipfile(packed)
    (task / "alone.py").write_text(SCRIPT.format(packed=str(packed)))
    done = subprocess.run(
        [str(python), "alone.py"], cwd=task, env={**monitor.VARIABLES, "HOME": str(task), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "monitor  2 steps: " in done.stderr
    verdict = training.judge(project.Project(ROOT), task / "out")
    assert verdict.doubts == ()
    assert verdict.notes == ("it ran in no image whose digest is known: what was installed is only listed",)
