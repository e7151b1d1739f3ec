"""What the supervisor asks of GPUs without CUDA: whether it has started, and how many processes a GPU takes."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from smoke.run import gpus


class Library:
    """Stands for libcuda.so.1 or libnvidia-ml.so.1: functions that answer a status, some by a number."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name not in self._answers:
            raise AttributeError(name)
        answer = self._answers[name]
        return answer if callable(answer) else lambda *_: answer


def give(monkeypatch: pytest.MonkeyPatch, library: Library | None) -> None:
    def load(name: str, **_: int) -> Any:
        if library is None:
            raise OSError(f"{name} cannot be opened")
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)


@pytest.mark.parametrize(("status", "started"), [(3, False), (0, True), (100, True)])
def test_cuda_has_started_when_its_driver_answers(status: int, started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Library(cuDeviceGetCount=status))
    assert bool(gpus.started()) == started


def test_cuda_has_not_started_where_its_driver_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, None)
    assert gpus.started() is None


def number(value: int) -> Any:
    def answer(_: Any, target: Any, *_others: Any) -> int:
        target._obj.value = value
        return 0

    return answer


@pytest.mark.parametrize(
    ("visible", "mode", "parts", "several"),
    [
        (["0", "1"], 0, number(0), True),
        (["GPU-1"], 0, 3, True),  # a GPU that has no parts
        (["0"], 3, number(0), False),  # exclusive
        (["0"], 0, number(1), False),
        (["MIG-1"], 0, number(0), False),
        (["GPU-2"], 0, 15, False),  # the GPU is lost
        ([], 0, number(0), False),
    ],
)
def test_a_gpu_is_shared_only_where_its_driver_says_so(
    visible: list[str], mode: int, parts: Any, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "visible", lambda: visible)
    found = {"nvmlDeviceGetHandleByIndex_v2": 0, "nvmlDeviceGetHandleByUUID": 0, "nvmlInit_v2": 0, "nvmlShutdown": 0}
    give(monkeypatch, Library(**found, nvmlDeviceGetComputeMode=number(mode), nvmlDeviceGetMigMode=parts))
    assert gpus.shared() == several
    give(monkeypatch, None)
    assert not gpus.shared()
