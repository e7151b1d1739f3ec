"""The folder of a training run against its run certificate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from builder.base import errors, project
from builder.cli import app
from builder.publish import training
from runtime.monitor import certificate, checks, record
from tests.conftest import ROOT, Small
from tests.unit.conftest import Command
from tests.unit.runtime.monitor.conftest import finished, summarise

IMAGE = f"registry.example/trl@sha256:{'ab' * 32}"
HOME = project.Project(ROOT)
__all__ = ["finished"]


def doubts(folder: Path) -> str:
    return "\n".join(training.judge(HOME, folder).doubts)


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((folder / certificate.NAME).read_text())
    edit(document)
    (folder / certificate.NAME).write_text(json.dumps(document))


def test_the_bounds_that_verify_reads_are_those_that_judge() -> None:
    table = training.checks(HOME)
    assert table.digest == certificate.own_digest()
    shown = [(row.name, row.column, row.at_most, row.level, row.recovers) for row in table.rows]
    assert shown == [(row.name, row.column, row.at_most, row.level, row.recovers) for row in checks.CHECKS]


def test_a_run_that_is_as_its_certificate_says_is_good(finished: Path) -> None:
    verdict = training.judge(HOME, finished)
    assert (verdict.good, verdict.doubts, verdict.alarms) == (True, (), ())
    assert verdict.notes == (
        f"no certificate of its image lies beside it\nnext: vetted verify {IMAGE} --key cosign.pub",
    )


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "run.json", "monitor.json"])
def test_a_file_that_was_changed_is_doubted(finished: Path, name: str) -> None:
    with (finished / name).open("a") as file:
        file.write(" ")
    assert f"{name} is not the file that the run wrote" in doubts(finished)


def test_a_file_that_is_gone_and_one_that_came_are_doubted(finished: Path) -> None:
    (finished / "model.safetensors").unlink()
    (finished / "monitor.1.jsonl").write_text('{"step": 1}\n')
    assert "model.safetensors is not there" in doubts(finished)
    assert "it says nothing about monitor.1.jsonl" in doubts(finished)


@pytest.mark.parametrize("name", ["../run.json", "/etc/passwd"])
def test_a_file_outside_the_run_is_never_read(finished: Path, name: str) -> None:
    change(finished, lambda document: document["subject"][0].update(name=name))
    assert f"it names a file outside the run: {name}" in doubts(finished)


def test_a_link_is_no_file_of_the_run(finished: Path, tmp_path: Path) -> None:
    content = (finished / "config.yaml").read_bytes()
    (finished / "config.yaml").unlink()
    (tmp_path / "elsewhere").write_bytes(content)
    (finished / "config.yaml").symlink_to(tmp_path / "elsewhere")
    assert "config.yaml is not there" in doubts(finished)


def failing(folder: Path) -> None:
    """Make the run one with an alarm, honestly certified."""
    record.add(folder, 0, {"step": 4, "rank": 0, "gradient_angle": 1.9})
    summarise(folder)
    assert certificate.write(folder) == "FAILED"


def test_an_alarm_is_shown_and_is_no_doubt(finished: Path) -> None:
    failing(finished)
    verdict = training.judge(HOME, finished)
    assert (verdict.doubts, verdict.good) == ((), False)
    assert verdict.alarms[0].endswith("worst 1.9, bound 0.02, from step 4")


@pytest.mark.parametrize(("last", "result"), [(0, "WARNED"), (7, "FAILED"), (None, "FAILED")])
def test_an_alarm_that_ended_is_judged_as_the_monitor_judges_it(finished: Path, last: int | None, result: str) -> None:
    (finished / "monitor.jsonl").unlink()
    for step, value in enumerate([5, 6, last], start=1):
        numbers = {} if value is None else {"signal_never": value}
        record.add(finished, 0, {"step": step, "rank": 0, **numbers})
    record.add(finished, 1, {"step": 1, "rank": 1, "signal_never": 0})
    summarise(finished)
    assert certificate.write(finished) == result
    assert doubts(finished) == ""
    change(finished, lambda document: document["predicate"].update(result="PASSED"))
    assert f"it says PASSED, and the steps say {result}" in doubts(finished)


def test_an_alarm_must_be_over_on_every_rank(finished: Path) -> None:
    for rank, value in ((0, 5), (1, 5), (0, 0)):
        record.add(finished, rank, {"step": 4 + (value == 0), "rank": rank, "signal_never": value})
    summarise(finished)
    assert certificate.write(finished) == "FAILED"
    assert doubts(finished) == ""


@pytest.mark.parametrize("edit", [{"worst": 5.0}, {"first": 2}, {"at_most": 40.0}])
def test_a_number_that_was_edited_is_noticed(finished: Path, edit: dict[str, float]) -> None:
    record.add(finished, 0, {"step": 4, "rank": 0, "signal_never": 10_000})
    summarise(finished)
    assert certificate.write(finished) == "FAILED"
    assert doubts(finished) == ""

    def forged(document: dict[str, Any]) -> None:
        next(check for check in document["predicate"]["checks"] if check["name"] == "rewards-vary").update(edit)

    change(finished, forged)
    assert "rewards-vary: it says worst" in doubts(finished)
    assert "and the steps say worst 1e+04, bound 4, from step 4" in doubts(finished)


def test_an_alarm_that_was_edited_away_is_noticed(finished: Path) -> None:
    failing(finished)

    def whitewash(document: dict[str, Any]) -> None:
        predicate = document["predicate"]
        predicate["result"], predicate["failedTests"] = "PASSED", []
        predicate["passedTests"].append("gradient-direction")
        for check in predicate["checks"]:
            check["outcome"] = "passed"

    change(finished, whitewash)
    assert "gradient-direction: it says passed, and the steps say alarm, in 1 of 4" in doubts(finished)
    assert "it says PASSED, and the steps say FAILED" in doubts(finished)


def test_a_check_that_was_left_out_is_noticed(finished: Path) -> None:
    def leave_out(document: dict[str, Any]) -> None:
        predicate = document["predicate"]
        predicate["checks"] = [check for check in predicate["checks"] if check["name"] != "gradient-direction"]
        predicate["passedTests"].remove("gradient-direction")

    change(finished, leave_out)
    assert "gradient-direction: it says nothing, and the steps say passed" in doubts(finished)


def test_other_bounds_are_doubted(finished: Path) -> None:
    def widen(document: dict[str, Any]) -> None:
        monitor = next(entry for entry in document["predicate"]["configuration"] if entry["name"] == "monitor")
        monitor["digest"]["sha256"] = "0" * 64

    change(finished, widen)
    assert "it was judged by other bounds than this project's" in doubts(finished)


def test_a_monitor_that_failed_is_doubted(finished: Path) -> None:
    summarise(finished, failure="ValueError: no")
    assert certificate.write(finished) == "FAILED"
    assert "the monitor failed during the run and saw only a part of it: ValueError: no" in doubts(finished)


def test_a_blind_spot_of_this_run_that_was_left_out_is_noticed(finished: Path) -> None:
    summary = json.loads((finished / record.SUMMARY).read_text())
    (finished / record.SUMMARY).write_text(json.dumps({**summary, "blind": ["the weights of some ranks"]}))
    certificate.write(finished)
    assert doubts(finished) == ""

    def leave_out(document: dict[str, Any]) -> None:
        document["predicate"]["blindSpots"].remove("the weights of some ranks")

    change(finished, leave_out)
    assert doubts(finished) == "it leaves out what the monitor cannot see: the weights of some ranks"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"a": 1, "a": 2}', '{"_type": "x"}', "[" * 9999])
def test_what_is_no_certificate_is_an_error_with_a_next_step(finished: Path, content: str) -> None:
    (finished / certificate.NAME).write_text(content)
    with pytest.raises(errors.BadInputError, match="is no run certificate"):
        training.judge(HOME, finished)


def test_a_run_without_a_certificate_says_why(finished: Path) -> None:
    (finished / certificate.NAME).unlink()
    with pytest.raises(errors.BadInputError, match=r"has no run-certificate\.json"):
        training.judge(HOME, finished)


def test_the_command_verifies_a_run_without_a_key(finished: Path) -> None:
    done = CliRunner().invoke(app, ["verify", str(finished)])
    assert done.exit_code == 0, done.output
    assert "the run is as its certificate says, without an alarm" in done.output
    failing(finished)
    done = CliRunner().invoke(app, ["verify", str(finished), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["predicate"]["failedTests"] == ["gradient-direction"]


def test_the_path_that_a_container_prints_is_found_here(finished: Path, small: Small, command: Command) -> None:
    """A container knows the folder `runs` as /runs, and prints `next: vetted verify /runs/<time>`."""
    run = small.root / "runs" / finished.name
    run.parent.mkdir(exist_ok=True)
    finished.rename(run)
    answer = command(small.root / "lockfiles", "verify", f"/runs/{run.name}")
    assert "as its certificate says" in answer.out, answer.err


@pytest.mark.parametrize("reference", ["runs/typo", "./typo", "/no/such/run", "/runs/typo"])
def test_a_misspelt_run_is_no_image_without_a_key(small: Small, command: Command, reference: str) -> None:
    answer = command(small.root, "verify", reference)
    assert answer.code == 3
    assert f"{reference} is not the folder of a training run" in answer.err and "ls runs" in answer.err


def test_a_run_of_a_script_of_ones_own_is_good(finished: Path) -> None:
    """No run.json, streamed data, a model without a configuration, and arguments that JSON has no number for."""
    (finished / "run.json").unlink()
    summary = json.loads((finished / record.SUMMARY).read_text())
    summary.update(
        arguments={"delta": float("inf"), "beta": 0.0}, model={"name": "Policy"}, data={"reason": "streamed"}
    )
    (finished / record.SUMMARY).write_text(json.dumps(summary))
    assert certificate.write(finished) == "PASSED"
    verdict = training.judge(HOME, finished)
    assert verdict.doubts == ()
    assert verdict.notes == ("it ran in no image whose digest is known: what was installed is only listed",)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3])
def test_a_worst_number_is_what_json_can_say_of_it(finished: Path, value: float) -> None:
    record.add(finished, 0, {"step": 4, "rank": 0, "gradient_angle": value})
    summarise(finished)
    assert certificate.write(finished) == "FAILED"
    assert doubts(finished) == ""


def test_an_own_script_writes_its_certificate_again_without_an_image(finished: Path) -> None:
    (finished / "run.json").unlink()
    certificate.write(finished)
    (finished / "model.safetensors").unlink()
    certificate.write(finished)
    (finished / "model.safetensors").write_bytes(b"saved later")
    assert f"next: PYTHONPATH=vetted_monitor.zip python -m vetted_monitor.certificate {finished}" in doubts(finished)


def test_weights_of_the_last_checkpoint_must_be_named(finished: Path) -> None:
    (finished / "model.safetensors").unlink()
    for step in (3, 12):
        (finished / f"checkpoint-{step}").mkdir()
        (finished / f"checkpoint-{step}" / "model.safetensors").write_bytes(b"weights")
    doubt = doubts(finished)
    assert "it says nothing about checkpoint-12/model.safetensors\nusual cause: it was saved after training" in doubt
    assert f"next: docker compose run --rm shell python -m runtime.monitor.certificate {finished}" in doubt
    assert certificate.write(finished) == "PASSED"
    assert doubts(finished) == ""
