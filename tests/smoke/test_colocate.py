"""The engine that trainers share, with a stand-in for the module in which TRL finds vLLM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smoke.kit import adapter, colocate
from smoke.probe import Context


@pytest.mark.parametrize(("device", "blocks"), [("cuda", 2048), ("cpu", 256)])
def test_an_engine_starts_once_with_a_small_cache_on_either_device(
    device: str, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large GPU's share of memory would be millions of blocks, each a Python object."""
    started: list[dict[str, Any]] = []

    def start(**arguments: Any) -> object:
        started.append(arguments)
        return object()

    module = SimpleNamespace(LLM=start)
    monkeypatch.setattr(adapter, "engine_module", lambda: module)
    monkeypatch.setattr(adapter, "colocated", lambda _: {})
    monkeypatch.setattr(colocate, "_ENGINES", [])
    with colocate.engine_once(Context(device, 0, tmp_path)):
        first, again = (module.LLM(model="tiny", seed=1) for _ in range(2))
        other = module.LLM(model="tiny", seed=2)
    assert first is again and other is not first
    assert started == [{"model": "tiny", "seed": seed, "num_gpu_blocks_override": blocks} for seed in (1, 2)]
    assert module.LLM is start
