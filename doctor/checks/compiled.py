"""Were the compiled extensions built for this torch? Read from the shared objects, not guessed from versions.

An extension asks libtorch for C++ symbols by name. One that no library of the installed torch offers means that it was
built for another, and that importing it fails with "undefined symbol".
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from doctor.base import versions
from doctor.case import Case
from doctor.finding import Finding
from doctor.read import files
from doctor.read.elf import Effort, NotElfError, SharedObject
from doctor.read.environment import Package

# Distributions with extensions that link with torch, and the module that they are imported by.
EXTENSIONS = {
    "flash-attn": "flash_attn", "flash-attn-3": "flash_attn_3", "xformers": "xformers", "torchvision": "torchvision",
    "torchaudio": "torchaudio", "vllm": "vllm", "flashinfer-python": "flashinfer", "causal-conv1d": "causal_conv1d",
    "mamba-ssm": "mamba_ssm", "apex": "apex", "transformer-engine-torch": "transformer_engine",
    "deepspeed": "deepspeed",
    "auto-gptq": "auto_gptq", "autoawq-kernels": "awq", "sgl-kernel": "sgl_kernel", "grouped-gemm": "grouped_gemm",
    "torchao": "torchao", "vllm-flash-attn": "vllm_flash_attn", "torchcodec": "torchcodec", "tilelang": "tilelang",
    "gptqmodel": "gptqmodel",
}  # fmt: skip
SYMBOLS = ("_ZN3c10", "_ZNK3c10", "_ZN2at", "_ZNK2at", "_ZN5torch", "_ZNK5torch", "aoti_torch_")
LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libtorch.so", "libtorch_python.so", "libc10_cuda.so", "libtorch_cuda.so")
MOST_FILES, MOST_SYMBOLS = 24, 400
RECORD = 16 * 1024 * 1024  # bytes of a RECORD
# What an error says of such an extension; the module is named before or after.
BROKEN = re.compile(
    r"(?<![\w./-])(?P<file>[\w./-]*\.so[\w.]*): undefined symbol: (?P<symbol>\w+)"
    r"|DLL load failed while importing (?P<dll>\w+)"
    r"|(?P<operator>torchvision)::nms does not exist|xFormers was built for"
    r"|(?P<versions>Detected that PyTorch and \w+ were compiled with different CUDA (?:major )?versions)"
)
OPTIONAL = r"flash[-_]?attn\w*|flash[-_]?attention|xformers|flash[-_]?infer\w*|causal[-_]conv1d|mamba[-_]ssm|apex"
UNIMPORTABLE = re.compile(
    r"(?:can(?:'t|not) import|(?:error|failed|unable|failure)s? (?:when |while )?(?:to )?import(?:ing)?)"
    rf"\s+['\"`]?(?P<module>{OPTIONAL})"
    rf"|(?P<before>{OPTIONAL})\W{{0,3}}(?:import|binary|ABI)\w*\s+(?:error|fail|incompat|mismatch)",
    re.IGNORECASE,
)


def look(case: Case) -> Iterator[Finding]:
    """Every extension that can be read."""
    torch = case.environment.packages.get("torch")
    if torch is None or torch.folder is None:
        return
    effort = Effort()
    libraries = _open(torch.folder / "torch" / "lib", effort)
    if not libraries:
        return
    try:
        for name in EXTENSIONS:
            package = case.environment.packages.get(name)
            if package is not None and package.folder is not None:
                yield from _package(case, package, torch, libraries, effort)
    finally:
        for library in libraries.values():
            library.close()


def _open(folder: Path, effort: Effort) -> dict[str, SharedObject]:
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(NotElfError):
            found[name] = SharedObject(folder / name, effort)
    return found if "libc10.so" in found and "libtorch_cpu.so" in found else {}


def _package(
    case: Case, package: Package, torch: Package, libraries: dict[str, SharedObject], effort: Effort
) -> Iterator[Finding]:
    for file in _files(package):
        try:
            with SharedObject(file, effort) as extension:
                needed = extension.needed
                if not any(one.startswith(("libtorch", "libc10")) for one in needed):
                    continue
                absent = [
                    one for one in needed if one.startswith(("libtorch_cuda", "libc10_cuda")) and one not in libraries
                ]
                wanted = sorted(extension.undefined(SYMBOLS))
            missing = [] if absent else _missing(wanted, libraries)
        except NotElfError as error:
            yield _unreadable(package, file, str(error))
            return
        if not absent and not missing:
            continue
        shown = 2 if BROKEN.search(case.error) and _named(case.error, package.name) else 0
        what = f"asks torch for {len(missing)} symbols that it does not have"
        if absent:
            what = f"asks for {absent[0]}, which this torch does not have: it is a CUDA build beside a CPU build"
        yield Finding(
            "built-for-another-torch",
            f"{package.name} {package.version} was built for another torch than {torch.version}",
            {package.name: package.version, "torch": torch.version}, "crash", "certain",
            [f"{file.name} {what}", *missing[:2]], [_remedy(package.name)],
            commands=[_command(package.name, torch.version)], shown=shown, weight=1.0,
        )  # fmt: skip
        return


def _missing(wanted: list[str], libraries: dict[str, SharedObject]) -> list[str]:
    found = []
    for symbol in wanted[:MOST_SYMBOLS]:
        said = [library.offers(symbol) for library in libraries.values()]
        if not any(one is not False for one in said):
            found.append(symbol)
    # A CUDA build of torch may lack none of them, and one without CUDA lacks what lies in at::cuda: that is `absent`.
    return found


def _files(package: Package) -> list[Path]:
    """Its shared objects, by its record; else those that lie where its module is."""
    assert package.folder is not None
    names: list[str] = []
    if package.info is not None:
        lines = files.text(package.info / "RECORD", RECORD).splitlines()
        names = [line.split(",")[0].strip('"') for line in lines if ".so," in line]
    found = [package.folder / one for one in names if not one.startswith("/") and ".." not in one.split("/")]
    module = EXTENSIONS[package.name]
    if not found:
        found = [*files.matching(package.folder, f"{module}*.so"), *files.matching(package.folder / module, "*.so")]
    return list(itertools.islice(filter(files.is_file, found), MOST_FILES))


def _unreadable(package: Package, file: Path, why: str) -> Finding:
    return Finding(
        "broken-file", f"{file.name} of {package.name} {package.version} cannot be read as a shared object",
        {package.name: package.version}, "crash", "likely", [why],
        [f"install {package.name} again"],
        commands=[
            f"uv pip install --reinstall-package {package.name} {shlex.quote(f'{package.name}=={package.version}')}"
        ],
    )  # fmt: skip


def of_error(case: Case) -> Iterator[Finding]:
    """What an error says of an extension, where its files are not at hand."""
    symbol = BROKEN.search(case.error)
    plain = UNIMPORTABLE.search(case.error)
    if symbol is None and plain is None:
        return
    name = None
    if symbol is not None:
        near = symbol["file"] or symbol["dll"] or symbol["operator"] or symbol.group()
        name = _named(near) or _named(case.error)
    elif plain is not None:
        name = _named(plain["module"] or plain["before"])
    if name is None:
        return
    packages: dict[str, str | None] = {
        name: case.environment.version(name),
        "torch": case.environment.version("torch"),
    }
    yield Finding(
        "built-for-another-torch", f"{name} was built for another torch than the one beside it",
        packages, "crash", "likely" if symbol else "possible",
        [f"the error says: {(symbol or plain).group()[:200]}"],  # type: ignore[union-attr]
        [_remedy(name)], commands=[_command(name, packages["torch"] or "")],
        decide=[] if symbol else [f"python -c 'import {EXTENSIONS[name]}': an undefined symbol means that it was"],
        shown=2 if symbol else 1, weight=0.5,
    )  # fmt: skip


def _named(text: str, only: str = "") -> str | None:
    plain = re.sub(r"[-_]", "", text).lower()
    aliases = {
        "flash-attn": ("flashattn", "flashattention"),
        "flashinfer-python": ("flashinfer",),
        "vllm": ("vllm/c", "vllm.c"),
    }
    for name, module in EXTENSIONS.items():
        if only and name != only:
            continue
        if any(alias in plain for alias in aliases.get(name, (re.sub(r"[-_]", "", module).lower(),))):
            return name
    return None


def _remedy(name: str) -> str:
    if name in ("flash-attn", "flash-attn-3", "xformers", "flashinfer-python", "causal-conv1d", "mamba-ssm", "apex"):
        return f"uninstall {name}, which is optional, or install a build of it for this very torch"
    return f"install the {name} that belongs to this torch: both from one index, or from one lock"


def _command(name: str, torch: str) -> str:
    if name in ("torchvision", "torchaudio", "torchcodec"):
        pair = family(name, torch)
        wanted = f"'{name}=={pair}.*'" if pair else name
        return f"uv pip install --torch-backend=auto --reinstall-package {name} {wanted}"
    return f"uv pip uninstall {name}"


def family(name: str, torch: str) -> str | None:
    """The minor version of torchvision or torchaudio that belongs to a torch 2.x."""
    version = versions.parse(torch)
    if version is None or version.major != 2:
        return None
    if name == "torchvision":
        return f"0.{version.minor + 15}"
    return f"2.{version.minor}" if name == "torchaudio" else None


def siblings(case: Case) -> Iterator[Finding]:
    """torchvision and torchaudio belong to one minor version of torch, and to its CPU or CUDA variant."""
    torch = case.environment.version("torch")
    own = versions.parse(torch) if torch else None
    if torch is None or own is None:
        return
    for name in ("torchvision", "torchaudio"):
        have = case.environment.version(name)
        version = versions.parse(have) if have else None
        pair = family(name, torch)
        if have is None or version is None or pair is None or (name == "torchaudio" and own.minor >= 9):
            continue  # from 2.9 on torchaudio is built for any later torch
        if pair.split(".") != [str(version.major), str(version.minor)]:
            why = f"torch {own.major}.{own.minor} belongs to {name} {pair}"
        elif own.local and version.local and own.local != version.local:
            why = f"torch is a {own.local} build, {name} one for {version.local}"
        else:
            continue
        shown = 2 if re.search(rf"operator {name}::|{name}[/.\w]*: undefined symbol", case.error) else 0
        yield Finding(
            "torch-family", f"{name} {have} does not belong to torch {torch}", {name: have, "torch": torch},
            "crash", "certain", [why], [f"{name} {pair}.* of the same variant, or no {name} at all"],
            commands=[_command(name, torch)], shown=shown, weight=1.0,
        )  # fmt: skip
