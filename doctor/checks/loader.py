"""Errors of the loader: a library built for another system, NumPy, NCCL or CUDA toolkit than the one beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import Pattern
from typing import NamedTuple

from doctor.base import aliases
from doctor.case import Case
from doctor.finding import EXPLAINS, Finding


class Mismatch(NamedTuple):
    """How the error reads, and what it means. `title` may name the {need} of the pattern."""

    rule: str
    pattern: Pattern[str]
    title: str
    packages: tuple[str, ...]  # to blame, besides the package whose file it is
    remedy: str


# Sizes in bytes that say that the installed NumPy is older than the one that a package was built for.
NEWER = r"\. Expected (?:96 from C header, got 8[08]|88 from C header, got 80)"
MISMATCHES = (
    Mismatch(
        "system-library",
        re.compile(r"version `(?P<need>GLIBC(?:XX)?_[\d.]+)' not found(?: \(required by (?P<file>[^)\n]+)\))?"),
        "a wheel was built for a newer system: the C or C++ library here has no {need}",
        (),
        "an image with a newer system (glibc), or an older release of the package; for GLIBCXX a newer libstdc++",
    ),
    Mismatch(
        "nvjitlink",
        re.compile(r"undefined symbol: (?P<need>__nvJitLink\w+)"),
        "cuSPARSE loads the nvJitLink of another CUDA, which has no {need}",
        ("nvidia-nvjitlink-cu12", "torch"),
        "the nvidia-nvjitlink that this torch declares, and no other CUDA before it in LD_LIBRARY_PATH",
    ),
    Mismatch(
        "nccl",
        re.compile(r"undefined symbol: (?P<need>nccl\w+)"),
        "torch loads an NCCL that is not its own, which has no {need}",
        ("nvidia-nccl-cu12", "torch"),
        "the nvidia-nccl that this torch declares, and no other NCCL before it in LD_LIBRARY_PATH",
    ),
    Mismatch(
        "numpy-abi",
        re.compile(
            rf"numpy\.(?:dtype|ndarray) size changed, may indicate binary incompatibility(?!{NEWER})"
            r"|numpy\.core\.multiarray failed to import"
            r"|compiled using NumPy 1\.x cannot be run in NumPy [\d.]+"
            r"|Numba needs NumPy (?P<need>[\d.]+) or less"
        ),
        "a compiled package was built for another NumPy than the installed one",
        ("numpy",),
        "numpy<2 beside packages built for NumPy 1, or newer releases of those packages",
    ),
    Mismatch(
        "numpy-abi",
        re.compile(rf"numpy\.dtype size changed, may indicate binary incompatibility(?={NEWER})"),
        "a compiled package was built for NumPy 2, and NumPy 1 is installed",
        ("numpy",),
        "numpy>=2, or older releases of the packages that are built for it",
    ),
    Mismatch(
        "numpy-abi",
        re.compile(rf"numpy\.ndarray size changed, may indicate binary incompatibility(?={NEWER})"),
        "a compiled package was built for a newer NumPy than the installed one",
        ("numpy",),
        "a newer numpy, or older releases of the packages that are built for it",
    ),
    Mismatch(
        "cuda-toolkit",
        re.compile(
            r"detected CUDA version \([\d.]+\) mismatches"
            r"|Installed CUDA version (?P<need>[\d.]+) does not match"
            r"|CUDAMismatchException"
        ),
        "the CUDA toolkit that compiles is not the CUDA that torch was built for",
        ("torch",),
        "a toolkit of torch's CUDA in CUDA_HOME, or a torch built for the toolkit's CUDA",
    ),
)
FILE = re.compile(r"(?:site|dist)-packages/(\w+)")
BEFORE = 2000  # characters before the error that may name the file


def loader_errors(case: Case) -> Iterator[Finding]:
    """The loader names what it lacks; the package is the one whose file it was loading."""
    for mismatch in MISMATCHES:
        match = mismatch.pattern.search(case.error)
        if match is None:
            continue
        groups = match.groupdict()
        files: list[str] = FILE.findall(groups.get("file") or case.error[max(0, match.start() - BEFORE) : match.end()])
        loading = aliases.of_module(files[-1]) if files else None
        yield Finding(
            rule=mismatch.rule,
            title=mismatch.title.format(need=groups.get("need") or "such symbol"),
            packages=case.versions(*mismatch.packages, loading),
            severity="crash",
            confidence="likely",
            evidence=[f"the error says: {match.group()[:200]}"],
            remedy=[mismatch.remedy],
            setting=mismatch.rule != "numpy-abi",  # the others come from what is around the packages
            shown=EXPLAINS,
            weight=0.5,
        )
