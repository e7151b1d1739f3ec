"""Errors of the loader: what was built for another system, NumPy, NCCL or CUDA toolkit than the one beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import Pattern

from doctor.case import Case
from doctor.checks import names
from doctor.finding import Finding

# Pattern, title, packages to blame besides the one whose file it is, remedy.
SAYS: tuple[tuple[str, Pattern[str], str, tuple[str, ...], str], ...] = (
    ("system-library", re.compile(r"version `(?P<need>GLIBC(?:XX)?_[\d.]+)' not found"
                                  r"(?: \(required by (?P<file>[^)\n]+)\))?"),
     "a wheel was built for a newer system than this: its C or C++ library lacks {need}", (),
     "an image with a newer system (glibc), or an older release of the package; for GLIBCXX a newer libstdc++"),
    ("nvjitlink", re.compile(r"undefined symbol: (?P<need>__nvJitLink\w+)"),
     "cuSPARSE finds an nvJitLink of another CUDA: {need} is missing", ("nvidia-nvjitlink-cu12", "torch"),
     "the nvidia-nvjitlink that this torch declares, and no other CUDA before it in LD_LIBRARY_PATH"),
    ("nccl", re.compile(r"undefined symbol: (?P<need>nccl\w+)"),
     "torch finds an NCCL other than its own: {need} is missing", ("nvidia-nccl-cu12", "torch"),
     "the nvidia-nccl that this torch declares, and no other NCCL before it in LD_LIBRARY_PATH"),
    ("numpy-abi", re.compile(r"numpy\.(?:dtype|ndarray) size changed, may indicate binary incompatibility"
                             r"|numpy\.core\.multiarray failed to import"
                             r"|compiled using NumPy 1\.x cannot be run in NumPy [\d.]+"
                             r"|Numba needs NumPy (?P<need>[\d.]+) or less"),
     "a compiled package belongs to another NumPy than the one installed", ("numpy",),
     "numpy<2 beside packages built for NumPy 1, or newer releases of those packages"),
    ("cuda-toolkit", re.compile(r"detected CUDA version \([\d.]+\) mismatches"
                                r"|Installed CUDA version (?P<need>[\d.]+) does not match"
                                r"|CUDAMismatchException"),
     "the CUDA toolkit that compiles is not the CUDA that torch was built for", ("torch",),
     "a toolkit of torch's CUDA in CUDA_HOME, or torch built for the toolkit's CUDA"),
)  # fmt: skip
FILE = re.compile(r"(?:site|dist)-packages/(\w+)")


def look(case: Case) -> Iterator[Finding]:
    for rule, pattern, title, blamed, remedy in SAYS:
        said = pattern.search(case.error)
        if said is None:
            continue
        found = said.groupdict()
        own: list[str] = FILE.findall(found.get("file") or case.error[max(0, said.start() - 2000) : said.end()])
        asks = [names.distribution(own[-1])] if own else []
        packages: dict[str, str | None] = {name: case.environment.version(name) for name in (*blamed, *asks)}
        yield Finding(
            rule, title.format(need=found.get("need") or "what it asks for"), packages, "crash", "likely",
            [f"the error says: {said.group()[:200]}"], [remedy], shown=2, weight=0.5,
        )  # fmt: skip
