"""The folder of a run: new, resumed, or removed because it never trained."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.train import folder
from runtime.train.arguments import UsageError
from runtime.train.folder import Record


def trained(runs: Path, name: str, *steps: int, whole: bool = True) -> Path:
    run = runs / name
    run.mkdir(parents=True)
    folder.write(run, Record("grpo"), {"beta": 0.1})
    for step in steps:
        (run / f"checkpoint-{step}").mkdir()
        if whole:
            (run / f"checkpoint-{step}" / "trainer_state.json").touch()
    return run


def test_any_number_of_runs_may_begin_in_one_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Clock:
            return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)

    monkeypatch.setattr(datetime, "datetime", Clock)
    assert len({folder.new(tmp_path) for _ in range(120)}) == 120


def test_only_a_run_with_a_whole_checkpoint_is_resumed(tmp_path: Path) -> None:
    trained(tmp_path, "20261119-000000")
    trained(tmp_path, "20261122-000000", 5, whole=False)  # it was killed while it wrote the checkpoint
    with pytest.raises(UsageError, match="no run in /runs has a checkpoint"):
        folder.resumed(tmp_path, None)
    good = trained(tmp_path, "20261120-000000", 9, 10, 100)
    (good / "checkpoint-100" / "trainer_state.json").unlink()
    trained(tmp_path, "20261121-000000")
    assert folder.resumed(tmp_path, None) == folder.resumed(tmp_path, "20261120-000000") == good
    assert folder.latest(good) == good / "checkpoint-10"
    (good / "checkpoint-best").mkdir()
    (good / "checkpoint-best" / "trainer_state.json").touch()  # a copy of the user's
    assert folder.latest(good) == good / "checkpoint-10"
    with pytest.raises(UsageError, match="20261121-000000 has no checkpoint; the latest with one: 20261120-000000"):
        folder.resumed(tmp_path, "20261121-000000")
    with pytest.raises(UsageError, match="20261123-000000 is not in /runs"):
        folder.resumed(tmp_path, "20261123-000000")


def test_a_start_that_never_trained_leaves_nothing(tmp_path: Path) -> None:
    failed = trained(tmp_path, "failed")
    (failed / "task").mkdir()
    assert folder.discard(failed)
    assert not failed.exists()
    assert not folder.discard(trained(tmp_path, "saved", 1))
    logged = trained(tmp_path, "logged")
    (logged / "metrics.jsonl").write_text("{}\n")
    assert not folder.discard(logged)
    assert logged.exists()


@pytest.mark.parametrize("result", ["adapter_model.bin", "samples.jsonl", "images/0.png"])
def test_a_start_that_wrote_results_of_its_own_is_kept(tmp_path: Path, result: str) -> None:
    run = trained(tmp_path, "own")
    (run / result).parent.mkdir(exist_ok=True)
    (run / result).touch()
    assert not folder.discard(run)
    assert (run / result).exists()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record("sft", None, ("--a",), (("vetted", "train"),), "image@sha256:1", "trl", {"HF_HOME": "/x"})
    folder.write(tmp_path, record, {"max_steps": 3, "reward_funcs": ["a.b"]})
    assert folder.read(tmp_path) == record
    assert (tmp_path / folder.CONFIG).read_text() == "max_steps: 3\nreward_funcs:\n- a.b\n"
    folder.write(tmp_path, replace(record, script="my.py"), None)
    assert folder.read(tmp_path).script == "my.py"
    (tmp_path / folder.RECORD).write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        folder.read(tmp_path)
    (tmp_path / folder.RECORD).unlink()
    assert folder.read(tmp_path) == Record("grpo")  # a run of an earlier release


def test_weights_may_be_read_by_whoever_may_read_the_other_files(tmp_path: Path) -> None:
    run = trained(tmp_path, "run", 1)
    for path in (run / "model.safetensors", run / "checkpoint-1" / "model.safetensors"):
        path.touch(mode=0o600)
    folder.share(run)
    expected = (run / folder.RECORD).stat().st_mode
    assert [path.stat().st_mode for path in sorted(run.rglob("*.safetensors"))] == [expected, expected]
