"""Jobs of Slurm that it holds: what its programs say of them, with programs that say just that."""

from __future__ import annotations

import pickle
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.fleet import slurm
from builder.fleet.unit import Outcome, Unit
from tests.conftest import TINY, Small
from tests.unit.conftest import Command

UNIT = Unit(TINY, "host")
CANCELLED = "Slurm held the job, because a node could not start it; it is cancelled\nnext: sinfo --list-reasons"
# Each writes down what it was asked. The file `queue` has a line for each job, ID|NAME|STATE|REASON. squeue prints it
# in the form that it is asked for, sbatch adds to it, `scontrol release` changes it. The file `refusal` has a word, and
# what sbatch says of scripts with that word.
PROGRAM = """\
#!{python}
import os
import re
import sys
from pathlib import Path
here = Path({here!r})
name = Path(sys.argv[0]).name
with (here / "asked").open("a") as file:
    print(name, *sys.argv[1:], file=file)
queue = here / "queue"
if name == "squeue":
    (form,) = (word.partition("=")[2] for word in sys.argv if word.startswith("--format="))
    for line in queue.read_text().splitlines():
        fields = dict(zip(("%i", "%j", "%T", "%r"), line.split("|"), strict=True))
        print(re.sub("%[a-zA-Z]", lambda match: fields[match[0]], form))
if name == "sbatch":
    script = Path(sys.argv[1]).read_text()
    if (here / "refusal").exists():
        word, _, message = (here / "refusal").read_text().partition("\\n")
        if word in script:
            sys.exit(message)
    number = int((here / "next").read_text())
    (here / "next").write_text(str(number + 1))
    tasks = re.search("--array=0-([0-9]+)", script)
    ids = [f"{{number}}_{{task}}" for task in range(int(tasks[1]) + 1)] if tasks else [str(number)]
    name = os.environ.get("SBATCH_JOB_NAME") or re.search("--job-name=(.*)", script)[1]
    queue.write_text(queue.read_text() + "".join(f"{{each}}|{{name}}|RUNNING|None\\n" for each in ids))
    print("Submitted batch job", number)
if name == "scontrol" and (here / "refused").exists():
    sys.exit("Access/permission denied")
if name == "scontrol" and (here / "started").exists():
    queue.write_text("7|vetted-1|RUNNING|None")
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A job in the queue, whose answer is not there."""
    install(tmp_path, monkeypatch)
    (tmp_path / "queue").write_text("7|vetted-1|PENDING|launch failed requeued held")
    paths = SimpleNamespace(folder=tmp_path / "vetted-1", result_pickle=tmp_path / "answer", stderr="log")
    return SimpleNamespace(job_id="7", paths=paths)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's programs, and nothing else, on PATH."""
    folder.mkdir(exist_ok=True)
    for name in ("sinfo", "srun", "sbatch", "squeue", "scontrol", "scancel"):
        (folder / name).write_text(PROGRAM.format(python=sys.executable, here=str(folder)))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(slurm, "POLL", 0.0)


def asked(folder: Path, program: str) -> list[str]:
    return [line for line in (folder / "asked").read_text().splitlines() if line.startswith(program)]


def test_a_job_that_no_node_can_start_is_released_twice_and_then_ended_with_a_reason(job: Any, tmp_path: Path) -> None:
    said: list[str] = []
    (outcome,) = slurm.outcomes({UNIT: job}, said.append)
    assert outcome.error == CANCELLED
    assert asked(tmp_path, "scontrol") == ["scontrol release 7"] * 2
    assert asked(tmp_path, "scancel") == ["scancel 7"]
    assert set(said) == {"1 held (launch failed requeued held)"}


def test_one_that_this_user_may_not_release_is_ended_at_once(job: Any, tmp_path: Path) -> None:
    (tmp_path / "refused").touch()
    (outcome,) = slurm.outcomes({UNIT: job}, lambda _: None)
    assert outcome.error == CANCELLED
    assert len(asked(tmp_path, "scontrol")) == len(asked(tmp_path, "scancel")) == 1


def test_one_that_starts_on_another_node_is_waited_for(job: Any, tmp_path: Path) -> None:
    (tmp_path / "started").touch()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(slurm.outcomes({UNIT: job}, say))
    assert said == ["1 held (launch failed requeued held)", "1 running", "1 running"]
    assert asked(tmp_path, "scontrol") == ["scontrol release 7"] and asked(tmp_path, "scancel") == []


