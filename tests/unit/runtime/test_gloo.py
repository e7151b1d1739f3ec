"""How long a process waits for gloo's threads before it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime import gloo


@contextmanager
def thread(name: str, rest: threading.Event) -> Iterator[None]:
    """A thread with a name that the kernel knows. It works until `rest` is set, with naps between, and then sleeps."""
    ready, end = threading.Event(), threading.Event()

    def run() -> None:
        Path("/proc/thread-self/comm").write_text(name)
        ready.set()
        while not rest.wait(0.005):
            pass
        end.wait()

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        rest.set()
        end.set()
        worker.join()


def test_a_thread_that_works_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = threading.Event()
    looks: list[dict[str, list[str]]] = []
    look = gloo._threads

    def looked() -> dict[str, list[str]]:
        looks.append(look())
        if len(looks) == 8:
            rest.set()
        return looks[-1]

    monkeypatch.setattr(gloo, "_threads", looked)
    monkeypatch.setattr(gloo, "PATIENCE", 60)
    with thread("pt_gloo_runloop", rest):
        gloo.settle()
    assert len(looks) >= 8 + gloo.LOOKS
    assert [len(threads) for threads in looks] == [1] * len(looks)


def test_all_sleep_and_none_ran_in_three_looks_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits for a core is not switched out, and does not sleep."""
    sleeping, running = "State:\tS (sleeping)", "State:\tR (running)"
    states = [sleeping] * 3 + [running] * 4 + [sleeping] * 6
    switches = [1] * 9 + [2] * 4
    looks = [
        {"7": [state, f"voluntary_ctxt_switches:\t{number}"], "8": [sleeping, "voluntary_ctxt_switches:\t1"]}
        for state, number in zip(states, switches, strict=True)
    ]
    monkeypatch.setattr(gloo, "_threads", lambda: looks.pop(0))
    monkeypatch.setattr(gloo, "PAUSE", 0)
    gloo.settle()
    assert looks == []


def test_one_that_never_rests_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "PATIENCE", 0.3)
    rest = threading.Event()
    with thread("pt_gloo_runloop", rest):
        gloo.settle()
        assert not rest.is_set()


def test_other_threads_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with thread("pt_elastic", threading.Event()):
        monkeypatch.setattr(gloo, "PAUSE", None)  # no time to sleep
        gloo.settle()
