"""What the probe of the loaded cuBLAS makes of the files that it finds. Needs no GPU."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from smoke import probe

BOUNDS = {bound.name: bound for bound in probe.load(probe.PROBES / "cublas_loaded.py").probe.bounds}
MODULE: Any = sys.modules["smoke_probe_cublas_loaded"]

SITE = "/venv/lib/python3.11/site-packages/nvidia/cublas/lib"
CUBLAS, CUBLAS_LT = f"{SITE}/libcublas.so.12", f"{SITE}/libcublasLt.so.12"
SYSTEM = "/usr/local/cuda-12.1/targets/x86_64-linux/lib/libcublasLt.so.12.1.3.1"

GOOD = (12, 4, 5)
OWNERS = {CUBLAS: ("nvidia-cublas-cu12", "12.4.5.8"), CUBLAS_LT: ("nvidia-cublas-cu12", "12.4.5.8")}

MAPS = f"""\
00400000-00401000 r--p 00000000 00:2f 1234                       /venv/bin/python3.11
7f0000000000-7f0000001000 r--p 00000000 00:2f 1235                       {CUBLAS}
7f0000001000-7f0000002000 r-xp 00001000 00:2f 1235                       {CUBLAS}
7f0000002000-7f0000003000 r--p 00000000 00:2f 1236                       {CUBLAS_LT}
7f0000003000-7f0000004000 r--p 00000000 00:2f 1237                       {SITE}/libnvblas.so.12
7f0000004000-7f0000005000 r--p 00000000 00:2f 1238                       /opt/my cuda/lib/libcublas.so.11
7f0000005000-7f0000006000 rw-p 00000000 00:00 0
7f0000006000-7f0000007000 rw-p 00000000 00:00 0                          [heap]
"""


def test_files_of_cublas_are_found_once_each() -> None:
    """Both libraries, wherever they are, also with a space in their path; no other library."""
    assert MODULE.mapped(MAPS) == ["/opt/my cuda/lib/libcublas.so.11", CUBLAS, CUBLAS_LT]


def test_what_the_stack_installs_is_right() -> None:
    """One copy of each, of the distribution's version, which has a build number in the fourth place."""
    verdict = MODULE.judge({CUBLAS: GOOD, CUBLAS_LT: GOOD}, OWNERS)
    assert verdict.version == 120405
    assert BOUNDS["cublas_version"].holds(verdict.version)
    assert (verdict.copies, verdict.shadowed, verdict.differs) == ((), (), ())


@pytest.mark.parametrize(
    ("version", "good"), [((12, 1, 3), False), ((12, 3, 4), True), ((11, 11, 3), False), ((13, 0, 2), True)]
)
def test_oldest_that_does_not_crash_on_an_h20(version: tuple[int, int, int], good: bool) -> None:
    """Judged by the oldest: one old library of the two is enough to crash."""
    owners = {path: ("nvidia-cublas", ".".join(map(str, version))) for path in OWNERS}
    newer = max(version, (13, 1, 0))
    verdict = MODULE.judge({CUBLAS: newer, CUBLAS_LT: version}, owners)
    assert BOUNDS["cublas_version"].holds(verdict.version) == good


def test_another_cuda_comes_first() -> None:
    """Its file belongs to no distribution; the installed one is not loaded at all."""
    verdict = MODULE.judge({SYSTEM: (12, 1, 3)}, OWNERS)
    assert verdict.shadowed == (f"{SYSTEM} 12.1.3",)
    assert verdict.copies == ()
    assert verdict.version == 120103


def test_a_second_copy_is_loaded_beside_the_first() -> None:
    """The fault names both files, and the library of which there is only one is not part of it."""
    verdict = MODULE.judge({CUBLAS: GOOD, CUBLAS_LT: GOOD, SYSTEM: (12, 1, 3)}, OWNERS)
    assert verdict.copies == (f"cuBLASLt: {SYSTEM}, {CUBLAS_LT}",)
    assert verdict.version == 120103


def test_a_library_that_is_not_what_its_distribution_says() -> None:
    """As after a file was copied over it, or when its calls end in another copy."""
    verdict = MODULE.judge({CUBLAS: GOOD, CUBLAS_LT: (12, 1, 3)}, OWNERS)
    assert verdict.differs == (f"{CUBLAS_LT} is 12.1.3, and nvidia-cublas-cu12 12.4.5.8 is installed",)


def test_a_library_inside_torch_has_torchs_version() -> None:
    """Which says nothing about cuBLAS."""
    path = "/venv/lib/python3.11/site-packages/torch/lib/libcublas.so.12"
    verdict = MODULE.judge({path: GOOD}, {path: ("torch", "2.5.1")})
    assert (verdict.shadowed, verdict.differs) == ((), ())


def test_no_library_at_all_keeps_no_bound() -> None:
    """A product was computed, but not by what this probe can read."""
    verdict = MODULE.judge({}, OWNERS)
    assert math.isnan(verdict.version)
    assert not BOUNDS["cublas_version"].holds(verdict.version)
