"""`vetted trajectories`: a real process that trains nothing, records that are compared, and answers with exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.certify import engine
from builder.certify.certify import Options
from builder.certify.suite import Runner
from builder.lock import lockfile
from builder.trajectory import comparison, record, training
from builder.trajectory.record import Record
from builder.trajectory.training import Settings
from builder.upgrade import aside
from builder.upgrade import training as upgrade
from builder.upgrade.recertification import Progress, Recertification
from tests.commands import Answer
from tests.conftest import TINY, Small
from tests.unit.conftest import Command
from tests.unit.trajectory.kit import make

# In place of smoke/trajectories/__main__.py: random curves that depend on SHIFT and DRAW.
PROGRAM = """\
import json, random, sys
request = json.loads(sys.stdin.readline())
def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)
say("start", python="3.11.2", width=2)
for seed in range(request["first"], request["first"] + request["seeds"]):
    draw = random.Random(f"DRAW {seed}")
    curve = [step / 20 + draw.gauss(0, 0.1) + SHIFT for step in range(request["steps"])]
    SAY
say("finish")
"""
GOOD = 'say("seed", seed=seed, numbers={"reward": curve, "loss": curve[::-1]})'
OLDER = "sha256:" + "1" * 64  # of a task
FILE = Path("lockfiles") / TINY / "trajectories" / "cpu-host.json"


class Trainer:
    """The small project, with a program that makes numbers up."""

    def __init__(self, small: Small, command: Command) -> None:
        self.small, self.command = small, command
        for file in (*record.TASK, "trajectories/__init__.py", "kit/__init__.py"):
            path = small.project.smoke / file
            path.parent.mkdir(exist_ok=True)
            path.write_text("# the task\n")
        self.program()

    def program(self, say: str = GOOD, draw: int = 1, shift: float = 0.0) -> None:
        text = PROGRAM.replace("SAY", say).replace("DRAW", str(draw)).replace("SHIFT", str(shift))
        (self.small.project.smoke / "trajectories" / "__main__.py").write_text(text)

    def ask(self, *options: str) -> Answer:
        return self.command(
            self.small.root, "trajectories", TINY, "--engine", "host", "--seeds", "10", "--steps", "20", *options
        )

    def record(self) -> Record:
        return record.read(self.small.root / FILE, str(FILE))

    def second_stack(self) -> Path:
        """A copy of the stack; returns the file of its record."""
        shutil.copytree(self.small.project.stack_dir(TINY), self.small.project.stacks / "second")
        return self.small.project.stacks / "second" / "trajectories" / "cpu-host.json"


@pytest.fixture
def trainer(wheels: Small, command: Command) -> Trainer:
    return Trainer(wheels, command)


def test_it_records_compares_with_what_it_replaces_and_does_not_train_twice(trainer: Trainer) -> None:
    first = trainer.ask()
    assert first.code == 0, first.err
    assert f"{TINY}: recorded: 10 seeds of 20 steps, {FILE}" in first.out
    recorded = trainer.record()
    assert recorded.lock == trainer.small.lock.digest
    assert (recorded.names, recorded.place.python) == (["reward", "loss"], "3.11.2")
    again = trainer.ask("--json").json
    assert (again["reused"], again["verdict"]) == (True, None)
    trainer.program(draw=2)
    other = trainer.ask("--force")
    assert other.code == 0
    assert "the training does not change" in other.out and "picture: .vetted/trajectories/" in other.out
    same = trainer.ask("--force", "--json").json["verdict"]
    assert (same["answer"], same["same_bits"]) == ("same bits", 10)


def test_outside_of_the_band_of_a_file_it_exits_with_1_and_draws(trainer: Trainer, tmp_path: Path) -> None:
    golden = tmp_path / "golden.json"
    assert trainer.ask("--output", str(golden)).code == 0
    assert not (trainer.small.root / FILE).exists()
    trainer.program(draw=2, shift=0.5)
    picture = tmp_path / "picture.svg"
    answer = trainer.ask("--against", str(golden), "--picture", str(picture))
    assert answer.code == 1
    assert "the training changes: " in answer.out and "leaves the band" in answer.out
    assert picture.read_text().startswith("<svg ")


def test_a_stack_is_judged_against_another_and_every_pair_has_a_verdict(trainer: Trainer) -> None:
    assert trainer.ask().code == 0
    file = trainer.second_stack()
    shifted = trainer.record().model_dump(mode="json") | {"stack": "second"}
    for seed in shifted["seeds"]:
        seed["bits"] = "0"
        seed["numbers"]["reward"] = [value + 1 for value in seed["numbers"]["reward"]]
    file.write_text(json.dumps(shifted))
    assert trainer.ask("--against", "second").code == 1
    pairs = trainer.command(trainer.small.root, "trajectories")
    assert pairs.code == 0
    assert pairs.out.startswith(f"second → {TINY}: the training changes: reward leaves the band")
    (pair,) = trainer.command(trainer.small.root, "trajectories", "--json").json
    assert pair["good"] is False
    upgrades = comparison.upgrades(trainer.small.project, TINY)
    assert [str(each).partition(":")[0] for each in upgrades] == [f"{TINY} → second"]


def test_outdated_says_whether_another_stack_trains_the_same(trainer: Trainer) -> None:
    assert trainer.ask().code == 0
    file = trainer.second_stack()
    file.write_text(json.dumps(trainer.record().model_dump(mode="json") | {"stack": "second"}))
    answer = trainer.command(trainer.small.root, "outdated", TINY)
    assert answer.code == 0, answer.err
    assert f"{TINY} → second: the training is the same, to the last bit, in 10 of 10 seeds" in answer.out
    assert "picture: .vetted/trajectories/" in answer.out


def test_seeds_that_fail_are_named_and_when_all_do_nothing_is_recorded(trainer: Trainer) -> None:
    failing = 'say("seed", seed=seed, failure="FloatingPointError: kl is nan at step 2")'
    trainer.program(f"{GOOD} if seed > 1 else {failing}")
    answer = trainer.ask()
    assert answer.code == 0
    assert "seed 1 failed: FloatingPointError: kl is nan at step 2" in answer.out
    before = trainer.record()
    assert before.failed == {1: "FloatingPointError: kl is nan at step 2"}
    trainer.program(failing)
    answer = trainer.ask("--force")
    assert answer.code == 1
    assert "no seed trained to the end: FloatingPointError" in answer.err
    assert trainer.record() == before


@pytest.mark.parametrize(
    ("say", "words"),
    [
        ("print('hello')", "out of turn"),
        ('say("seed", seed=99, numbers={})', "out of turn"),
        ('say("seed", seed=seed, numbers={"reward": curve[1:]})', "has not 20 steps"),
        ('print(\'{"event": "seed", "seed": 1, "numbers": {"reward": [\' + ", ".join(["NaN"] * 20) + "]}}")', "finite"),
        ("sys.exit('no such package')", "no such package"),
    ],
)
def test_a_process_that_says_anything_else_is_an_error_in_words(trainer: Trainer, say: str, words: str) -> None:
    trainer.program(say)
    answer = trainer.ask()
    assert answer.code == 1
    assert words in answer.err and "Traceback" not in answer.err
    assert not (trainer.small.root / FILE).exists()


def test_bad_input_is_refused_before_anything_trains(trainer: Trainer, tmp_path: Path) -> None:
    trainer.program("sys.exit('it trains')")
    damaged = tmp_path / "cut.json"
    damaged.write_text(make(1).to_json()[:500])
    other_task = tmp_path / "other.json"
    other_task.write_text(make(1, steps=20).to_json())
    cases: list[tuple[str, int, str]] = [
        (str(damaged), 3, "not JSON"),
        (str(tmp_path / "nowhere.json"), 6, "does not exist"),
        (str(other_task), 3, "another task"),
        (TINY, 3, "has no golden trajectories"),
        ("nope", 3, "nope"),
    ]
    for against, code, words in cases:
        answer = trainer.ask("--against", against)
        assert (answer.code, words in answer.err) == (code, True), answer.err
        assert "it trains" not in answer.err and "Traceback" not in answer.err
    (trainer.small.project.smoke / "kit" / "tiny.py").unlink()
    assert "trains no golden trajectories" in trainer.ask().err


def test_without_records_it_says_what_to_do(command: Command, small: Small) -> None:
    answer = command(small.root, "trajectories")
    assert answer.code == 0
    assert "0 records of golden trajectories; a comparison needs two" in answer.out


def test_in_an_image_it_runs_as_the_suite_does_with_another_program() -> None:
    argv = engine.in_image(Path("/copy"), "label", "reference", "3.11", "cpu", 1000)
    other = training.command(Runner(argv))
    assert other[other.index("-S") + 1] == "/vetted/smoke/trajectories/__main__.py"
    assert [part for part in other if part not in argv] == ["/vetted/smoke/trajectories/__main__.py"]


class Upgrade:
    """A candidate of an upgrade, aside, whose training is made up."""

    def __init__(self, small: Small, monkeypatch: pytest.MonkeyPatch, after: dict[str, Any]) -> None:
        self.asked: list[Settings] = []
        scratch = small.scratch()
        copy = aside.make(small.project, TINY, scratch / "candidate")
        lock = lockfile.load(copy, TINY)
        self.result = Recertification(TINY, "green", lock, lock)

        def of_stack(*arguments: Any) -> Record:
            self.asked.append(arguments[3])
            return make(2, **{"stack": TINY, "task": record.task(copy.smoke), **after})

        monkeypatch.setattr(training, "of_stack", of_stack)
        silent = Progress(lambda _: None, lambda _: None)
        upgrade.compare(copy, self.result, lock, Options("cpu", "host"), scratch, silent)
        self.file = record.folder(copy, TINY) / "cpu-host.json"


def keep(small: Small, **fields: Any) -> None:
    """A record of the stack, of the task that its smoke/ trains."""
    for name in record.TASK:
        (small.project.smoke / name).parent.mkdir(exist_ok=True)
        (small.project.smoke / name).write_text("# the task\n")
    file = small.root / FILE
    file.parent.mkdir()
    task = record.task(small.project.smoke)
    file.write_text(make(1, **{"stack": TINY, "task": task, **fields}).to_json())


def test_recertify_trains_the_candidate_as_the_stack_was_trained(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(small, first=5, seeds=12)
    done = Upgrade(small, monkeypatch, {})
    assert done.asked == [Settings(seeds=12, steps=60, threads=1, first=5)]
    assert done.result.outcome == "green" and done.result.training and done.result.training.good
    assert record.read(done.file, "it").seeds == make(2).seeds


def test_recertify_keeps_the_old_stack_when_the_training_changes(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(small)
    done = Upgrade(small, monkeypatch, {"change": lambda _name, _step, value: value + 1})
    assert done.result.outcome == "strays"
    assert "the training changes" in str(done.result.training)


def test_recertify_says_why_nothing_was_compared(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    none = Upgrade(small, monkeypatch, {})
    assert (none.asked, none.result.training) == ([], None)
    assert "has no golden trajectories" in none.result.not_trained


def test_a_record_of_an_older_task_is_said_before_anything_is_trained(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(small, task=OLDER)
    other = Upgrade(small, monkeypatch, {})
    assert other.asked == []
    assert other.result.outcome == "green" and other.result.training is None
    assert other.result.not_trained == f"the record of {TINY} is of another task than smoke/ trains today"
    assert record.read(other.file, "it").task == OLDER  # the candidate's own is not written in its place


def test_a_missing_file_is_an_error_of_storage() -> None:
    with pytest.raises(errors.StorageError):
        comparison.band(None, "nowhere.json")  # type: ignore[arg-type]
