"""What the driver's management library says of GPUs; a fake one is compiled where there is a compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from runtime import capability
from tests.conftest import ROOT


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that lists the GPUs of the fake library."""
    if shutil.which("gcc") is None:
        pytest.skip("no compiler: apt-get install gcc libc6-dev")
    target = tmp_path / "libnvidia-ml.so.1"
    source = ROOT / "tests/gpu/management.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(target), str(source), "-ldl"], check=True)
    monkeypatch.setattr(capability, "NVML", str(target))
    return tmp_path / "gpus"


def test_memory_is_that_of_the_smallest_gpu_of_a_model(library: Path) -> None:
    library.write_text("580.65.06\nNVIDIA H200|9|0|143771\nTesla T4|7|5|15360\nNVIDIA H200|9|0|141000\n")
    assert capability.memory() == {"NVIDIA H200": 141000 << 20, "Tesla T4": 15360 << 20}
    assert capability.capabilities() == {"NVIDIA H200": (9, 0), "Tesla T4": (7, 5)}


def test_without_the_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability, "NVML", "libnothing.so.1")
    assert capability.memory() == {}
    assert capability.capabilities() == {}
