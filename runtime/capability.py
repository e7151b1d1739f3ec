"""The compute capability of the GPUs here, and which kernels and drivers fit it. Without CUDA.

The driver's management library (NVML) tells it in milliseconds, and starts nothing on a GPU.
`builder/lock/architecture.py` has the same rules for images that are not built yet, with their sources.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

Capability = tuple[int, int]

NVML = "libnvidia-ml.so.1"
NAME = re.compile(r"(?P<kind>sm|compute)_(?P<major>[0-9]+)(?P<minor>[0-9])(?P<suffix>[af]?)")
BEST_FIRST = ("native", "PTX", "absent")
# The first driver of each CUDA major version; it runs all minor versions of it.
# https://docs.nvidia.com/deploy/cuda-compatibility/ and https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/
DRIVERS = {"12": "525.60.13", "13": "580.65.06"}
# The first driver that knows a GPU, that of CUDA 12.8 and 12.9. The same release notes.
FIRST_DRIVERS = {(10, 0): "570.26", (10, 3): "575.51.03", (12, 0): "570.26", (12, 1): "575.51.03"}


class _Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def capabilities() -> dict[str, Capability]:
    """Model -> compute capability of every GPU that NVML lists, which does so by PCI address. Empty without NVML."""
    gpus: dict[str, Capability] = {}
    major, minor = ctypes.c_int(), ctypes.c_int()
    with suppress(OSError, AttributeError):
        for nvml, gpu, name in _listed():
            if not nvml.nvmlDeviceGetCudaComputeCapability(gpu, ctypes.byref(major), ctypes.byref(minor)):
                gpus[name] = (major.value, minor.value)
    return gpus


def models() -> list[str]:
    """The model of every GPU that NVML lists, by PCI address. Empty without NVML."""
    with suppress(OSError, AttributeError):
        return [name for _, _, name in _listed()]
    return []


def memory() -> dict[str, int]:
    """Model -> bytes of memory, of the smallest GPU of that model. Empty without NVML."""
    gpus: dict[str, int] = {}
    size = _Memory()
    with suppress(OSError, AttributeError):
        for nvml, gpu, name in _listed():
            if not nvml.nvmlDeviceGetMemoryInfo(gpu, ctypes.byref(size)):
                gpus[name] = min(gpus.get(name, size.total), size.total)
    return gpus


def installed() -> str:
    """The version of the driver that NVML speaks for; empty without NVML."""
    text = ctypes.create_string_buffer(81)  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE and a zero
    with suppress(OSError, AttributeError):
        nvml = ctypes.CDLL(NVML)
        if not nvml.nvmlInit_v2():
            failed = nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(80))
            nvml.nvmlShutdown()
            return "" if failed else text.value.decode("utf-8", "replace")
    return ""


def _listed() -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p, str]]:
    """The library, and handle and model of each GPU. Raises OSError, AttributeError."""
    nvml = ctypes.CDLL(NVML)
    if nvml.nvmlInit_v2():
        return
    count, gpu, name = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return
    for number in range(count.value):
        present = not nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(gpu))
        if present and not nvml.nvmlDeviceGetName(gpu, name, ctypes.c_uint(len(name))):
            yield nvml, gpu, name.value.decode("utf-8", "replace")
    nvml.nvmlShutdown()


def verdict(capability: Capability, architectures: Iterable[str]) -> str:
    """How a GPU runs kernels of these architectures: "native", "PTX" (the driver compiles them first) or "absent"."""
    return min((_on(capability, name) for name in architectures), key=BEST_FIRST.index, default="absent")


def _on(capability: Capability, name: str) -> str:
    match = NAME.fullmatch(name)
    if match is None:
        return "absent"
    target = (int(match["major"]), int(match["minor"]))
    if match["suffix"] == "a":
        runs = capability == target
    elif match["kind"] == "sm" or match["suffix"] == "f":
        runs = capability[0] == target[0] and capability[1] >= target[1]
    else:
        runs = capability >= target
    if not runs:
        return "absent"
    return "native" if match["kind"] == "sm" else "PTX"


def driver(cuda: str, capability: Capability | None) -> str:
    """The least driver for a CUDA version on a GPU; empty when it is not known."""
    least = DRIVERS.get(cuda.partition(".")[0], "")
    return max(least, FIRST_DRIVERS.get(capability, "") if capability else "", key=numbers)


def numbers(version: str) -> tuple[int, ...]:
    """A driver's version for comparison."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
