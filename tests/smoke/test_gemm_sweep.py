"""Which shapes the sweep of matrix products tries on a GPU, by the memory that is free there. Needs none."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from smoke import probe

probe.load(probe.PROBES / "gemm_sweep.py")
MODULE: Any = sys.modules["smoke_probe_gemm_sweep"]
LARGEST = (4096, 3584, 152064)  # the output of Qwen2 7B for a micro-batch


def shapes(free: float, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[tuple[int, int, int], ...]]:
    torch = SimpleNamespace(cuda=SimpleNamespace(mem_get_info=lambda: (int(free), int(150e9))))
    monkeypatch.setitem(sys.modules, "torch", torch)
    shapes: dict[str, tuple[tuple[int, int, int], ...]] = MODULE._shapes("cuda")
    assert list(shapes) == ["bfloat16", "float16", "float32"] and len(set(shapes.values())) == 1
    return shapes


def test_a_large_gpu_tries_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = shapes(140e9, monkeypatch)["float32"]
    layers = [(rows, *layer) for layer in MODULE.LAYERS for rows in MODULE.ROWS]
    assert tried == (*MODULE.REPORTED, *MODULE.QWEN2, *MODULE.ODD, *layers) and LARGEST in tried


def test_a_small_gpu_leaves_out_what_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end with an error of memory, which says nothing about cuBLAS."""
    every, tried = (shapes(free, monkeypatch)["float32"] for free in (140e9, 14e9))
    assert [shape for shape in every if shape not in tried] == [LARGEST]
    assert set(MODULE.REPORTED) <= set(tried)
