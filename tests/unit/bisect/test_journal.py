"""A bisection that is interrupted, killed or asked again."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.commands import spawn
from tests.unit.bisect.conftest import Parts, condition, names

pytestmark = pytest.mark.engine  # each of them installs a dozen environments


def test_what_was_answered_is_not_asked_again(parts: Parts) -> None:
    parts.breaks('has("f")')
    first = parts.ask()
    again = parts.ask()
    assert (again["runs"], again["culprits"]) == (0, first["culprits"])
    assert parts.count() == first["runs"]
    assert [row["earlier"] for row in again["tried"]] == [row["runs"] for row in first["tried"]]
    assert parts.ask("--fresh")["runs"] == first["runs"]


def test_killed_in_the_middle_it_goes_on_where_it_was(parts: Parts) -> None:
    parts.breaks('has("f")')
    whole = parts.ask()["runs"]
    parts.runs.unlink()
    with spawn(["-m", "builder", *parts.argv("--fresh")], parts.small.root) as child:
        deadline = time.monotonic() + 60
        while parts.count() < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGKILL)
    assert parts.count() >= 3
    (journal,) = (parts.small.project.state / "bisect").glob("*.json")
    trials = sum(len(row["trials"]) for row in json.loads(journal.read_text())["rows"].values())
    assert trials >= 2
    result = parts.ask()
    assert names(result["culprits"]) == ["part-f"]
    assert result["runs"] == whole - trials


def test_interrupted_it_says_how_to_go_on(parts: Parts) -> None:
    # The third run does not end by itself: however slow this machine is, there is something to interrupt.
    parts.suite("if count == 3: time.sleep(600)\n" + condition('has("f")'))
    with spawn(["-m", "builder", *parts.argv()], parts.small.root) as child:
        deadline = time.monotonic() + 60
        while parts.count() < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate()
    assert child.returncode == 130, err
    assert "interrupted: the same command goes on where it was" in err
    assert "verdict" in out.splitlines()[0]
    assert list(parts.small.project.scratch(".bisect").parent.iterdir()) == []


def test_a_journal_that_was_damaged_is_begun_anew(parts: Parts) -> None:
    parts.breaks('has("f")')
    runs = parts.ask()["runs"]
    (journal,) = (parts.small.project.state / "bisect").glob("*.json")
    journal.write_text('{"lead": 1, "rows": {"x": {"trials": 3}}}')
    assert parts.ask()["runs"] == runs
