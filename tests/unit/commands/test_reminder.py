"""Where nobody watches, a line every half minute says what is under way."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace

import pytest

from builder import console
from builder.console import reminder, terminal
from builder.image.buildx import BuildStep


class Clock:
    """The end of a piece of work, for which half minutes pass when the test says so."""

    def __init__(self) -> None:
        self._ticks: queue.Queue[bool] = queue.Queue()
        self._waited = False

    def wait(self, seconds: float) -> bool:
        assert seconds == 30
        if self._waited:
            self._ticks.task_done()
        self._waited = True
        return self._ticks.get()

    def set(self) -> None:
        self._ticks.put(True)

    def tick(self) -> None:
        """Half a minute passes; whatever is said is said before this returns."""
        self._ticks.put(False)
        self._ticks.join()


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> list[Clock]:
    made: list[Clock] = []

    def make() -> Clock:
        made.append(Clock())
        return made[-1]

    monkeypatch.setattr(reminder, "Ended", make)
    return made


def test_long_work_says_every_half_minute_what_it_does(clocks: list[Clock], capsys: pytest.CaptureFixture[str]) -> None:
    with console.Working("tiny") as work:
        clocks[0].tick()
        work.step(BuildStep(3, 7, "installing \x1b[2Jtorch\n"))
        clocks[0].tick()
        work.event({"event": "start", "probes": ["alpha", "beta"]})
        work.event({"event": "begin", "probe": "alpha"})
        work.event({"event": "end", "probe": "alpha", "outcome": "passed"})
        work.event({"event": "begin", "probe": "beta"})
        clocks[0].tick()
    assert capsys.readouterr() == (
        "",
        "tiny: for 30 s\ntiny, 3 of 7, installing �[2Jtorch: for 1 min\ntiny, suite, 1 of 2, beta: for 1 min 30 s\n",
    )


def test_what_follows_a_suite_is_no_part_of_it(clocks: list[Clock], capsys: pytest.CaptureFixture[str]) -> None:
    """`watch` trains behind the suite, and removes what it tried."""
    with console.Working("tiny") as work:
        work.event({"event": "start", "probes": ["alpha", "beta"]})
        work.step(BuildStep(0, 0, "compiling"))
        work.say("training: seed 2 has ended")
        clocks[0].tick()
    assert capsys.readouterr() == ("", "tiny, training: seed 2 has ended: for 30 s\n")


def test_work_without_known_steps_says_it_too(clocks: list[Clock], capsys: pytest.CaptureFixture[str]) -> None:
    with console.spinner("asking the index"):
        for _ in range(2):
            clocks[0].tick()
    assert capsys.readouterr() == ("", "asking the index: for 30 s\nasking the index: for 1 min\n")


@pytest.mark.usefixtures("clocks")
def test_work_that_fails_is_no_longer_talked_about(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), console.spinner("asking the index"):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "reminder"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("clocks")
def test_on_a_terminal_nothing_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "err", SimpleNamespace(is_terminal=True))
    with reminder.Reminder(lambda: "asking"):
        assert not [thread for thread in threading.enumerate() if thread.name == "reminder"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(30, "30 s"), (60, "1 min"), (90, "1 min 30 s"), (3600, "1 h"), (3630, "1 h 30 s"), (7260, "2 h 1 min")],
)
def test_a_time_is_said_as_people_say_it(seconds: int, said: str) -> None:
    assert reminder._span(seconds) == said
