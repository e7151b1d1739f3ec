"""What the doctor and others that import nothing of each other both know: it must be the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base.machine import Hardware
from doctor.know import cuda
from runtime import capability, preflight


def test_the_driver_that_a_cuda_needs_is_the_same_before_a_run_and_in_a_diagnosis() -> None:
    for major, driver in capability.DRIVERS.items():
        assert cuda.DRIVERS[int(major)] == capability.numbers(driver)[0]


@pytest.mark.parametrize("gpus", [["NVIDIA H200"], ["NVIDIA H200", "NVIDIA H200", "Tesla T4"]])
def test_a_machine_has_one_class_in_a_certificate_and_before_a_run(tmp_path: Path, gpus: list[str]) -> None:
    version = tmp_path / "proc" / "driver" / "nvidia" / "version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Release Build\n")
    assert preflight.hardware(tmp_path, gpus) == Hardware("x", 2, tuple(gpus), "570.86.10").hardware_class
