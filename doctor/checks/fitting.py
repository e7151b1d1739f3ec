"""What fits a torch: the releases of an extension that are built for it, or the torch that it is built for itself."""

from __future__ import annotations

import re

from doctor.base import versions
from doctor.base.versions import Version
from doctor.case import Case
from doctor.know import cuda, published

OPTIONAL = ("flash-attn", "flash-attn-3", "xformers", "flashinfer-python", "causal-conv1d", "mamba-ssm", "apex")
FAMILY = ("torchvision", "torchaudio")  # released with torch
PINNED = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]*\])?\s*==\s*(?P<version>[\w.+!]+)$")


def remedies(case: Case, name: str, *, another: bool = False) -> list[str]:
    """The ways to have both fit, in words. `another`: the installed release is no way out."""
    torch = case.version("torch") or ""
    if name in FAMILY and not torch:
        pairs = "torch 2.N has torchvision 0.(N+15) and torchaudio 2.N"
        return [f"the {name} that belongs to the torch that is installed: {pairs}, both from one index"]
    wheels = with_wheel(case, name, another)
    if wheels:
        return [
            f"flash-attn{wheels}, which has a wheel for torch {torch}",
            "or uninstall flash-attn, which is optional",
        ]
    if name in OPTIONAL:
        return [f"uninstall {name}, which is optional, or install a build of it for exactly this torch"]
    built_with = declared(case, name)
    beside = None if built_with else _pinned_beside(case, name)
    vllm = published.of_torch(torch) if name == "vllm" and not case.version("vllm") else None
    return [
        *([f"vllm=={vllm}, which is built with torch {torch}"] if vllm else []),
        *([f"torch{built_with}, which {name} {case.version(name)} was built with"] if built_with else []),
        *([f"torch=={beside[0]}, which {beside[1]} pins beside {name}"] if beside else []),
        f"install the {name} that belongs to this torch: both from one index, or from one lock",
    ]


def commands(case: Case, name: str, *, another: bool = False) -> list[str]:
    """The command for the first of them."""
    torch = case.version("torch") or ""
    if name in (*FAMILY, "torchcodec"):
        belongs = cuda.torch_family(name, torch)
        if belongs is None:  # without the version of torch, the newest one would come, and another torch with it
            return []
        return [f"uv pip install --torch-backend=auto --reinstall-package {name} '{name}=={belongs}.*'"]
    wheels = with_wheel(case, name, another)
    if wheels:  # its installation looks at the torch that is there, and takes the wheel for it
        return [f"uv pip install --no-build-isolation --reinstall-package flash-attn 'flash-attn{wheels}'"]
    built_with = declared(case, name)
    if built_with:
        return [f"uv pip install --torch-backend=auto 'torch{built_with}'"]
    beside = _pinned_beside(case, name)
    if beside:
        return [f"uv pip install --torch-backend=auto torch=={beside[0]}"]
    return [f"uv pip uninstall {name}"] if name in OPTIONAL else []


def has_wheel(case: Case, name: str) -> bool:
    """Is the installed release published with a wheel for the installed torch?"""
    wheels, installed = with_wheel(case, name), versions.parse(case.version(name) or "")
    return wheels is not None and installed is not None and versions.allows(wheels, installed.public)


def with_wheel(case: Case, name: str, another: bool = False) -> str | None:
    """The releases with a wheel for this torch; None where there is none. `another`: without the installed one."""
    local = (case.version("torch") or "").partition("+")[2]
    of_cuda = not local or local.startswith("cu")
    wheels = cuda.flash_attn_for(case.version("torch") or "") if name == "flash-attn" and of_cuda else None
    installed = versions.parse(case.version(name) or "")
    if wheels is None or installed is None or not another or not versions.allows(wheels, installed.public):
        return wheels
    first, last = (bound.strip("<>=") for bound in wheels.split(","))
    return None if first == last else f"{wheels},!={installed.public}"


def declared(case: Case, name: str) -> str | None:
    """The torch that an extension was built for, where it pins one and another is here."""
    package = case.environment.packages.get(name)
    if package is None:
        return None
    lines = package.requires or case.knowledge.requires(name).get(package.version) or ()
    for line in lines or published.requires(name, package.version):
        need = versions.requirement(line)
        pinned = need is not None and need.name == "torch" and str(need.specifier).startswith("==")
        if (
            need is not None
            and pinned
            and versions.within(str(need.specifier), case.version("torch") or "") is not True
        ):
            return str(need.specifier)
    return None


def _pinned_beside(case: Case, name: str) -> tuple[str, str] | None:
    """The torch that a framework pins beside this extension, and the framework's release: the nearest to what is here.

    None where it pins what is here, or nothing.
    """
    torch, version = versions.parse(case.version("torch") or ""), case.version(name)
    if torch is None or name in OPTIONAL:
        return None
    pairs: dict[str, str] = {}
    for framework, api in case.knowledge.apis.items():
        for release, lines in api.requires.items():
            pins = {match["name"]: match["version"] for match in map(PINNED.match, lines) if match}
            if "torch" in pins and name in pins and version in (None, pins[name]):
                pairs.setdefault(pins["torch"], f"{framework} {release}")
    if not pairs or torch.base_version in pairs:
        return None
    nearest = min(pairs, key=lambda pin: _apart(torch, versions.parse(pin) or torch))
    return nearest, pairs[nearest]


def _apart(left: Version, right: Version) -> tuple[int, int, int]:
    return abs(left.major - right.major), abs(left.minor - right.minor), abs(left.micro - right.micro)
