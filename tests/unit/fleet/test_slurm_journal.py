"""A job of Slurm is known by its number and its name together, and never by what lies around."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.base import errors
from builder.fleet import slurm
from builder.fleet.unit import Unit
from tests.unit.fleet.test_slurm import GPU, OTHER, UNIT, Fleet, fleet, interrupt

__all__ = ["fleet"]


def test_a_name_that_the_user_has_set_for_sbatch_is_not_that_of_the_job(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch obeys the variable rather than the script; a job of another name would not be found again."""
    monkeypatch.setenv("SBATCH_JOB_NAME", "mine")
    jobs = fleet.submit(UNIT)
    monkeypatch.setattr(slurm, "GRACE", -1.0)
    with pytest.raises(KeyboardInterrupt):  # it is in the queue
        list(slurm.outcomes(jobs, interrupt))
    assert fleet.submit(UNIT)[UNIT].job_id == "1" and fleet.submitted() == 1


@pytest.mark.parametrize("order", [(UNIT, OTHER), (OTHER, UNIT)])
def test_of_two_jobs_with_one_number_the_one_in_the_queue_is_followed(fleet: Fleet, order: tuple[Unit, ...]) -> None:
    fleet.submit(UNIT)
    fleet.empty()
    running = fleet.submit(OTHER)[OTHER]
    jobs = fleet.submit(*order)
    assert fleet.submitted() == 3, "the lost one is submitted again, and the other is not"
    assert jobs[OTHER].paths.folder == running.paths.folder
    assert jobs[UNIT].job_id == "2"


def test_a_job_of_somebody_else_with_the_number_is_not_counted(fleet: Fleet) -> None:
    jobs = fleet.submit(UNIT)
    queue = fleet.programs / "queue"
    queue.write_text(f"{queue.read_text()}1|of somebody else|PENDING|Priority\n")
    with pytest.raises(KeyboardInterrupt):
        list(slurm.outcomes(jobs, interrupt))  # it asks for "1 running"


@pytest.mark.parametrize("content", ['{"KEY": 5}', '{"KEY": "a/%a"}', '{"KEY": "7"}', "[]", "{"])
def test_a_damaged_journal_is_one_without_jobs(fleet: Fleet, content: str) -> None:
    fleet.submit(UNIT)
    journal = fleet.folder / slurm.JOURNAL
    (key,) = json.loads(journal.read_text())
    journal.write_text(content.replace("KEY", key))
    fleet.submit(UNIT)
    assert fleet.submitted() == 2


def test_a_kill_between_the_journal_and_its_seal_loses_no_job(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.submit(UNIT)
    replace = Path.replace

    def killed(path: Path, target: Path) -> Path:
        if target.name == slurm.JOURNAL:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            fleet.submit(OTHER)
    assert fleet.submit(UNIT)[UNIT].job_id == "1" and fleet.submitted() == 2


def saying(fleet: Fleet) -> list[str]:
    """What is said while the unit is submitted."""
    said: list[str] = []
    small = fleet.small
    slurm.submit(small.project, [UNIT], slurm.Limits(), fleet.folder, small.scratch(), said.append)
    return said


def test_jobs_of_an_earlier_version_are_not_followed_and_that_is_said(fleet: Fleet) -> None:
    """Its journal had no seal. One without jobs is no matter."""
    fleet.submit(UNIT)
    for seal in fleet.folder.glob("*.seal"):
        seal.unlink()
    said = saying(fleet)
    assert said[0].startswith(".vetted/fleet/jobs.json has no seal of yours") and "squeue --me" in said[0]
    assert fleet.submitted() == 2 and len(saying(fleet)) == 1
    (fleet.folder / slurm.JOURNAL).write_text("{}\n")
    assert len(saying(fleet)) == 1


def test_too_many_cores_are_no_matter_of_gpus(fleet: Fleet) -> None:
    said = "sbatch: error: CPU count per node can not be satisfied\nRequested node configuration is not available"
    fleet.refuses("--gres", said)
    with pytest.raises(errors.VettedError) as caught:
        fleet.submit(GPU)
    assert "cores" in caught.value.cause and "kind" not in caught.value.cause
    assert caught.value.next_step.startswith("sinfo --summarize; sbatch --test-only ")
