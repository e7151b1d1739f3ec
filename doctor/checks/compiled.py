"""Were the compiled extensions built for this torch? Read from the shared objects, not guessed from versions.

An extension imports C++ symbols of libtorch by name. One that no library of the installed torch defines means that the
extension was built for another torch, and that importing it fails with "undefined symbol".
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
from doctor.checks import fitting
from doctor.finding import EXPLAINS, POINTS, SILENT, Finding
from doctor.know import cuda
from doctor.read import files
from doctor.read.distributions import Package
from doctor.read.elf import Effort, NotElfError, SharedObject

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
# How an error writes an extension, without "-" and "_", where that is not its module.
WRITTEN = {
    "flash-attn": ("flashattn", "flashattention"),
    "flashinfer-python": ("flashinfer",),
    "vllm": ("vllm/c", "vllm.c"),
    "sgl-kernel": ("sglkernel", "commonops.abi3"),
    "mamba-ssm": ("mambassm", "selectivescancuda"),
    "transformer-engine-torch": ("transformerengine",),
}
SYMBOLS = ("_ZN3c10", "_ZNK3c10", "_ZN2at", "_ZNK2at", "_ZN5torch", "_ZNK5torch", "aoti_torch_")
LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libtorch.so", "libtorch_python.so", "libc10_cuda.so", "libtorch_cuda.so")
MOST_FILES, MOST_SYMBOLS = 24, 400
RECORD = 16 * 1024 * 1024  # bytes of a RECORD
BROKEN = re.compile(
    r"(?<![\w./-])(?P<file>[\w./-]*\.so[\w.]*): undefined symbol: (?P<symbol>\w+)"
    r"|DLL load failed while importing (?P<dll>\w+)"
    r"|(?P<operator>torchvision)::nms does not exist|xFormers was built for"
    r"|\[sgl_kernel\] CRITICAL: Could not load any \w+"
    r"|'_OpNamespace' '(?P<operators>_C\w*|_moe_C|vllm\w*)' object has no attribute '\w+'"
    r"|(?P<versions>Detected that PyTorch and \w+ were compiled with different CUDA (?:major )?versions)"
)
MODULES = r"flash[-_]?attn\w*|flash[-_]?attention|xformers|flash[-_]?infer\w*|causal[-_]conv1d|mamba[-_]ssm|apex"
UNIMPORTABLE = re.compile(
    r"(?:can(?:'t|not) import|(?:error|failed|unable|failure)s? (?:when |while )?(?:to )?import(?:ing)?)"
    rf"\s+['\"`]?(?P<module>{MODULES})"
    rf"|(?P<before>{MODULES})\W{{0,3}}(?:import|binary|ABI)\w*\s+(?:error|fail|incompat|mismatch)",
    re.IGNORECASE,
)


def foreign_symbols(case: Case) -> Iterator[Finding]:
    """Extensions whose files import symbols that this torch does not have."""
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
                yield from _of_package(case, package, torch, libraries, effort)
    finally:
        for library in libraries.values():
            library.close()


def foreign_family(case: Case) -> Iterator[Finding]:
    """torchvision and torchaudio belong to one minor version of torch, and to its CPU or CUDA variant."""
    torch = case.version("torch")
    own = versions.parse(torch) if torch else None
    if torch is None or own is None:
        return
    for name in fitting.FAMILY:
        installed = case.version(name)
        version = versions.parse(installed) if installed else None
        belongs = cuda.torch_family(name, torch)
        if version is None or belongs is None or (name == "torchaudio" and own.minor >= 9):
            continue  # from 2.9 on, torchaudio works with every later torch
        if belongs.split(".") != [str(version.major), str(version.minor)]:
            evidence = f"{name} {belongs} belongs to torch {own.major}.{own.minor}"
        elif own.local and version.local and own.local != version.local:
            evidence = f"torch is built for {own.local}, {name} for {version.local}"
        else:
            continue
        named = re.search(rf"operator {name}::|{name}[/.\w]*: undefined symbol", case.error)
        yield Finding(
            rule="torch-family",
            title=f"{name} {installed} does not belong to torch {torch}",
            packages={name: installed, "torch": torch},
            severity="crash",
            confidence="certain",
            evidence=[evidence],
            remedy=[f"{name} {belongs}.* of the same variant, or no {name} at all"],
            commands=fitting.commands(case, name),
            shown=EXPLAINS if named else SILENT,
            weight=1.0,
        )


def broken_import(case: Case) -> Iterator[Finding]:
    """The same from the error alone, for when the files of the extension are not here."""
    broken = BROKEN.search(case.error)
    unimportable = UNIMPORTABLE.search(case.error)
    if broken is not None:
        place = broken["file"] or broken["dll"] or broken["operator"] or broken.group()
        name = _extension_in(place) or _extension_in(case.error)
        if broken["operators"]:
            name = "vllm"  # whose operators these are, without its name
        quoted = broken.group()
    elif unimportable is not None:
        name = _extension_in(unimportable["module"] or unimportable["before"])
        quoted = unimportable.group()
    else:
        return
    if name is None:
        return
    sure = broken is not None and not (broken["operators"] and not fitting.declared(case, name))
    if broken is None:
        decide = [f"""python -c 'import {EXTENSIONS[name]}': it is so if this says "undefined symbol\""""]
    else:
        decide = _undecided(case, name) if sure else ["the warning before it: Failed to import from vllm._C"]
    yield Finding(
        rule="built-for-another-torch",
        title=f"{name} was built for another torch than the one beside it",
        packages=case.versions(name, "torch"),
        severity="crash",
        confidence="possible" if decide else "likely",
        evidence=[f"the error says: {quoted[:200]}"],
        remedy=fitting.remedies(case, name, another=True),
        commands=fitting.commands(case, name, another=True),
        decide=decide,
        shown=EXPLAINS if sure else POINTS,
        weight=0.5,
    )


