"""Checks before a run: is this image certified for this machine, and is something sure to fail here?

Imports nothing of the stack and takes a fraction of a second. Only what cannot work stops a run; the rest is advice.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runtime import capability, collisions, kernels, secret_files, verdict
from runtime.capability import Capability
from runtime.check import Check

STACK = "etc/vetted/stack.json"
RUNS = "runs"
HERE = "here"  # the user's folder
LIBRARY = "libcuda.so.1"  # the driver's
WSL = "dev/dxg"  # the GPU of Windows' subsystem for Linux, which has no /proc/driver/nvidia
# Where container runtimes put it: Debian's folders, others', Kubernetes on some clouds, WSL.
DRIVER_FOLDERS = (
    "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64",
    "usr/local/cuda/compat", "usr/lib/wsl/lib",
)  # fmt: skip
SHM = 1 << 30  # bytes: ranks on one machine talk through /dev/shm
SPACE = 5 << 30  # bytes: a checkpoint of a small model, with its optimizer


def main() -> int:
    checks = look()
    for check in checks:
        print(f"{check.level:<8} {check}")
    return 1 if any(check.level == "stop" for check in checks) else 0


def look(
    root: Path = Path("/"),
    environ: Mapping[str, str] = os.environ,
    capabilities: Callable[[], Mapping[str, Capability]] = capability.capabilities,
    installed: Callable[[], str] = capability.installed,
    listed: Callable[[], list[str]] = capability.models,
) -> list[Check]:
    """All checks. `root` is the root of the file system, another folder in tests.

    `capabilities`: model -> compute capability of each GPU; `installed`: the version of the driver; `listed`: the model
    of every GPU. They ask NVML.
    """
    description = stack(root)
    cuda_version = cuda(description.get("distributions", {}))
    models = gpus(root, environ)
    wsl = (root / WSL).exists() and driver(root) is None
    numbers = capabilities() if cuda_version and (models or wsl) else {}
    if wsl:
        models = listed() if cuda_version else []
    version = driver(root) or (installed() if wsl else "")
    # NVML lists GPUs that CUDA_VISIBLE_DEVICES hides. Where it names models differently, all of them count.
    here = {model: numbers[model] for model in models if model in numbers} or dict(numbers)
    return [
        certified(root, description, hardware(root, models, version)),
        *(_driver(version, cuda_version, models, here, wsl) if cuda_version else []),
        *(_driver_library(root, environ) if cuda_version and models else []),
        *(kernels.missing(description, here) if cuda_version and models else []),
        *_shared_memory(root, models),
        *_output(root),
        *_collisions(root),
        *_secret_files(root),
    ]


def stack(root: Path) -> dict[str, Any]:
    """The image's description of itself (stack.json); empty if this is not one of our images."""
    description = _json(root / STACK)
    return description if isinstance(description, dict) else {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


# --- this machine --------------------------------------------------------------------------------------------------


def gpus(root: Path, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The models of the GPUs that a process in this container will see, in the order of their PCI addresses.

    The driver lists all GPUs of the host; a container has device nodes for its own, and CUDA_VISIBLE_DEVICES selects
    among them by number or UUID, up to the first entry that matches no GPU.
    """
    devices = []  # model and UUID
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        fields = dict(re.findall(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", _text(path), re.MULTILINE))
        minor = fields.get("Device Minor")
        if minor is None or (root / f"dev/nvidia{minor}").exists():
            devices.append((fields.get("Model") or "an NVIDIA GPU", fields.get("GPU UUID", "")))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [model for model, _ in devices]
    models = []
    for name in map(str.strip, visible.split(",")):
        if name.isdecimal():
            matches = devices[int(name) : int(name) + 1]
        elif name.startswith("MIG-"):  # a part of a GPU, which the driver's files do not describe
            matches = [("a part of an NVIDIA GPU", name)] if devices else []
        else:
            matches = [device for device in devices if name and device[1].startswith(name)]
        if len(matches) != 1:
            break
        models.append(matches[0][0])
    return models


def driver(root: Path) -> str | None:
    """The version of the NVIDIA driver, such as "580.65.06", or None without one."""
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", _text(root / "proc/driver/nvidia/version"))
    return match[1] if match else None


def cuda(distributions: Mapping[str, str]) -> str | None:
    """The CUDA version of the stack, such as "13.0", or None for a CPU stack."""
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        if name in distributions:
            return ".".join(distributions[name].split(".")[:2])
    return None


def hardware(root: Path, models: list[str], version: str = "") -> str:
    """This machine's hardware class as certificates write it: its GPUs (`models`) and driver, or its CPU and cores.

    `version`: of the driver, where its files do not tell it.
    """
    if models:
        counted = " + ".join(f"{number}x {model}" for model, number in Counter(models).items())
        return f"{counted}, driver {version or driver(root)}"
    match = re.search(r"^model name\s*:\s*(.+)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    name = match[1].strip() if match else os.uname().machine
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# --- the checks ----------------------------------------------------------------------------------------------------


def certified(root: Path, description: Mapping[str, Any], here: str) -> Check:
    """Whether this image is certified for this hardware (`here`), by the verdict of the host."""
    name = description.get("stack", "this image")
    judged = verdict.read(root)
    if judged is None:
        return Check("advice", f"no verdict on the certificates of {name}", f"on the host: vetted use {name}")
    if not judged.applies_to(description):
        return Check(
            "advice",
            f"`vetted use` judged {judged.stack} with another lock or runtime, not this image",
            f"on the host: vetted use {name}",
        )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    valid = [entry.hardware for entry in judged.certificates if entry.issued <= today <= entry.expires]
    if here in valid:
        return Check(
            "ok", f"{name} is certified for this hardware: {here}, as judged by `vetted use` on {judged.judged}"
        )
    if valid:
        return Check(
            "advice",
            f"{name} is certified on {' and on '.join(valid)}, not on this hardware: {here}",
            "run the suite here: docker compose run smoke",
        )
    if judged.certificates:
        return Check(
            "advice",
            f"the certificate of {name} for this image expired on {max(c.expires for c in judged.certificates)}",
            "choose a newer image: vetted use; or run the suite here: docker compose run smoke",
        )
    return Check("advice", f"{name} has no certificate for this image", "run the suite here: docker compose run smoke")


def _driver(
    version: str, cuda_version: str, models: list[str], here: Mapping[str, Capability], wsl: bool
) -> list[Check]:
    """Whether the driver runs this CUDA on these GPUs."""
    if wsl and not (models and version):
        return [
            Check(
                "advice",
                f"WSL provides the GPU, and its libnvidia-ml.so.1 is not here, which would tell the driver: CUDA "
                f"{cuda_version} needs {capability.driver(cuda_version, None)} or newer",
                "ask for the capability utility: docker run --gpus all; on Windows, nvidia-smi shows the driver",
            )
        ]
    if not models or not version:
        return [
            Check(
                "stop",
                f"no GPU is visible, and this stack needs CUDA {cuda_version}",
                "on a host with a GPU: vetted use, which adds compose.gpu.yaml; "
                "else choose the CPU stack: vetted use trl1.16-cpu",
            )
        ]
    if too_old := kernels.old_driver(version, cuda_version, here):
        return too_old
    return [Check("ok", f"driver {version}, CUDA {cuda_version}, {len(models)} x {models[0]}")]


def _driver_library(root: Path, environ: Mapping[str, str]) -> list[Check]:
    """The container runtime mounts the driver's libraries, but only those of the capabilities that it was asked for."""
    named = [folder.lstrip("/") for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    if any((root / folder / LIBRARY).exists() for folder in (*DRIVER_FOLDERS, *named)):
        return []
    return [
        Check(
            "stop",
            f"a GPU is visible, and the driver's library {LIBRARY} is not here",
            "ask for the capability compute: docker run --gpus all, or in a compose file capabilities: [gpu, compute, "
            "utility]; in Kubernetes NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    ]


def _shared_memory(root: Path, models: list[str]) -> list[Check]:
    try:
        shm = os.statvfs(root / "dev/shm")
    except OSError:
        return [Check("advice", "/dev/shm is missing, and ranks communicate through it", "docker run --shm-size 8g")]
    size = shm.f_blocks * shm.f_frsize
    if size >= SHM or len(models) < 2:
        return []
    message = f"/dev/shm has {size >> 20} MiB, which {len(models)} GPUs that communicate through it may use up"
    return [Check("advice", message, "docker run --shm-size 8g, or compose.gpu.yaml, which sets it")]


def _output(root: Path) -> list[Check]:
    runs = root / RUNS
    if not runs.is_dir() or not os.access(runs, os.W_OK):
        if not runs.is_dir():
            return [Check("stop", f"/{RUNS} is missing", "mount it")]
        return [
            Check(
                "stop",
                f"/{RUNS} cannot be written by user {os.getuid()}:{os.getgid()}",
                "run vetted use, which creates ./runs and configures its owner; or chown it",
            )
        ]
    free = shutil.disk_usage(runs).free
    if free < SPACE:
        return [Check("advice", f"/{RUNS} has {free / 1e9:.1f} GB left", "checkpoints may not fit: free some space")]
    return []


def _collisions(root: Path) -> list[Check]:
    site = root / sysconfig.get_path("purelib").lstrip("/")
    hidden, hiding = collisions.find(root / HERE, site)
    checks = []
    if hiding:
        message = f"{', '.join(hiding)} in /{HERE} would be imported in place of the stack's"
        checks.append(Check("stop", message, "rename it"))
    if hidden:
        message = f"{', '.join(hidden)} in /{HERE} will not be imported: the stack or Python has a module of that name"
        checks.append(Check("advice", message, "rename it, if it is meant to be imported"))
    return checks


def _secret_files(root: Path) -> list[Check]:
    names = secret_files.find(root / HERE)
    if not names:
        return []
    return [
        Check(
            "stop",
            f"/{HERE} contains {', '.join(map(ascii, names))}, which everything that a run imports could read",
            "move the config to a folder of its own, and run there or set VETTED_WORK to that folder",
        )
    ]


if __name__ == "__main__":
    sys.exit(main())
