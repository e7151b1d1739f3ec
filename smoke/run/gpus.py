"""The GPUs that a process would see, found out without CUDA: a process that has started CUDA cannot be forked."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

# What every function of the driver answers before CUDA has started in a process (CUDA_ERROR_NOT_INITIALIZED).
_NOT_STARTED = 3
_SHARED = 0  # NVML_COMPUTEMODE_DEFAULT: several processes may use the GPU at once
_WHOLE = 0  # NVML_DEVICE_MIG_DISABLE
_UNSUPPORTED = 3  # NVML_ERROR_NOT_SUPPORTED: a GPU that has no parts


def visible() -> list[str]:
    """The NVIDIA GPUs that a process started here would see, as CUDA_VISIBLE_DEVICES names them."""
    nodes = sum(1 for path in Path("/dev").glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdecimal())
    if not nodes and Path("/dev/dxg").exists():
        nodes = 1  # WSL has one device for all GPUs; most have one GPU
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [str(number) for number in range(nodes)]
    # A part of a GPU (MIG) has no device node of its own.
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    return names[:nodes] if nodes else []


def shown(gpus: int, ranks: int) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES for a probe that uses `gpus` GPUs in `ranks` processes; None for all.

    A single process that sees several GPUs makes Transformers' Trainer use DataParallel, which TRL refuses.
    """
    return ",".join(visible()[:gpus]) if ranks == 1 and gpus else None


def started() -> str | None:
    """What shows that this process has started CUDA, or None.

    The driver itself is asked. An open /dev/nvidia-uvm shows nothing: on an H100 it was open after imports.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None  # not even loaded
    status = driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
    return None if status == _NOT_STARTED else f"cuDeviceGetCount answers {status}, as after cuInit"


def shared() -> bool:
    """Whether several processes may use each visible GPU at once; no for parts, and where the driver does not say."""
    try:
        modes = [_modes(name) for name in visible()]
    except (OSError, AttributeError, ValueError):
        return False
    return set(modes) == {(_SHARED, _WHOLE)}


class Use:
    """What a process allocates on its GPU. Without a GPU that works, packages train on the CPU, and nothing fails."""

    def __init__(self, device: int) -> None:
        """Start CUDA and compute something. Raises RuntimeError when that fails."""
        import torch

        self._cuda, self._device = torch.cuda, device
        try:
            total = torch.ones(1024, device=f"cuda:{device}").sum().item()
        except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for CUDA
            raise RuntimeError(f"no GPU can be used: {error}") from error
        if total != 1024:
            raise RuntimeError(f"the GPU computes 1024 x 1 = {total:g}")
        self._cuda.reset_peak_memory_stats(device)

    def require(self) -> None:
        """Raise RuntimeError when nothing was allocated since the start."""
        if self._cuda.max_memory_allocated(self._device) == 0:
            raise RuntimeError("nothing ran on the GPU: no memory of it was allocated")


@contextmanager
def answered(torch: ModuleType) -> Iterator[None]:
    """Answer the compute capability of GPUs without CUDA, as long as the block runs.

    bitsandbytes asks for it when it is imported, and torch would start CUDA to answer.
    """
    cuda = getattr(torch, "cuda", None)
    original = getattr(cuda, "get_device_capability", None)
    if cuda is None or original is None:
        yield
        return

    def capability(device: Any = None) -> tuple[int, int]:
        try:
            index = cuda._get_nvml_device_index(0 if device is None else device)
            return compute_capability(index)
        except (OSError, AttributeError, ValueError, RuntimeError):
            answer: tuple[int, int] = original(device)
            return answer

    cuda.get_device_capability = capability
    try:
        yield
    finally:
        cuda.get_device_capability = original


def compute_capability(index: int) -> tuple[int, int]:
    """The compute capability of a GPU, such as (9, 0), by its number in NVML. Raises OSError when NVML does not say."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    with _device(index) as (nvml, handle):
        answer = nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
        _check("nvmlDeviceGetCudaComputeCapability", answer)
    return major.value, minor.value


def _modes(name: str) -> tuple[int, int]:
    """The compute mode of a GPU, by its number or UUID, and whether it is in parts. Raises OSError and ValueError."""
    mode, current, pending = ctypes.c_int(), ctypes.c_uint(), ctypes.c_uint()
    with _device(name if name.startswith("GPU-") else int(name)) as (nvml, handle):
        _check("nvmlDeviceGetComputeMode", nvml.nvmlDeviceGetComputeMode(handle, ctypes.byref(mode)))
        status = nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending))
        if status != _UNSUPPORTED:
            _check("nvmlDeviceGetMigMode", status)
    return mode.value, current.value


@contextmanager
def _device(name: int | str) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
    """NVML and its handle of a GPU, by its number or UUID."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    handle = ctypes.c_void_p()
    _check("nvmlInit", nvml.nvmlInit_v2())
    try:
        if isinstance(name, int):
            status = nvml.nvmlDeviceGetHandleByIndex_v2(name, ctypes.byref(handle))
        else:
            status = nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
        _check("nvmlDeviceGetHandle", status)
        yield nvml, handle
    finally:
        nvml.nvmlShutdown()


def _check(function: str, status: int) -> None:
    if status != 0:
        raise OSError(f"{function} failed with status {status}")