def test_what_a_person_holds_is_left_to_that_person_and_said(job: Any, tmp_path: Path) -> None:
    (tmp_path / "queue").write_text("7|vetted-1|PENDING|JobHeldUser")

    def say(line: str) -> None:
        assert line == "1 held (JobHeldUser)"
        if len(asked(tmp_path, "squeue")) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(slurm.outcomes({UNIT: job}, say))
    assert asked(tmp_path, "scontrol") == asked(tmp_path, "scancel") == []


@pytest.mark.parametrize("installed", [False, True])
def test_away_from_a_login_node_the_next_step_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    if installed:
        (tmp_path / "sinfo").write_text(
            "#!/bin/sh\necho 'sinfo: fatal: Could not establish a configuration source'\nexit 1"
        )
        (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.MissingToolError) as caught:
        slurm.submit(Project(tmp_path), [UNIT], slurm.Limits(), tmp_path, tmp_path, lambda _: None)
    assert "this machine has no Slurm that answers" in caught.value.what
    assert "login node" in caught.value.next_step


# --- the ids of jobs repeat: a cluster that lost its state begins with 1, and each cluster counts for itself ---------


class Fleet:
    """Slurm's programs, and the stack with a second name."""

    def __init__(self, small: Small, programs: Path) -> None:
        self.small, self.programs, self.folder = small, programs, small.project.state / "fleet"
        shutil.copytree(small.file("stack.toml").parent, small.project.stack_dir(OTHER.stack))
        self.empty()

    def empty(self) -> None:
        """The cluster starts with no jobs, as a new one does."""
        (self.programs / "queue").write_text("")
        (self.programs / "next").write_text("1")

    def submit(self, *units: Unit) -> dict[Unit, Any]:
        return slurm.submit(
            self.small.project, units, slurm.Limits(), self.folder, self.small.scratch(), lambda _: None
        )

    def submitted(self) -> int:
        return len(asked(self.programs, "sbatch"))

    def answers(self, unit: Unit, job: Any) -> Outcome:
        """The job's node writes its answer; returns what came of it, which is kept."""
        outcome = Outcome(unit, "n1", 1.0, b"{}")
        job.paths.result_pickle.write_bytes(pickle.dumps(("success", outcome)))
        (came,) = slurm.outcomes({unit: job}, lambda _: None)
        slurm.collected(self.small.project, unit, self.folder, self.small.scratch())
        return came

    def refuses(self, word: str, message: str) -> None:
        """sbatch refuses scripts with this word."""
        (self.programs / "refusal").write_text(f"{word}\n{message}")


OTHER = Unit(f"{TINY}-b", "host")


