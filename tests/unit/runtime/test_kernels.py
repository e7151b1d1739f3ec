"""Preflight on GPUs: has the image kernels for them, and is the driver new enough?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import capability, kernels, preflight
from runtime.capability import Capability
from tests.conftest import ROOT
from tests.unit.runtime.kit import Machine

CUDA = {"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96"}
KERNELS = {
    "needed": {"torch": ["sm_75", "sm_80", "sm_90"], "vllm": ["sm_80", "sm_90", "compute_90"]},
    "others": {"bitsandbytes": ["sm_80"]},
}


def checks(tmp_path: Path, number: Capability | None, driver: str = "580.65.06", read: object = KERNELS) -> list[str]:
    """What preflight finds on a machine with one GPU of this compute capability; None: NVML is not there."""
    machine = Machine(tmp_path, CUDA, driver, gpus=1)
    path = tmp_path / "etc/vetted/stack.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "kernels": read}))
    models = {} if number is None else {"NVIDIA H200": number}
    return [f"{check.level} {check}" for check in preflight.look(machine.root, {}, lambda: models)]


def test_a_gpu_without_kernels_is_a_stop_that_says_what_why_and_what_next(tmp_path: Path) -> None:
    (stop,) = [line for line in checks(tmp_path, (7, 0)) if line.startswith("stop")]
    assert "no kernels for NVIDIA H200 (compute capability 7.0)" in stop
    assert "torch has sm_75, sm_80, sm_90; vllm has sm_80, sm_90, compute_90" in stop
    assert "no kernel image is available for execution on the device" in stop
    assert "vetted list --gpus" in stop.splitlines()[1]


@pytest.mark.parametrize(
    ("number", "line"),
    [
        ((8, 9), "ok this image has kernels for NVIDIA H200 (compute capability 8.9)"),
        ((9, 0), "advice no kernels for NVIDIA H200 (compute capability 9.0) in bitsandbytes"),
        (None, "advice the compute capability of the GPU cannot be told"),
    ],
)
def test_what_is_not_sure_to_fail_does_not_stop(tmp_path: Path, number: Capability | None, line: str) -> None:
    lines = checks(tmp_path, number)
    assert [text for text in lines if text.startswith("stop")] == []
    assert [text for text in lines if text.startswith(line)] != []


def test_what_the_driver_compiles_first_is_advice(tmp_path: Path) -> None:
    read = {"needed": {"torch": ["sm_100"], "vllm": ["compute_90"]}}
    (line,) = [text for text in checks(tmp_path, (10, 3), read=read) if "takes minutes" in text]
    assert line.startswith("advice no machine code for NVIDIA H200 (compute capability 10.3) in vllm: ")


@pytest.mark.parametrize("read", [None, [], {"needed": []}, {"others": {}}])
def test_an_image_that_says_nothing_of_its_kernels_is_asked_nothing(tmp_path: Path, read: object) -> None:
    assert not [line for line in checks(tmp_path, (7, 0), read=read) if "kernel" in line]


@pytest.mark.parametrize(
    ("cuda", "driver", "number", "least"),
    [
        ("13.0", "580.65.06", (12, 0), ""),
        ("13.0", "580.65.05", (9, 0), "580.65.06"),
        ("13.0", "580.65", (9, 0), "580.65.06"),
        ("12.8", "525.60.13", (9, 0), ""),
        ("12.8", "525.60.11", (9, 0), "525.60.13"),
        ("12.8", "550.54.15", (12, 0), "570.26"),
        ("12.8", "570.26", (12, 0), ""),
        ("12.8", "570.124.06", (10, 3), "575.51.03"),
        ("99.0", "1.0", (8, 0), ""),
    ],
)
def test_the_whole_version_of_the_driver_counts(cuda: str, driver: str, number: Capability, least: str) -> None:
    stops = kernels.old_driver(driver, cuda, {"NVIDIA H200": number})
    assert len(stops) == bool(least)
    assert all(f"which needs {least} or newer" in stop.message for stop in stops)


def test_gpus_that_are_hidden_do_not_count(tmp_path: Path) -> None:
    machine = Machine(tmp_path, CUDA, "580.65.06", gpus=1)
    path = tmp_path / "etc/vetted/stack.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "kernels": KERNELS}))
    lines = preflight.look(machine.root, {}, lambda: {"NVIDIA H200": (8, 0), "Tesla V100": (7, 0)})
    assert not [line for line in lines if line.level == "stop"]


def test_without_nvml_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability, "NVML", "libnvidia-ml-of-nobody.so.1")
    assert capability.capabilities() == {}


def test_nothing_of_cuda_is_loaded() -> None:
    """A process that has loaded libcuda cannot hide GPUs any more."""
    code = """if True:
        import sys
        from runtime import preflight
        preflight.look()
        print("torch" in sys.modules, "libcuda" in open("/proc/self/maps").read())
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
