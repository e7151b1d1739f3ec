"""Do torch, the CUDA libraries, bitsandbytes and the driver belong to the same CUDA?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.finding import EXPLAINS, SILENT, Finding
from doctor.know import cuda
from doctor.read import files

TOO_OLD = re.compile(r"NVIDIA driver on your system is too old(?: \(found version (\d{4,5})\))?"
                     r"|CUDA driver version is insufficient for CUDA runtime version"
                     r"|the provided PTX was compiled with an unsupported toolchain")  # fmt: skip
NO_BINARY = re.compile(r"libbitsandbytes_cuda(\d{2,3})(?:_nocublaslt)?\.so")
NO_LIBRARY = re.compile(
    r"lib(cudart|cublas|cublasLt|cusparse|cusolver|cudnn|nvrtc|nvJitLink)\.so\.(\d+)[\d.]*: cannot open shared object"
)
LIBRARY = re.compile(r"nvidia-(?:cublas|cuda-runtime|cuda-nvrtc|cudnn|cusparse|cusolver|nccl)-cu(1[1-9])")
UNSUFFIXED = ("nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cuda-nvrtc")  # whose version is CUDA's, since CUDA 13
# Modules that load CUDA libraries, as an error names them.
LOADING = ("vllm", "flashinfer", "flash_attn", "xformers", "sgl_kernel", "torchvision", "torchaudio", "bitsandbytes")


def old_driver(case: Case) -> Iterator[Finding]:
    """A driver runs the CUDA of its own time and older; it runs every CUDA 12.x, but no CUDA 13."""
    torch_cuda = cuda.of_torch(case.environment)
    driver, match = case.machine.driver, TOO_OLD.search(case.error)
    newest = _newest(case, match)
    major, package = cuda.major(torch_cuda), "torch"
    vllm = case.version("vllm")
    if major is None and vllm and case.version("torch") is None:
        major, package = (13 if versions.within(">=0.20", vllm) else 12), "vllm"
    if major and newest and newest < major:
        confidence, decide = "certain", []
        evidence = [
            f"{package} {case.version(package)} needs CUDA {torch_cuda or major}",
            f"driver {driver or 'of the error'} runs CUDA {newest} and older",
        ]
    elif match:
        confidence = "likely" if major else "possible"
        evidence = [f"the error says: {match.group()}"]
        decide = [] if major else ["torch.version.cuda: the CUDA that torch was built for, which was not given"]
    else:
        return
    first = cuda.DRIVERS.get(major or 13, 580)
    remedy, command = _for_cuda(case, newest or min((major or 13) - 1, 12))
    yield Finding(
        rule="cuda-driver",
        title="the GPU driver is too old for the CUDA that torch was built for",
        packages=case.versions(package),
        severity="crash",
        confidence=confidence,
        evidence=evidence,
        remedy=[f"NVIDIA driver {first} or newer" + ("" if major else ", which runs every torch"), f"or {remedy}"],
        commands=[command],
        ranges={"torch": [">=2.11"]} if major == 13 else {},
        decide=decide,
        shown=EXPLAINS if match else SILENT,
        weight=2.0,
    )


def _for_cuda(case: Case, major: int) -> tuple[str, str]:
    """The torch for an older CUDA, in words and as a command: the release that is there, where it has such a wheel."""
    vllm = case.version("vllm")
    if vllm and major == 12:
        return ("vllm below 0.20 with its torch: both are built for CUDA 12", "uv pip install 'vllm<0.20'")
    backend, range_ = cuda.OLDER.get(major, cuda.OLDER[11])
    torch = versions.parse(case.version("torch") or "")
    requirement = f"torch=={torch.public}" if torch and versions.allows(range_, torch.public) else f"torch{range_}"
    return (
        f"{requirement} for CUDA {major}, from the index {backend} of torch",
        f"uv pip install --torch-backend={backend} --reinstall-package torch {shlex.quote(requirement)}",
    )


def _newest(case: Case, match: re.Match[str] | None) -> int | None:
    """The newest CUDA major that the driver runs: of the machine, else by the error, else by what the report says."""
    newest = cuda.newest(case.machine.driver) if case.machine.driver else None
    if newest is None and match:
        stated = str(case.context.facts.get("cuda") or "")
        newest = int(match[1]) // 1000 if match[1] else cuda.major(stated)
    return newest


def mixed_majors(case: Case) -> Iterator[Finding]:
    """Libraries of two CUDA majors side by side: which of them is loaded depends on the order of imports."""
    libraries: dict[int, list[tuple[str, str]]] = {}
    for package in case.environment.packages.values():
        major = _major(package.name, package.version)
        if major:
            libraries.setdefault(major, []).append((package.name, package.version))
    if len(libraries) < 2:
        return
    torch_cuda = cuda.of_torch(case.environment) or ""
    own = cuda.major(torch_cuda) or max(libraries)
    others = [package for major, packages in libraries.items() if major != own for package in packages]
    superfluous = ", ".join(str(major) for major in sorted(libraries) if major != own)
    shown = (
        f"CUDA {major}: {', '.join(f'{name} {version}' for name, version in packages[:4])}"
        for major, packages in sorted(libraries.items())
    )
    yield Finding(
        rule="two-cudas",
        title=f"CUDA libraries of {' and '.join(map(str, sorted(libraries)))} are installed side by side",
        packages=dict(others[:6]),
        severity="crash",
        confidence="likely",
        evidence=[
            f"torch is built for CUDA {torch_cuda}" if torch_cuda else "the CUDA of torch was not given",
            *shown,
        ],
        remedy=[f"uninstall those of CUDA {superfluous}, or create the environment again from one lock"],
        commands=[f"uv pip uninstall {' '.join(name for name, _ in others)}"],
    )


def _major(name: str, version: str) -> int | None:
    """The CUDA major of a distribution with CUDA libraries; None for any other."""
    match = LIBRARY.fullmatch(name)
    if match:
        return int(match[1])
    return cuda.major(version) if name in UNSUFFIXED else None


def missing_bitsandbytes_binary(case: Case) -> Iterator[Finding]:
    """bitsandbytes has one binary for each CUDA, and falls back to another only since 0.50."""
    package = case.environment.packages.get("bitsandbytes")
    match = NO_BINARY.search(case.error)
    target = f"{match[1][:-1]}.{match[1][-1]}" if match else cuda.of_torch(case.environment)
    if not target or (package is None and not match):
        return
    version = package.version if package else None
    binaries = _binaries(package.folder / "bitsandbytes") if package and package.folder else set()
    first = cuda.BITSANDBYTES.get(target)
    if binaries:
        number = target.replace(".", "")
        fallbacks = [binary for binary in binaries if binary[:2] == number[:2] and binary <= number]
        if number in binaries or (fallbacks and versions.within(">=0.50", version or "0") is True):
            return
        evidence = [f"its binaries: CUDA {', '.join(sorted(binaries))}", f"torch's CUDA: {target}"]
    elif version and first and versions.within(f"<{first}", version):
        evidence = [f"the first bitsandbytes with a binary for CUDA {target} is {first}"]
    elif match:
        stated = case.context.facts.get("cuda")
        evidence = [f"the error names {match.group()}" + (f"; CUDA {stated} on the machine" if stated else "")]
    else:
        return
    requirement = f"bitsandbytes>={first or '0.50'}"
    yield Finding(
        rule="bitsandbytes-binary",
        title=f"bitsandbytes {version or ''} has no binary for CUDA {target}".replace("  ", " "),
        packages={"bitsandbytes": version},
        severity="crash",
        confidence="certain" if version and (binaries or first) else "likely",
        evidence=evidence,
        remedy=[requirement + ("; since 0.50 it falls back to its nearest binary" if first else "")],
        commands=[f"uv pip install '{requirement}'"],
        ranges={"bitsandbytes": [f"<{first}"]} if first else {},
        shown=EXPLAINS if match else SILENT,
        weight=1.0 if version else 0.0,
    )


def _binaries(folder: Path) -> set[str]:
    """The CUDA versions, such as 128, of the binaries in a folder."""
    names = [path.name for path in files.matching(folder, "libbitsandbytes_cuda*.so")]
    return {match[1] for match in map(NO_BINARY.fullmatch, names) if match}


def other_runtime(case: Case) -> Iterator[Finding]:
    """An extension needs the runtime of another CUDA than the installed one: libcudart.so.13 beside CUDA 12."""
    matches = (match for match in NO_LIBRARY.finditer(case.error) if not _harmless(case.error, match.start()))
    match = next(matches, None)
    if match is None or match[1] == "cudnn":
        return
    needed = int(match[2])
    torch_cuda = cuda.of_torch(case.environment)
    torch = case.environment.packages.get("torch")
    if cuda.major(torch_cuda) == needed:
        if torch is not None and (torch.folder is not None or "+" in torch.version):
            return
        torch_cuda = None  # the wheel of the default index has that library: this is another build
    loading = _loading(case.error, needed)
    ranges = {"vllm": [">=0.20"] if needed == 13 else ["<0.20"]} if loading == "vllm" else {}
    yield Finding(
        rule="cuda-runtime",
        title=(
            f"{loading or 'something'} was built for CUDA {needed}, "
            f"torch for {f'CUDA {torch_cuda}' if torch_cuda else 'another CUDA'}"
        ),
        packages=case.versions(loading, "torch"),
        severity="crash",
        confidence="certain" if torch_cuda else "likely",
        evidence=[f"the error says: {match.group()}"],
        remedy=["install both for one CUDA: the versions of one lock"],
        ranges=ranges,
        shown=EXPLAINS,
        weight=1.0,
    )


def _harmless(error: str, place: int) -> bool:
    """Is the line at this place a warning of TensorFlow, which goes on without the library?"""
    line = error[error.rfind("\n", 0, place) + 1 : place]
    return "dlerror" in line or "Could not load dynamic library" in line


def _loading(error: str, needed: int) -> str | None:
    """The package that an error names last before the library: the one that loads it. None if it names none."""
    places = [(error.rfind(module), aliases.normalise(module)) for module in LOADING if module in error]
    if places:
        return max(places)[1]
    return "vllm" if needed in (12, 13) else None