@pytest.fixture
def fleet(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    install(tmp_path / "programs", monkeypatch)
    return Fleet(small, tmp_path / "programs")


def interrupt(line: str) -> None:
    assert line == "1 running"
    raise KeyboardInterrupt


@pytest.mark.parametrize("unit", [OTHER, UNIT])
def test_the_answer_of_an_earlier_job_of_the_same_number_is_not_taken(fleet: Fleet, unit: Unit) -> None:
    earlier = fleet.submit(UNIT)[UNIT]
    assert fleet.answers(UNIT, earlier).unit == UNIT
    fleet.empty()
    jobs = fleet.submit(unit)
    assert jobs[unit].job_id == earlier.job_id
    assert not jobs[unit].paths.result_pickle.exists()
    with pytest.raises(KeyboardInterrupt):  # it waits
        list(slurm.outcomes(jobs, interrupt))
    assert fleet.answers(unit, jobs[unit]).unit == unit


def test_a_job_of_an_interrupted_fleet_is_followed_and_one_of_its_number_alone_is_not(fleet: Fleet) -> None:
    units = (UNIT, OTHER)
    first = fleet.submit(*units)
    again = fleet.submit(*units)
    assert [again[each].job_id for each in units] == ["1_0", "1_1"] and fleet.submitted() == 1
    assert [again[each].paths.folder for each in units] == [first[each].paths.folder for each in units]
    fleet.empty()
    (fleet.programs / "queue").write_text("1_0|of somebody else|RUNNING|None\n1_1|vetted|RUNNING|None\n")
    fleet.submit(*units)
    assert fleet.submitted() == 2


def test_an_answer_that_came_while_no_fleet_ran_is_collected_on_any_cluster(fleet: Fleet) -> None:
    job = fleet.submit(UNIT)[UNIT]
    job.paths.result_pickle.write_bytes(pickle.dumps(("success", Outcome(UNIT, "n1", 1.0, b"{}"))))
    fleet.empty()
    again = fleet.submit(UNIT)[UNIT]
    assert fleet.submitted() == 1 and fleet.answers(UNIT, again).unit == UNIT


def test_the_log_and_the_time_limit_are_said_once_when_the_wait_begins(
    fleet: Fleet, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "outcomes", lambda *_: iter(()))
    argv = ("fleet", TINY, OTHER.stack, "--on", "slurm", "--minutes", "90")
    answer = command(fleet.small.root, *argv)
    (own,) = (fleet.folder / "logs").iterdir()
    log = f".vetted/fleet/logs/{own.name}"
    assert answer.err.splitlines() == [
        f"{TINY}: job 1_0, at most 90 minutes; log: {log}/1_0_0_log.err",
        f"{TINY}-b: job 1_1, at most 90 minutes; log: {log}/1_1_0_log.err",
    ]
    answer = command(fleet.small.root, *argv)
    assert answer.err.splitlines() == [
        f"{TINY}: job 1_0 of an earlier command; log: {log}/1_0_0_log.err",
        f"{TINY}-b: job 1_1 of an earlier command; log: {log}/1_1_0_log.err",
    ]


def test_every_outcome_names_the_log_of_its_job(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    job = fleet.submit(UNIT)[UNIT]
    assert fleet.answers(UNIT, job).log == str(job.paths.stderr)
    lost = fleet.submit(OTHER)[OTHER]
    (fleet.programs / "queue").write_text("")
    monkeypatch.setattr(slurm, "GRACE", -1.0)
    (outcome,) = slurm.outcomes({OTHER: lost}, lambda _: None)
    assert outcome.log == str(lost.paths.stderr)
    assert outcome.error.splitlines()[0] == "the job ended without an answer"
    assert outcome.error.splitlines()[-1] == "next: scontrol show job 2"


# --- sbatch refuses a job ------------------------------------------------------------------------------------------

GPU = Unit(f"{TINY}-b", "host", "h200", 2)
# With GPUs of another kind, and without any.
NO_SUCH_GPU = [
    f"sbatch: error: Batch job submission failed: {reason}"
    for reason in ("Requested node configuration is not available", "Invalid generic resource (gres) specification")
]


@pytest.mark.parametrize("said", NO_SUCH_GPU)
def test_a_refusal_names_its_unit_and_what_was_submitted_before(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    fleet.refuses("--gres", said)
    with pytest.raises(errors.VettedError) as caught:
        fleet.submit(UNIT, GPU)
    what, printed = caught.value.what, capsys.readouterr()
    assert what.splitlines() == [
        f"Slurm refuses the job of {TINY}-b-h200-2", said,
        f"submitted: {TINY} (job 1); the corrected command follows what was submitted",
    ]  # fmt: skip
    assert said not in printed.out + printed.err, "it is said once"
    assert caught.value.next_step == "sinfo --format=%G"
    assert "2 GPUs of the kind h200" in caught.value.cause
    (fleet.programs / "refusal").unlink()
    assert fleet.submit(UNIT, GPU)[UNIT].job_id == "1" and fleet.submitted() == 3


def test_another_refusal_has_a_command_that_can_be_typed(fleet: Fleet) -> None:
    fleet.refuses("job-name", "sbatch: error: Batch job submission failed: Invalid account")
    with pytest.raises(errors.VettedError) as caught:
        fleet.submit(UNIT, OTHER)
    assert caught.value.what.splitlines()[0] == f"Slurm refuses the jobs of {TINY}, {TINY}-b"
    assert "submitted" not in caught.value.what
    first, second = caught.value.next_step.split("; ")
    assert first == "sinfo --summarize"
    *command, script = shlex.split(second)
    assert command == ["sbatch", "--test-only"]
    assert "--job-name=vetted-" in (fleet.small.root / script).read_text()
