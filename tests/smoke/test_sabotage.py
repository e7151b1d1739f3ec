"""Every probe has a break that it must notice. That it does notice is asked of a real stack, in tests/engine."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from smoke import probe

from .conftest import ROOT

PROBES = probe.discover() | probe.discover(probe.OWN)
BREAKS = probe.discover(ROOT / "tests" / "sabotage")

# Nothing to ask without GPUs: what judges the answer is tested elsewhere.
ONLY_ON_A_GPU = {
    "cublas-loaded": "tests/smoke/test_cublas.py",
    "vllm-device": "tests/smoke/test_vllm_device.py",
    # Both have colocate.compare_weights judge.
    "vllm-sleep-mode": "tests/sabotage/grpo_vllm_colocate__never_synchronised.py",
}


def module(name: str) -> ModuleType:
    return importlib.import_module(f"tests.sabotage.{BREAKS[name].path.stem}")


def broken_probe(name: str) -> str:
    """The probe that a break belongs to."""
    return name.partition("--")[0]


@pytest.mark.parametrize("name", BREAKS)
def test_break_names_bounds_of_its_probe_or_the_reason(name: str) -> None:
    bounds = {bound.name for bound in PROBES[broken_probe(name)].probe.bounds}
    caught_by = module(name).CAUGHT_BY
    assert BREAKS[name].asks.endswith("?")
    assert BREAKS[name].probe == PROBES[broken_probe(name)].probe
    assert isinstance(caught_by, tuple)
    assert caught_by or module(name).REASON
    assert set(caught_by) <= bounds


@pytest.mark.parametrize("name", PROBES)
def test_what_every_probe_stands_for_can_fail(name: str) -> None:
    """By a break that its headline must notice, or else by tests of the functions that judge."""
    if name in ONLY_ON_A_GPU:
        assert (ROOT / ONLY_ON_A_GPU[name]).exists()
        return
    headline = next(bound.name for bound in PROBES[name].probe.bounds if bound.headline)
    caught_by = {bound for entry in BREAKS if broken_probe(entry) == name for bound in module(entry).CAUGHT_BY}
    assert headline in caught_by


def test_only_probes_of_gpus_go_without() -> None:
    assert ONLY_ON_A_GPU.keys() <= PROBES.keys() - set(map(broken_probe, BREAKS))
