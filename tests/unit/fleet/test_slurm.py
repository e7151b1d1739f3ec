"""Jobs of Slurm that it holds: what its programs say of them, with programs that say just that."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.fleet import slurm
from builder.fleet.unit import Unit
from tests.conftest import TINY

UNIT = Unit(TINY, "host")
CANCELLED = "Slurm held the job, because a node could not start it; it is cancelled\nnext: sinfo --list-reasons"
# Each writes down what it was asked; squeue answers with the file `queue`, and `scontrol release` changes that.
PROGRAM = """\
#!{python}
import sys
from pathlib import Path
here = Path({here!r})
name = Path(sys.argv[0]).name
with (here / "asked").open("a") as file:
    print(name, *sys.argv[1:], file=file)
if name == "squeue":
    print((here / "queue").read_text())
if name == "scontrol" and (here / "refused").exists():
    sys.exit("Access/permission denied")
if name == "scontrol" and (here / "started").exists():
    (here / "queue").write_text("7|RUNNING|None")
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A job in the queue, whose answer is not there."""
    for name in ("squeue", "scontrol", "scancel"):
        (tmp_path / name).write_text(PROGRAM.format(python=sys.executable, here=str(tmp_path)))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(slurm, "POLL", 0.0)
    (tmp_path / "queue").write_text("7|PENDING|launch failed requeued held")
    return SimpleNamespace(job_id="7", paths=SimpleNamespace(result_pickle=tmp_path / "answer", stderr="log"))


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
    (tmp_path / "queue").write_text("7|PENDING|JobHeldUser")

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
        slurm.submit(Project(tmp_path), [UNIT], slurm.Limits(), tmp_path, tmp_path)
    assert "this machine has no Slurm that answers" in caught.value.what
    assert "login node" in caught.value.next_step
