"""Which compute capability runs kernels of which architecture, and with which driver.

A GPU's compute capability is two numbers, such as 8.6. Sources: "Compatibility" in the CUDA C++ Programming Guide
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#application-compatibility) and, for the suffixes,
https://docs.nvidia.com/cuda/parallel-thread-execution/#ptx-module-directives-target. `runtime/capability.py` has the
same rules for preflight, which cannot import this; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Capability = tuple[int, int]
Verdict = Literal["native", "PTX", "absent"]

BEST_FIRST: tuple[Verdict, ...] = ("native", "PTX", "absent")
NAME = re.compile(r"(?P<kind>sm|compute)_(?P<major>[0-9]+)(?P<minor>[0-9])(?P<suffix>[af]?)")

# The first driver that runs programs of a CUDA major version: of every minor version, with "minor version
# compatibility"; for 13 the driver of the toolkit itself (13.0).
DRIVERS = {"12": "525.60.13", "13": "580.65.06"}
# The first driver that knows a GPU: that of the toolkit that has its architecture, 12.8 (sm_100, sm_120) and 12.9
# (sm_103, sm_121).
FIRST_DRIVERS: dict[Capability, str] = {
    (10, 0): "570.26", (10, 3): "575.51.03", (12, 0): "570.26", (12, 1): "575.51.03",
}  # fmt: skip


@dataclass(frozen=True)
class LeastDriver:
    """Where a driver's version is from. `sources`: title -> address. `besides`: what else NVIDIA says, and where."""

    version: str
    of: str
    sources: Mapping[str, str]
    besides: str = ""
    there: Mapping[str, str] = field(default_factory=dict)


_NOTES = {"CUDA release notes": "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/"}
_COMPATIBILITY = {
    "CUDA compatibility": "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
}
_INSTALLERS = "https://developer.download.nvidia.com/compute/cuda"
LEAST_DRIVERS = (
    LeastDriver("525.60.13", "CUDA 12", _NOTES | _COMPATIBILITY, "The second names the branch alone, 525."),
    LeastDriver(
        "580.65.06",
        "CUDA 13",
        _NOTES | {"its installer": f"{_INSTALLERS}/13.0.0/local_installers/cuda_13.0.0_580.65.06_linux.run"},
    ),
    LeastDriver(
        "570.26",
        "the toolkit 12.8, the first for 10.0 and 12.0",
        _NOTES,
        "The first driver with which CUDA 12.8 was shipped is 570.86.10. For an HGX B200, NVIDIA's GPU Operator wants "
        "570.133.20.",
        {
            "its installer": f"{_INSTALLERS}/12.8.0/local_installers/cuda_12.8.0_570.86.10_linux.run",
            "GPU Operator": "https://github.com/NVIDIA/cloud-native-docs/blob/main/gpu-operator/platform-support.rst",
        },
    ),
    LeastDriver(
        "575.51.03",
        "the toolkit 12.9, the first for 10.3 and 12.1",
        _NOTES | {"its installer": f"{_INSTALLERS}/12.9.0/local_installers/cuda_12.9.0_575.51.03_linux.run"},
        "That it runs these GPUs is inferred: what NVIDIA tested on a GB300 is 580.126.20.",
        {"DGX GB300": "https://docs.nvidia.com/dgx/dgxgb300nvl72-release-notes/package-contents.html"},
    ),
)


def verdict(capability: Capability, architectures: Iterable[str]) -> Verdict:
    """How a GPU runs kernels of these architectures (`sm_90`, `compute_80`): as they are, compiled first, or not."""
    return min((_of_one(capability, name) for name in architectures), key=BEST_FIRST.index, default="absent")


def _of_one(capability: Capability, name: str) -> Verdict:
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


def order(name: str) -> tuple[str, int, str]:
    """The place of an architecture in a list: cubins before PTX, older before newer."""
    match = NAME.fullmatch(name)
    if match is None:
        return ("z", 0, name)
    return ("a" if match["kind"] == "sm" else "b", int(match["major"] + match["minor"]), match["suffix"])


def driver(cuda: str, capability: Capability | None = None) -> str:
    """The least driver for programs of a CUDA version, such as "12.8", on a GPU. Empty for an unknown version."""
    least = DRIVERS.get(cuda.partition(".")[0], "")
    return max(least, FIRST_DRIVERS.get(capability, "") if capability else "", key=numbers)


def numbers(version: str) -> tuple[int, ...]:
    """A driver's version for comparison."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
