"""Controls, run: what must fail fails for the right reason, its twin passes, and everything else is said."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path

import pytest

from builder.base import sources
from builder.certify import certificate, control
from builder.certify.certificate import ProbeResult
from builder.certify.control import ControlResult, Side
from tests import kills
from tests.conftest import PATCH, Small
from tests.unit.certify.conftest import NAME, SUITE
from tests.unit.conftest import Command

pytestmark = pytest.mark.engine  # each of them installs two environments and runs them


def test_a_patched_twin_is_run_and_judged(patched: Small, command: Command) -> None:
    answer = command(patched.root, "controls", "--json")
    assert answer.code == 0
    (row,) = answer.json["rows"]
    assert (row["caught"], row["false_alarm"]) == (True, False)
    assert (row["twin"], row["patches"]) == ("tiny-lib/1.0/0001-greet.patch", [PATCH])
    assert row["control_lock"] != row["twin_lock"]


def test_both_sides_are_run_and_judged(locked: Small, command: Command) -> None:
    answer = command(locked.root, "controls")
    assert answer.code == 0
    assert "1 of 1 controls caught" in answer.out
    assert "false alarms  0 on 1 twins" in answer.out
    assert not list((locked.project.state / "host").glob("*")), "no environment is left behind"


def test_sides_with_one_lock_are_one_run_and_each_control_gets_its_own_probes(patched: Small, command: Command) -> None:
    text = (patched.project.control_dir(NAME) / "stack.toml").read_text()
    folder = patched.project.control_dir("blunt")
    folder.mkdir()
    other = text.replace('fails = ["greeting"]', 'fails = ["other"]').replace('"nobody"', '"something else"')
    (folder / "stack.toml").write_text(other)
    assert control.make(patched.project, "blunt", patched.scratch())
    both = [control.load(patched.project, name) for name in (NAME, "blunt")]
    assert [run.probes for run in control.runs(both, full=False)] == [("greeting", "other")] * 2
    assert [run.probes for run in control.runs(both, full=True)] == [()] * 2
    assert [run.probes for run in control.runs(both[:1], full=False)] == [("greeting",)] * 2
    answer = command(patched.root, "controls", "--json")
    assert answer.code == 1, answer.out + answer.err
    rows = {row["control"]: row for row in answer.json["rows"]}
    for row, probe in ((rows[NAME], "greeting"), (rows["blunt"], "other")):
        assert [result["probe"] for side in ("on_control", "on_twin") for result in row[side]] == [probe] * 2
        assert row["caught"]
    # Its twin is patched for another defect.
    assert (rows[NAME]["false_alarm"], rows["blunt"]["false_alarm"]) == (False, True)


def test_a_control_that_is_named_twice_is_one(locked: Small, command: Command) -> None:
    assert command(locked.root, "controls", NAME, NAME, "--json").json["controls"] == 1


def test_a_run_that_is_killed_at_a_patch_leaves_nothing_that_the_next_one_uses(
    patched: Small, command: Command, tmp_path: Path
) -> None:
    """Right before a patched file is put into place, and right after it: the next run has the locked files again."""

    def run() -> None:
        command(patched.root, "controls", "--jobs", "1")  # one order of renames

    names = tmp_path / "names"
    points = list(kills.points(run, patched.root, names))
    (patching,) = [
        number
        for number, name in enumerate(names.read_text().splitlines())
        if name.endswith("site-packages/tiny_lib.py")
    ]
    for point in points:
        if point.number == patching:
            kills.kill(run, patched.root, point, names)
            assert list(patched.project.state.glob("tmp/.controls/*/host"))
            answer = command(patched.root, "controls")
            assert answer.code == 0, answer.out + answer.err
            assert [*patched.project.state.glob("tmp/.controls"), *patched.project.state.glob("host/*")] == []


def test_every_probe_is_run_when_asked_and_other_reds_are_said(locked: Small, command: Command) -> None:
    answer = command(locked.root, "controls", NAME, "--full")
    assert answer.code == 0
    assert "on the control also other: something else" in answer.out
    assert "on the twin also other: something else" in answer.out


def test_a_control_that_passes_is_a_no(locked: Small, command: Command) -> None:
    (locked.project.smoke / "__main__.py").write_text(SUITE.replace('tiny_lib.greeting == "somebody"', "True"))
    answer = command(locked.root, "controls")
    assert answer.code == 1
    assert "0 of 1 controls caught" in answer.out
    assert "rude: must fail greeting, saying 'nobody'" in answer.out


def test_a_twin_that_fails_is_a_false_alarm(locked: Small, command: Command) -> None:
    (locked.project.smoke / "__main__.py").write_text(SUITE.replace('tiny_lib.greeting == "somebody"', "False"))
    answer = command(locked.root, "controls", "--json")
    assert answer.code == 1
    assert (answer.json["caught"], answer.json["false_alarms"]) == (1, 1)


def test_the_evidence_is_recorded_on_demand(locked: Small, command: Command) -> None:
    assert command(locked.root, "controls", "--record").code == 0
    document = json.loads((locked.root / "docs" / "evidence" / "controls.json").read_text())
    assert document["suite"] == sources.digest(locked.project.smoke)
    assert document["command"] == "vetted controls --record"
    assert (document["sensitivity"], document["false_alarms"]) == (1.0, 0)
    (row,) = document["rows"]
    assert (row["control"], row["twin"], row["caught"]) == (NAME, "tiny-lib 2.0", True)


def test_what_is_proven_for_this_suite_and_lock_is_sampled_and_the_rest_is_run(
    locked: Small, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ran() -> list[str]:
        answer = command(locked.root, "controls", "--changed", "--json")
        assert answer.code == 0, answer.out + answer.err
        return [row["control"] for row in answer.json["rows"]]

    folder = locked.project.control_dir(NAME)
    for number in range(5):
        shutil.copytree(folder, folder.with_name(f"copy-{number}"))
    every = sorted([NAME, *(f"copy-{number}" for number in range(5))])
    assert ran() == every, "nothing is recorded yet"
    assert command(locked.root, "controls", "--record").code == 0
    samples = []
    for day in range(2):
        today = certificate.today() + datetime.timedelta(days=day)
        monkeypatch.setattr(certificate, "today", lambda today=today: today)
        samples.append(ran())
        monkeypatch.undo()
    assert [len(sample) for sample in samples] == [3, 3]
    assert sorted(samples[0] + samples[1]) == every, "each day others"
    path = locked.root / "docs" / "evidence" / "controls.json"
    document = json.loads(path.read_text())
    document["rows"][0]["caught"] = False
    document["rows"][1]["twin_lock"] = "sha256:other"
    path.write_text(json.dumps(document))
    assert {row["control"] for row in document["rows"][:2]} <= set(ran())
    (locked.project.smoke / "new.py").touch()
    assert ran() == every, "another suite"


def test_an_unknown_control_is_named_with_the_closest(locked: Small, command: Command) -> None:
    answer = command(locked.root, "controls", "rudee")
    assert answer.code == 3
    assert "did you mean rude?" in answer.err


def result(
    bad: str, twin: str, reason: str = "it greets nobody", fails: tuple[str, ...] = ("greeting",)
) -> ControlResult:
    def side(outcome: str) -> Side:
        return Side(
            "sha256:", (ProbeResult.model_validate({"name": "greeting", "outcome": outcome, "reason": reason}),)
        )

    return ControlResult(NAME, "", fails, "nobody", "tiny-lib 2.0", side(bad), side(twin))


@pytest.mark.parametrize("outcome", ["failed", "crashed", "timeout", "oom"])
def test_red_is_red_however_it_ended(outcome: str) -> None:
    assert result(outcome, "passed").good


def test_red_for_another_reason_is_not_caught() -> None:
    assert not result("failed", "passed", "ModuleNotFoundError").caught


def test_not_run_is_neither_caught_nor_passed() -> None:
    assert not result("not-run", "passed").caught
    assert result("failed", "not-run").false_alarm


def test_a_probe_without_a_result_is_neither_caught_nor_passed() -> None:
    both = result("failed", "passed", fails=("greeting", "missing"))
    assert not both.caught
    assert both.false_alarm
