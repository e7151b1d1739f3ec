"""The command for mutants: what a run comes to, what it remembers, and what it refuses."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.base import sources
from tests.commands import Answer, spawn
from tests.conftest import TINY, Small
from tests.mutants import __main__ as command_line
from tests.unit.mutants.conftest import ONE, PROBE, SUMS, site_packages, write_list

pytestmark = pytest.mark.engine  # each of them runs the real suite several times

SLOW = {**ONE, "id": "slow", "find": "SLOW = False", "replace": "SLOW = True"}
UNSEEN = {**ONE, "id": "unseen", "find": "return add(a, a)", "replace": "return a", "survives": "nobody doubles"}

Mutants = Callable[..., Answer]


@pytest.fixture
def mutants(calculator: Small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Mutants:
    """Run the command on the small project with a list of these mutants."""

    def run(*listed: dict[str, str], options: tuple[str, ...] = ()) -> Answer:
        path = write_list(calculator.root / "mutants.toml", *listed)
        monkeypatch.chdir(calculator.root)
        argv = ["mutants", "--file", str(path), "--stack", TINY, *options]
        monkeypatch.setattr(sys, "argv", argv)
        capsys.readouterr()
        code: object = 0
        try:
            command_line.main()
        except SystemExit as ended:
            code = ended.code
        printed = capsys.readouterr()
        return Answer(code if isinstance(code, int) else 0, printed.out, printed.err)

    return run


def leftovers(small: Small) -> list[Path]:
    return [path for path in (small.project.state / "tmp").glob("*") if path.name != TINY]


def test_a_run_tells_the_killed_from_the_survivors(mutants: Mutants, calculator: Small) -> None:
    answer = mutants(ONE, SLOW, UNSEEN, options=("--json", "--output", "docs/evidence/mutants.json"))
    assert (answer.code, answer.err) == (1, "")  # 2 of 3 are not enough
    assert json.loads((calculator.root / "docs/evidence/mutants.json").read_text()) == answer.json
    assert answer.json["total"] == {"mutants": 3, "killed": 2, "rate": 0.6667}
    assert answer.json["packages"] == {"tiny-math": answer.json["total"]}
    assert answer.json["suite"] == sources.digest(calculator.project.smoke)
    assert answer.json["lock"] == calculator.lock.digest
    assert answer.json["command"] == (
        f"./nox -s mutants -- --file mutants.toml --stack {TINY} --json --output docs/evidence/mutants.json"
    )
    killed, slow, unseen = answer.json["mutants"]
    assert (killed["outcome"], killed["by"]) == ("killed", "sums")
    assert killed["reason"] == "failed: answer is -2, must be exactly 4"
    assert (slow["outcome"], slow["by"]) == ("killed", "sums")
    assert slow["reason"] == "timeout: still running after 2 s"
    assert (unseen["outcome"], unseen["why"]) == ("survived", "differs")
    assert unseen["reason_survived"] == "nobody doubles"
    assert (site_packages(calculator) / "tiny_math" / "sums.py").read_text() == SUMS
    assert leftovers(calculator) == []


def test_what_changes_nothing_is_named_and_neither_run_nor_counted(mutants: Mutants) -> None:
    same = {**ONE, "id": "same", "replace": "b + a", "equivalent": "a sum has no order"}
    answer = mutants(ONE, same, options=("--json",))
    assert (answer.code, answer.json["total"]["mutants"], answer.json["equivalent"]) == (0, 1, ["same"])
    assert [entry["id"] for entry in answer.json["mutants"]] == ["one"]
    assert mutants(same).code == 3
    assert "has no mutant that is not equivalent" in mutants(same).err


def test_one_mutant_leaves_nothing_to_the_next(mutants: Mutants) -> None:
    many = [{**ONE, "id": f"{number}", "find": find, "replace": replace} for number, (find, replace) in enumerate([
        ("a + b", "a - b"), ("return add(a, a)", "return a + a"), ("a + b", "a * b"), ("SLOW = False", "SLOW = 0"),
    ])]  # fmt: skip
    answer = mutants(*many, options=("--jobs", "1", "--json"))
    outcomes = [mutant["outcome"] for mutant in answer.json["mutants"]]
    assert outcomes == ["killed", "survived", "killed", "survived"]


def test_people_read_one_line_for_each_and_a_table(mutants: Mutants) -> None:
    answer = mutants(ONE, UNSEEN)
    assert "killed   one by sums (" in answer.out
    assert "survived unseen (" in answer.out
    assert re.search(r"tiny-math +2 +1 +50%", answer.out)
    assert "survived unseen: nobody doubles" in answer.out
    assert "50.0% killed, 90% asked" in answer.out


def test_enough_killed_is_a_success(mutants: Mutants) -> None:
    assert mutants(ONE).code == 0
    assert mutants(ONE, UNSEEN, options=("--only", "one")).code == 0


def test_what_is_known_is_not_run_again(mutants: Mutants, calculator: Small) -> None:
    assert "killed   one by sums (" in mutants(ONE).out
    renamed = {**ONE, "id": "uno", "why": "still differs"}
    assert "killed   uno by sums (earlier)" in mutants(renamed).out  # what it is called does not count
    assert "(earlier)" not in mutants({**ONE, "replace": "a * b"}).out
    probe = calculator.project.smoke / "probes" / "sums.py"
    probe.write_text(PROBE + "# another suite\n")
    assert "(earlier)" not in mutants(ONE).out


def test_a_suite_that_fails_without_a_mutant_kills_none(mutants: Mutants, calculator: Small) -> None:
    (calculator.project.smoke / "probes" / "sums.py").write_text(PROBE.replace("equals=4", "equals=5"))
    answer = mutants(ONE)
    assert answer.code == 1
    assert "without any mutant, the suite fails already:\nsums: failed: answer is 4" in answer.err
    assert not (calculator.project.state / "mutants").exists()


def test_a_suite_that_cannot_run_here_kills_none(mutants: Mutants, calculator: Small) -> None:
    for probe in calculator.project.smoke.glob("probes/*.py"):
        probe.write_text(probe.read_text().replace('needs=("tiny_math",)', 'needs=("no_such_package",)'))
    assert "no probe runs on this machine" in mutants(ONE).err


@pytest.mark.parametrize(
    ("change", "options", "code"),
    [
        ({"file": "../x.py"}, (), 3),
        ({"find": "a * b"}, (), 3),
        ({"package": "torch"}, (), 3),
        ({}, ("--only", "two"), 3),
        ({}, ("--jobs", "0"), 2),
        ({}, ("--stack", "other"), 3),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(
    mutants: Mutants, calculator: Small, change: dict[str, str], options: tuple[str, ...], code: int
) -> None:
    answer = mutants({**ONE, **change}, options=options)
    assert (answer.code, answer.out) == (code, "")
    assert "Traceback" not in answer.err
    assert not (calculator.project.state / "mutants").exists()


def test_a_probe_that_no_longer_applies_has_not_killed(calculator: Small, mutants: Mutants) -> None:
    """Not run is not passed, and it is not failed either."""
    text = PROBE.replace("Probe, Reading", "Probe, Reading, Skip").replace(
        "    while sums", "    if sums.SLOW:\n        raise PROBE.skips[0]()\n    while sums"
    )
    text = text.replace("    timeout_s=2,", '    skips=(Skip("no such option"),),\n    timeout_s=2,')
    (calculator.project.smoke / "probes" / "sums.py").write_text(text)
    assert "survived slow (" in mutants(SLOW).out


def test_a_run_that_was_killed_goes_on_where_it_was(calculator: Small) -> None:
    many = [{**SLOW, "id": f"slow-{number}", "replace": f"SLOW = {number}"} for number in range(1, 5)]
    path = write_list(calculator.root / "mutants.toml", ONE, *many)
    argv = ["-m", "tests.mutants", "--file", str(path), "--stack", TINY, "--jobs", "1"]
    with spawn(argv, calculator.root) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("killed   one")
        time.sleep(0.5)
        child.send_signal(signal.SIGKILL)
    assert leftovers(calculator) != []
    with spawn([*argv, "--only", "one"], calculator.root) as child:
        out, _ = child.communicate()
    assert out.startswith("killed   one by sums (earlier)")
    assert leftovers(calculator) == []
