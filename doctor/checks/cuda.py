"""Do torch, the libraries of CUDA, bitsandbytes and the driver speak the same CUDA?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from doctor.base import versions
from doctor.case import Case
from doctor.finding import Finding
from doctor.read import files
from doctor.read.machine import NEEDS_DRIVER, newest_cuda

# The CUDA of the wheels on the default index; a local version such as +cu128 or +cpu says it itself.
TORCH = (("<2.5", "12.1"), (">=2.5,<2.7", "12.4"), (">=2.7,<2.8", "12.6"), (">=2.8,<2.11", "12.8"), (">=2.11", "13.0"))
# The first bitsandbytes with a binary for a CUDA, read from the published wheels.
BITSANDBYTES = (("12.8", "0.45.3"), ("12.9", "0.46.1"), ("13.0", "0.48.0"))
TOO_OLD = re.compile(r"NVIDIA driver on your system is too old(?: \(found version (\d{4,5})\))?"
                     r"|CUDA driver version is insufficient for CUDA runtime version"
                     r"|the provided PTX was compiled with an unsupported toolchain")  # fmt: skip
NO_BINARY = re.compile(r"libbitsandbytes_cuda(\d{2,3})(?:_nocublaslt)?\.so")
RUNTIME = re.compile(
    r"lib(cudart|cublas|cublasLt|cusparse|cusolver|cudnn|nvrtc|nvJitLink)\.so\.(\d+): cannot open shared object"
)


def of_torch(case: Case) -> str | None:
    """The CUDA that this torch was built for: '12.8', '' for none, or None when it cannot be told."""
    torch = case.environment.packages.get("torch")
    if torch is None:
        return None
    if torch.folder is not None:
        said = _version_file(torch.folder / "torch" / "version.py")
        if said is not None:
            return said
    version = versions.parse(torch.version)
    local = (version.local or "") if version else ""
    match = re.match(r"cu(\d\d)(\d)", local)
    if match:
        return f"{match[1]}.{match[2]}"
    if local.startswith(("cpu", "rocm", "xpu")):
        return ""
    return next((cuda for wanted, cuda in TORCH if versions.within(wanted, torch.version)), None)


def _version_file(path: Path) -> str | None:
    text = files.text(path, 65536)
    match = re.search(r"^cuda\s*(?::[^=\n]*)?=\s*(?:'([\d.]+)'|\"([\d.]+)\"|None)", text, re.MULTILINE)
    return (match[1] or match[2] or "") if match else None


def driver(case: Case) -> Iterator[Finding]:
    """A driver runs the CUDA of its own time and older; within CUDA 12 that is forgiving, from 12 to 13 it is not."""
    cuda, have = of_torch(case), case.machine.driver
    said = TOO_OLD.search(case.error)
    told = case.context.known.get("cuda")
    newest = newest_cuda(have) if have else None
    if newest is None and said and said[1]:
        newest = int(said[1]) // 1000
    if newest is None and said and told:
        newest = int(str(told).partition(".")[0]) if str(told)[:1].isdigit() else None
    major = int(cuda.partition(".")[0]) if cuda else None
    torch = case.environment.version("torch")
    vllm = case.environment.version("vllm")
    blamed: dict[str, str | None] = {"torch": torch}
    if major is None and vllm and torch is None:
        major, blamed = (13, {"vllm": vllm}) if versions.within(">=0.20", vllm) else (12, {"vllm": vllm})
    if major and newest and newest < major:
        confidence = "certain" if have or said else "likely"
        evidence = [f"{next(iter(blamed))} {next(iter(blamed.values()))} needs CUDA {cuda or major}",
                    f"driver {have or 'of the error'} speaks CUDA {newest} and older"]  # fmt: skip
    elif said:
        confidence, evidence = "likely", ["the error says it; which torch and which driver was not given"]
    else:
        return
    least = NEEDS_DRIVER.get(major or 13, 580)
    yield Finding(
        "cuda-driver", "the GPU driver is too old for the CUDA that torch was built for",
        blamed, "crash", confidence, evidence,
        [(f"an NVIDIA driver {least} or newer; or torch (and vLLM) built for CUDA {newest or 12}: "
         "torch below 2.11 from the default index, or a +cu12x build")],
        commands=["uv pip install --torch-backend=auto --reinstall-package torch torch"],
        ranges={"torch": [">=2.11"]} if major == 13 else {}, shown=2 if said else 0, weight=2.0,
    )  # fmt: skip


def majors(case: Case) -> Iterator[Finding]:
    """Libraries of two CUDA majors side by side: which of them is loaded depends on who comes first."""
    found: dict[int, list[str]] = {}
    for package in case.environment.packages.values():
        major = _major(package.name, package.version)
        if major:
            found.setdefault(major, []).append(f"{package.name} {package.version}")
    if len(found) < 2:
        return
    cuda = of_torch(case) or ""
    own = int(cuda.partition(".")[0]) if cuda else max(found)
    other = [one for major, names in found.items() if major != own for one in names]
    culprits = {one.split()[0]: one.split()[1] for one in other[:6]}
    yield Finding(
        "two-cudas", f"CUDA libraries of {' and '.join(map(str, sorted(found)))} are installed side by side",
        dict(culprits), "crash", "likely",
        [f"torch is built for CUDA {cuda}" if cuda else "which of them torch is built for was not given",
         *(f"CUDA {major}: {', '.join(names[:4])}" for major, names in sorted(found.items()))],
        [(f"uninstall those of CUDA {', '.join(str(major) for major in sorted(found) if major != own)}, or make the "
         "environment anew from one lock")],
        commands=[f"uv pip uninstall {' '.join(one.split()[0] for one in other)}"],
    )  # fmt: skip


def _major(name: str, version: str) -> int | None:
    match = re.fullmatch(r"nvidia-(?:cublas|cuda-runtime|cuda-nvrtc|cudnn|cusparse|cusolver|nccl)-cu(1[1-9])", name)
    if match:
        return int(match[1])
    if name in ("nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cuda-nvrtc"):
        return int(version.partition(".")[0]) if version[:1].isdigit() else None
    return None


def bitsandbytes(case: Case) -> Iterator[Finding]:
    """bitsandbytes carries one binary for each CUDA, and falls back only from 0.50 on."""
    have = case.environment.packages.get("bitsandbytes")
    cuda = of_torch(case)
    told = str(case.context.known.get("cuda") or "")
    asked = NO_BINARY.search(case.error)
    if asked:
        cuda = f"{asked[1][:-1]}.{asked[1][-1]}"
    elif not cuda:
        return
    if have is None and not asked:
        return
    version = have.version if have else None
    offered = _binaries(have.folder / "bitsandbytes") if have and have.folder else None
    wanted = cuda.replace(".", "")
    least = next((first for which, first in BITSANDBYTES if which == cuda), None)
    if offered:
        same = [one for one in offered if one[:2] == wanted[:2] and one <= wanted]
        if wanted in offered or (same and versions.within(">=0.50", version or "0") is True):
            return
        evidence = [f"its binaries: CUDA {', '.join(sorted(offered))}", f"torch's CUDA: {cuda}"]
    elif version and least and versions.within(f"<{least}", version):
        evidence = [f"the first bitsandbytes with a binary for CUDA {cuda} is {least}"]
    elif asked:
        evidence = [f"the error names {asked.group()}" + (f"; CUDA {told} on the machine" if told else "")]
    else:
        return
    yield Finding(
        "bitsandbytes-binary", f"bitsandbytes {version or ''} has no binary for CUDA {cuda}".replace("  ", " "),
        {"bitsandbytes": version}, "crash", "certain" if version and (offered or least) else "likely", evidence,
        [f"bitsandbytes>={least or '0.50'}" + ("; from 0.50 on it falls back to its nearest binary" if least else "")],
        commands=[f"uv pip install 'bitsandbytes>={least or '0.50'}'"],
        ranges={"bitsandbytes": [f"<{least}"]} if least else {}, shown=2 if asked else 0,
        weight=1.0 if version else 0.0,
    )  # fmt: skip


def _binaries(folder: Path) -> set[str]:
    names = [one.name for one in files.matching(folder, "libbitsandbytes_cuda*.so")]
    return {match[1] for match in map(NO_BINARY.fullmatch, names) if match}


def runtime(case: Case) -> Iterator[Finding]:
    """An extension that asks for the runtime of another CUDA than the one installed: libcudart.so.13 beside CUDA 12."""
    said = RUNTIME.search(case.error)
    if said is None or said[1] == "cudnn":
        return
    needs = int(said[2])
    cuda = of_torch(case)
    major = int(cuda.partition(".")[0]) if cuda else None
    torch = case.environment.packages.get("torch")
    if major == needs and torch is not None and (torch.folder is not None or "+" in torch.version):
        return
    if major == needs:
        major, cuda = None, None  # the wheel of the default index has it: then this is another build
    asks = _asking(case, needs)
    blamed: dict[str, str | None] = {asks: case.environment.version(asks)}
    ranges: dict[str, list[str]] = {}
    if asks == "vllm":
        ranges["vllm"] = [">=0.20"] if needs == 13 else ["<0.20"]
    blamed.setdefault("torch", case.environment.version("torch"))
    yield Finding(
        "cuda-runtime", f"{asks} was built for CUDA {needs}, torch for {f'CUDA {cuda}' if cuda else 'another CUDA'}",
        blamed, "crash", "certain" if major else "likely", [f"the error says: {said.group()}"],
        ["install both for one CUDA: those that one lock names"], ranges=ranges, shown=2, weight=1.0,
    )  # fmt: skip


def _asking(case: Case, needs: int) -> str:
    frames: list[tuple[int, str]] = []
    for name in (
        "vllm",
        "flashinfer",
        "flash_attn",
        "xformers",
        "sgl_kernel",
        "torchvision",
        "torchaudio",
        "bitsandbytes",
    ):
        place = case.error.rfind(name)
        if place >= 0:
            frames.append((place, versions.name(name)))
    return max(frames)[1] if frames else "vllm" if needs in (12, 13) else "torch"
