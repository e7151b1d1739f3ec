"""How long a process waits for gloo's threads before it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime import gloo


@contextmanager
def thread(name: str, rest: threading.Event, nap: float = 0.005) -> Iterator[None]:
    """A thread with a name that the kernel knows. It works until `rest` is set, with naps between, and then sleeps."""
    ready, end = threading.Event(), threading.Event()

    def run() -> None:
        Path("/proc/thread-self/comm").write_text(name)
        ready.set()
        while not rest.is_set():
            if nap:
                time.sleep(nap)
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


@pytest.mark.parametrize("nap", [0.005, 0])
def test_a_thread_that_works_is_waited_for(monkeypatch: pytest.MonkeyPatch, nap: float) -> None:
    """Whether it is switched out again and again, or runs on without a pause."""
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
    with thread("pt_gloo_runloop", rest, nap):
        gloo.settle()
    assert len(looks) >= 8 + gloo.LOOKS
    assert [len(threads) for threads in looks] == [1] * len(looks)


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
