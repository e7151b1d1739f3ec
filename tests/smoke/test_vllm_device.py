"""What the probe of vLLM's device makes of tensors on several GPUs. Needs none."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from smoke import probe

BOUNDS = {bound.name: bound for bound in probe.load(probe.PROBES / "vllm_device.py").probe.bounds}
MODULE: Any = sys.modules["smoke_probe_vllm_device"]

FIRST, SECOND = SimpleNamespace(device="cuda:0"), SimpleNamespace(device="cuda:1")


def test_tensors_on_the_rank_s_own_gpu_are_right() -> None:
    assert MODULE._elsewhere({"embedding": SECOND, "norm": SECOND}, "cuda:1") == []


def test_a_tensor_on_the_first_gpu_is_named_and_breaks_the_bounds() -> None:
    elsewhere = MODULE._elsewhere({"embedding": FIRST, "norm": SECOND}, "cuda:1")
    assert elsewhere == ["embedding on cuda:0"]
    assert not BOUNDS["sampler_elsewhere"].holds(len(elsewhere))
    assert not BOUNDS["policy_elsewhere"].holds(len(elsewhere))
