"""Does the stack use the cuBLAS that it installs, and not one that is known to crash?

Catches cuBLAS 12.1, which divides by zero on the H20 and ends a bf16 run with SIGFPE, and environments that install a
newer one without effect: the folder of another CUDA comes first in LD_LIBRARY_PATH, or a second copy is loaded too. The
versions that pip or a lockfile show do not tell which file was loaded.

Computes one product in bfloat16, then lists the files that this process has mapped, asks each for its version, and
looks up the installed distribution that it belongs to. Needs one GPU.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from smoke.probe import Bound, Context, Probe, Reading, Skip

Version = tuple[int, int, int]
ON_A_CPU = Skip("needs a GPU: nothing loads cuBLAS on a CPU", device="cpu")


PROBE = Probe(
    matters="a bf16 run on an H20 dies with SIGFPE in its first step, or the tested version is not the one in use",
    bounds=(
        Bound(
            "cublas_version",
            "the oldest loaded, as cublasGetVersion writes it: 12.1.3 kills the process on an H20, 12.3.4 was reported "
            "good, 12.4.5 by many; a stack is not certified for one GPU only, so the bound holds for all",
            at_least=120304,
            headline=True,
        ),
        Bound(
            "copies",
            "of cuBLAS and cuBLASLt, those with several loaded files: a call may reach any of them",
            "libraries",
            equals=0,
        ),
        Bound(
            "shadowed",
            "loaded files of no installed distribution, e.g. because LD_LIBRARY_PATH points to another CUDA",
            "files",
            equals=0,
        ),
        Bound(
            "version_differs",
            "loaded files that report another version than their distribution",
            "files",
            equals=0,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2906",
        "https://github.com/vllm-project/vllm/issues/4392",
        "https://github.com/pytorch/pytorch/issues/133548",
    ),
    needs=("torch",),
    skips=(ON_A_CPU,),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Make torch load cuBLAS, and judge the loaded files."""
    if context.device == "cpu":
        raise ON_A_CPU()
    import torch

    ones = torch.ones(16, 16, device=context.device, dtype=torch.bfloat16)
    if (ones @ ones).sum().item() != 16**3:
        raise ValueError("the product of two small matrices in bfloat16 is wrong")
    loaded = {path: _version(path) for path in mapped(Path("/proc/self/maps").read_text())}
    verdict = judge(loaded, _owners())
    where = f"on {torch.cuda.get_device_name()}: {verdict.loaded}"
    yield Reading("cublas_version", verdict.version, where)
    yield Reading("copies", len(verdict.copies), "; ".join(verdict.copies))
    library_path = os.environ.get("LD_LIBRARY_PATH", "")
    yield Reading("shadowed", len(verdict.shadowed), f"{verdict.shadowed}, LD_LIBRARY_PATH is {library_path!r}")
    yield Reading("version_differs", len(verdict.differs), "; ".join(verdict.differs))


@dataclass(frozen=True)
class Verdict:
    """The faults of the loaded libraries, a line each.

    `version` is the oldest loaded version as a number, NaN if there is none.
    """

    version: float
    loaded: tuple[str, ...]
    copies: tuple[str, ...]
    shadowed: tuple[str, ...]
    differs: tuple[str, ...]


def judge(loaded: Mapping[str, Version], owners: Mapping[str, tuple[str, str]]) -> Verdict:
    """Judge the loaded files by their versions, and by the distribution, name and version, that each belongs to."""
    copies = defaultdict(list)
    shadowed, differs = [], []
    for path, version in sorted(loaded.items()):
        copies["cuBLASLt" if "libcublasLt" in path else "cuBLAS"].append(path)
        if path not in owners:
            shadowed.append(f"{path} {_text(version)}")
            continue
        name, installed = owners[path]
        # A distribution's version has a fourth part, the build, which the library does not report.
        if _text(version) != ".".join(installed.split(".")[:3]) and name.startswith("nvidia-cublas"):
            differs.append(f"{path} is {_text(version)}, and {name} {installed} is installed")
    return Verdict(
        version=min(map(_number, loaded.values()), default=math.nan),
        loaded=tuple(f"{path} {_text(version)}" for path, version in sorted(loaded.items())),
        copies=tuple(f"{library}: {', '.join(paths)}" for library, paths in copies.items() if len(paths) > 1),
        shadowed=tuple(shadowed),
        differs=tuple(differs),
    )


def mapped(maps: str) -> list[str]:
    """The files of cuBLAS and cuBLASLt in the text of /proc/self/maps."""
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if re.search(r"/libcublas(Lt)?(-\w+)?\.so[.\d]*$", path))


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def _number(version: Version) -> int:
    major, minor, patch = version
    return major * 10000 + minor * 100 + patch


def _version(path: str) -> Version:
    """The version that the loaded file itself reports, without a handle and so without GPU memory."""
    library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    prefix = "cublasLt" if "libcublasLt" in path else "cublas"
    ask = getattr(library, f"{prefix}GetProperty")
    value = ctypes.c_int()
    parts = []
    for part in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        if status := ask(part, ctypes.byref(value)):
            raise OSError(f"{path}: {prefix}GetProperty({part}) returned {status}")
        parts.append(value.value)
    return parts[0], parts[1], parts[2]


def _owners() -> dict[str, tuple[str, str]]:
    """The installed files of cuBLAS and cuBLASLt, with the name and version of their distribution."""
    owners = {}
    for distribution in importlib.metadata.distributions():
        if "libcublas" not in (distribution.read_text("RECORD") or ""):
            continue
        for file in distribution.files or ():
            if file.name.startswith("libcublas"):
                path = str(Path(str(distribution.locate_file(file))).resolve())
                owners[path] = (distribution.metadata["Name"].lower().replace("_", "-"), distribution.version)
    return owners
