"""How long the monitor takes: its own work, and not what the run had given the GPU before."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from runtime.monitor import hooks


def test_waiting_for_the_work_of_the_run_is_no_time_of_the_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(hooks, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def takes(seconds: float) -> None:
        now[0] += seconds

    def failed(error: Exception) -> None:
        raise error

    guard = hooks.Guard(failed, wait=lambda: takes(5.0))

    def observer() -> None:
        takes(1.0)
        guard.settle()
        takes(2.0)

    guard(observer)
    assert guard.seconds == 3.0
