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
def thread(name: str, work: threading.Event) -> Iterator[threading.Thread]:
    """A thread with a name that the kernel knows. It runs again and again until `work` is set, then sleeps."""
    ready, end = threading.Event(), threading.Event()

    def run() -> None:
        Path("/proc/thread-self/comm").write_text(name)
        ready.set()
        while not work.wait(0.005):
            pass
        end.wait()

    worker = threading.Thread(target=run)
    worker.start()
    ready.wait()
    yield worker
    work.set()
    end.set()
    worker.join()


def test_a_thread_that_works_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = threading.Event()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        threading.Event().wait(seconds)
        if len(pauses) == 4:
            idle.set()

    monkeypatch.setattr(time, "sleep", sleep)
    with thread("pt_gloo_runloop", idle):
        gloo.settle()
        assert idle.is_set()
    assert len(pauses) > 4


def test_one_that_never_rests_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "PATIENCE", 0.2)
    busy = threading.Event()
    with thread("pt_gloo_runloop", busy):
        gloo.settle()
        assert not busy.is_set()


def test_other_threads_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: float) -> None:
        pytest.fail("waited without a thread of gloo")

    monkeypatch.setattr(time, "sleep", sleep)
    with thread("pt_elastic", threading.Event()):
        gloo.settle()
