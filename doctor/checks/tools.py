"""Is there what has to be compiled with? Triton and torch.compile build a launcher with C compiler and Python.h."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.case import Case
from doctor.finding import Finding

NO_HEADERS = re.compile(r"Python\.h: No such file or directory")
NO_COMPILER = re.compile(r"Failed to find C compiler|No such file or directory: '(?:gcc|cc|g\+\+|clang)'|"
                         r"InvalidCxxCompiler|command '(?:x86_64-linux-gnu-)?g?cc' failed: No such file")  # fmt: skip
NO_NVCC = re.compile(r"CUDA_HOME (?:does not exist|environment variable is not set)|Could not find nvcc"
                     r"|MissingCUDAException|nvcc(?:'|\b)[^\n]{0,40}(?:not found|No such file)"
                     r"|No such file or directory: '[^']*nvcc'")  # fmt: skip


def look(case: Case) -> Iterator[Finding]:
    machine, packages = case.machine, case.environment.packages
    triton = case.environment.version("triton")
    compiles = bool(triton) and bool(machine.gpus)
    if NO_HEADERS.search(case.error) or (machine.looked_at and compiles and machine.headers is False):
        python = ".".join((case.environment.python or "3").split(".")[:2])
        yield _finding(
            "python-headers", "Python's C headers are missing, and Triton compiles against them at run time",
            case, NO_HEADERS, f"apt-get install python{python}-dev gcc, or a Python from uv, which brings its headers",
        )  # fmt: skip
    if NO_COMPILER.search(case.error) or (machine.looked_at and compiles and machine.compiler is None):
        yield _finding(
            "c-compiler", "there is no C compiler, and Triton compiles its launcher at run time",
            case, NO_COMPILER, "apt-get install gcc (or set CC to a compiler)",
        )  # fmt: skip
    deepspeed = "deepspeed" in packages and bool(machine.gpus)
    if NO_NVCC.search(case.error) or (machine.looked_at and deepspeed and machine.nvcc is None):
        yield _finding(
            "nvcc", "there is no nvcc where CUDA_HOME points, and DeepSpeed or FlashInfer look for it",
            case, NO_NVCC, "a CUDA toolkit of torch's CUDA, and CUDA_HOME set to it",
        )  # fmt: skip


def _finding(rule: str, title: str, case: Case, pattern: re.Pattern[str], remedy: str) -> Finding:
    said = pattern.search(case.error)
    return Finding(
        rule, title, {}, "crash", "certain" if said else "likely" if rule != "nvcc" else "possible",
        [f"the error says: {said.group()}" if said else "it was looked for on this machine"], [remedy],
        decide=[] if said or rule != "nvcc" else ["whether DeepSpeed compiles an operator here (fused Adam, CPU Adam)"],
        shown=2 if said else 0,
    )  # fmt: skip
