"""Are the tools there that compile at run time? Triton and torch.compile need a C compiler and Python.h."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.case import Case
from doctor.finding import EXPLAINS, SILENT, Finding

NO_HEADERS = re.compile(r"Python\.h: No such file or directory")
NO_COMPILER = re.compile(r"Failed to find C compiler|No such file or directory: '(?:gcc|cc|g\+\+|clang)'|"
                         r"InvalidCxxCompiler|command '(?:x86_64-linux-gnu-)?g?cc' failed: No such file")  # fmt: skip
NO_NVCC = re.compile(r"CUDA_HOME (?:does not exist|environment variable is not set)|Could not find nvcc"
                     r"|MissingCUDAException|nvcc(?:'|\b)[^\n]{0,40}(?:not found|No such file)"
                     r"|No such file or directory: '[^']*nvcc'"
                     r"|error: (?:cu(?:da|rand|blas|sparse|solver|fft)\w*|nv_\w+)[\w/]*\.c?u?h: No such")  # fmt: skip


def missing_tools(case: Case) -> Iterator[Finding]:
    """Python's headers, a C compiler and nvcc: missing on this machine, or by what the error says."""
    machine = case.machine
    gpu = machine.inspected and bool(machine.gpus)
    triton = gpu and bool(case.version("triton"))
    headers, compiler, nvcc = (pattern.search(case.error) for pattern in (NO_HEADERS, NO_COMPILER, NO_NVCC))
    if headers or (triton and machine.headers is False):
        python = ".".join((case.environment.python or "3").split(".")[:2])
        yield _finding(
            "python-headers",
            "Python's C headers are missing, and Triton compiles against them at run time",
            headers,
            f"apt-get install python{python}-dev gcc, or a Python from uv, which has its headers",
        )
    if compiler or (triton and machine.compiler is None):
        yield _finding(
            "c-compiler",
            "there is no C compiler, and Triton compiles its launcher at run time",
            compiler,
            "apt-get install gcc (or set CC to a compiler)",
        )
    if nvcc or (gpu and "deepspeed" in case.environment.packages and machine.nvcc is None):
        yield _finding(
            "nvcc",
            "there is no nvcc in CUDA_HOME, and DeepSpeed or FlashInfer look for it",
            nvcc,
            "a CUDA toolkit of torch's CUDA, and CUDA_HOME set to it",
            decide=[] if nvcc else ["whether DeepSpeed compiles an operator here (fused Adam, CPU Adam)"],
        )


def _finding(
    rule: str, title: str, match: re.Match[str] | None, remedy: str, decide: list[str] | None = None
) -> Finding:
    return Finding(
        rule=rule,
        title=title,
        packages={},
        severity="crash",
        confidence="certain" if match else "possible" if decide else "likely",
        evidence=[f"the error says: {match.group()}" if match else "it is not on this machine"],
        remedy=[remedy],
        decide=decide,
        setting=True,
        shown=EXPLAINS if match else SILENT,
    )