def _undecided(case: Case, name: str) -> list[str]:
    """What is not known of an extension whose import failed; nothing where it and torch are known not to fit."""
    unstated = [package for package in (name, "torch") if case.version(package) is None]
    if unstated:
        return [f"which {' and which '.join(unstated)} is installed"]
    if fitting.has_wheel(case, name):
        wheel = f"{name} {case.version(name)} has a wheel for torch {case.version('torch')}"
        return [f"{wheel}: whether it was installed for this torch, and before another one came"]
    return []


def _open(folder: Path, effort: Effort) -> dict[str, SharedObject]:
    """The libraries of torch by name; none where the two that every torch has cannot be read."""
    libraries = {}
    for name in LIBRARIES:
        with contextlib.suppress(NotElfError):
            libraries[name] = SharedObject(folder / name, effort)
    return libraries if "libc10.so" in libraries and "libtorch_cpu.so" in libraries else {}


def _of_package(
    case: Case, package: Package, torch: Package, libraries: dict[str, SharedObject], effort: Effort
) -> Iterator[Finding]:
    """The first file of a package that does not fit this torch, or cannot be read."""
    for file in _files(package):
        try:
            with SharedObject(file, effort) as extension:
                needed = extension.needed
                if not any(library.startswith(("libtorch", "libc10")) for library in needed):
                    continue
                cuda_libraries = [name for name in needed if name.startswith(("libtorch_cuda", "libc10_cuda"))]
                absent = [name for name in cuda_libraries if name not in libraries]
                symbols = sorted(extension.undefined(SYMBOLS))
            # Without the CUDA libraries, all of at::cuda is undefined: the missing library says it better.
            missing = [] if absent else _missing(symbols, libraries)
        except NotElfError as error:
            yield _unreadable(package, file, str(error))
            return
        if not absent and not missing:
            continue
        explains = BROKEN.search(case.error) and _extension_in(case.error, package.name)
        lack = f"imports {len(missing)} symbols that this torch does not have"
        if absent:
            lack = f"needs {absent[0]}, which this torch does not have: it is a CUDA build beside a CPU build"
        yield Finding(
            rule="built-for-another-torch",
            title=f"{package.name} {package.version} was built for another torch than {torch.version}",
            packages={package.name: package.version, "torch": torch.version},
            severity="crash",
            confidence="certain",
            evidence=[f"{file.name} {lack}", *missing[:2]],
            remedy=fitting.remedies(case, package.name),
            commands=fitting.commands(case, package.name),
            shown=EXPLAINS if explains else SILENT,
            weight=1.0,
        )
        return


def _missing(symbols: list[str], libraries: dict[str, SharedObject]) -> list[str]:
    """The symbols that no library defines; one that cannot be searched may define any."""
    return [
        symbol
        for symbol in symbols[:MOST_SYMBOLS]
        if all(library.offers(symbol) is False for library in libraries.values())
    ]


def _files(package: Package) -> list[Path]:
    """The shared objects in its RECORD; without one, those beside its module."""
    assert package.folder is not None
    names: list[str] = []
    if package.info is not None:
        lines = files.text(package.info / "RECORD", RECORD).splitlines()
        names = [line.split(",")[0].strip('"') for line in lines if ".so," in line]
    paths = [package.folder / name for name in names if not name.startswith("/") and ".." not in name.split("/")]
    module = EXTENSIONS[package.name]
    if not paths:
        paths = [*files.matching(package.folder, f"{module}*.so"), *files.matching(package.folder / module, "*.so")]
    return list(itertools.islice(filter(files.is_file, paths), MOST_FILES))


def _unreadable(package: Package, file: Path, reason: str) -> Finding:
    pin = shlex.quote(f"{package.name}=={package.version}")
    return Finding(
        rule="broken-file",
        title=f"{file.name} of {package.name} {package.version} cannot be read as a shared object",
        packages={package.name: package.version},
        severity="crash",
        confidence="likely",
        evidence=[reason],
        remedy=[f"install {package.name} again"],
        commands=[f"uv pip install --reinstall-package {package.name} {pin}"],
    )


def _extension_in(text: str, only: str = "") -> str | None:
    """The first extension that a text names; with `only`, that one or None."""
    plain = re.sub(r"[-_]", "", text).lower()
    for name, module in EXTENSIONS.items():
        spellings = WRITTEN.get(name, (re.sub(r"[-_]", "", module).lower(),))
        if only in ("", name) and any(spelling in plain for spelling in spellings):
            return name
    return None
