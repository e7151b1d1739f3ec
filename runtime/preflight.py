"""Before any work: which certificate covers this image on this machine, and what is sure to fail here.

It imports nothing of the stack and takes a fraction of a second. Only what cannot work stops a run; the rest is advice.
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runtime import exposed, judged, names

STACK = "etc/vetted/stack.json"
RUNS = "runs"
HERE = "here"  # the user's folder
# The first driver of each CUDA major; a driver runs every minor version of its majors.
# https://docs.nvidia.com/deploy/cuda-compatibility/
DRIVERS = {"12": 525, "13": 580}
SHM = 1 << 30  # bytes: ranks on one machine talk through /dev/shm
SPACE = 5 << 30  # bytes: a checkpoint of a small model, with its optimizer

Level = Literal["ok", "advice", "stop"]


@dataclass(frozen=True)
class Finding:
    level: Level
    what: str
    then: str = ""  # the next step

    def __str__(self) -> str:
        return self.what + (f"\n         {self.then}" if self.then else "")


def main() -> int:
    findings = look()
    for finding in findings:
        print(f"{finding.level:<8} {finding}")
    return 1 if any(finding.level == "stop" for finding in findings) else 0


def look(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """All findings, in the order in which a person would ask. `root`: the file system, another one in tests."""
    here = stack(root)
    needs = cuda(here.get("distributions", {}))
    found = gpus(root, environ)
    return [
        certified(root, here, found),
        *(_driver(root, needs, found) if needs else []),
        *_shared_memory(root, found),
        *_output(root),
        *_names(root),
        *_exposed(root),
    ]


def stack(root: Path) -> dict[str, Any]:
    """What the image says of itself; nothing, where this is no image of ours."""
    found = _json(root / STACK)
    return found if isinstance(found, dict) else {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


# --- what is here --------------------------------------------------------------------------------------------------


def gpus(root: Path, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The models of the GPUs that a process in this container will see, in the order of their PCI addresses.

    The driver tells of every GPU of the host; a container has the device nodes of its own, and CUDA_VISIBLE_DEVICES
    chooses among them, by number or by UUID, up to the first name that means none.
    """
    here = []
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        said = dict(re.findall(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", _text(path), re.MULTILINE))
        minor = said.get("Device Minor")
        if minor is None or (root / f"dev/nvidia{minor}").exists():
            here.append((said.get("Model") or "an NVIDIA GPU", said.get("GPU UUID", "")))
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [model for model, _ in here]
    models = []
    for name in map(str.strip, chosen.split(",")):
        if name.isdecimal():
            named = here[int(name) : int(name) + 1]
        elif name.startswith("MIG-"):  # a part of a GPU, of which the driver's files tell nothing
            named = [("a part of an NVIDIA GPU", name)] if here else []
        else:
            named = [one for one in here if name and one[1].startswith(name)]
        if len(named) != 1:
            break
        models.append(named[0][0])
    return models


def driver(root: Path) -> str | None:
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", _text(root / "proc/driver/nvidia/version"))
    return match[1] if match else None


def cuda(distributions: Mapping[str, str]) -> str | None:
    """The CUDA that the stack's torch was made for, or None for a stack without."""
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        if name in distributions:
            return ".".join(distributions[name].split(".")[:2])
    return None


def hardware(root: Path, found: list[str]) -> str:
    """This machine in the words of a certificate: its GPUs and driver, or its CPU and cores."""
    if found:
        models = " + ".join(f"{number}x {model}" for model, number in Counter(found).items())
        return f"{models}, driver {driver(root)}"
    match = re.search(r"^model name\s*:\s*(.+)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    name = match[1].strip() if match else os.uname().machine
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# --- what it means -------------------------------------------------------------------------------------------------


def certified(root: Path, stack: Mapping[str, Any], found: list[str]) -> Finding:
    """Whether a certificate of this image, as the host judged it, was earned on hardware like this."""
    name = stack.get("stack", "this image")
    said = judged.read(root)
    if said is None:
        return Finding("advice", f"nothing is known of a certificate of {name}", f"on the host: vetted use {name}")
    if not said.of(stack):
        return Finding(
            "advice",
            f"what `vetted use` judged was {said.stack} with another lock or runtime, and not this image",
            f"on the host: vetted use {name}",
        )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    here = hardware(root, found)
    valid = [one.hardware for one in said.certificates if one.issued <= today <= one.expires]
    if here in valid:
        return Finding(
            "ok", f"{name} is certified for this hardware: {here}, as judged by `vetted use` on {said.judged}"
        )
    if valid:
        return Finding(
            "advice",
            f"{name} is certified on {' and on '.join(valid)}, not on this: {here}",
            "run the suite here: docker compose run smoke",
        )
    if said.certificates:
        return Finding(
            "advice",
            f"the certificate of {name} for this image expired on {max(one.expires for one in said.certificates)}",
            "choose a newer image: vetted use; or run the suite here: docker compose run smoke",
        )
    return Finding(
        "advice", f"{name} has no certificate for this image", "run the suite here: docker compose run smoke"
    )


def _driver(root: Path, needs: str, found: list[str]) -> list[Finding]:
    version = driver(root)
    if version is None and (root / "dev/dxg").exists():
        return [
            Finding("advice", f"a GPU is reached through WSL, which does not tell its driver; CUDA {needs} needs one")
        ]
    if not found or version is None:
        return [
            Finding(
                "stop",
                f"no GPU is visible, and this stack is made for CUDA {needs}",
                "on a host with a GPU: docker compose -f compose.yaml -f compose.gpu.yaml run train; "
                "else choose the CPU stack: vetted use trl1.16-cpu",
            )
        ]
    least = DRIVERS.get(needs.split(".")[0])
    if least and int(version.split(".")[0]) < least:
        return [
            Finding(
                "stop",
                f"driver {version} is too old for CUDA {needs}, which needs {least} or newer",
                "update the driver, or choose a stack of an older CUDA: vetted list",
            )
        ]
    return [Finding("ok", f"driver {version}, CUDA {needs}, {len(found)} x {found[0]}")]


def _shared_memory(root: Path, found: list[str]) -> list[Finding]:
    try:
        shm = os.statvfs(root / "dev/shm")
    except OSError:
        return [Finding("advice", "/dev/shm is not there, and ranks talk through it", "docker run --shm-size 8g")]
    size = shm.f_blocks * shm.f_frsize
    if size >= SHM or len(found) < 2:
        return []
    said = f"/dev/shm holds {size >> 20} MiB: {len(found)} GPUs that talk through it may run out"
    return [Finding("advice", said, "docker run --shm-size 8g, or compose.gpu.yaml, which sets it")]


def _output(root: Path) -> list[Finding]:
    runs = root / RUNS
    if not runs.is_dir() or not os.access(runs, os.W_OK):
        who = f"user {os.getuid()}:{os.getgid()}"
        said = f"/{RUNS} cannot be written by {who}" if runs.is_dir() else f"/{RUNS} is not there"
        then = "vetted use, which makes ./runs and writes whose it is; or chown it" if runs.is_dir() else "mount it"
        return [Finding("stop", said, then)]
    free = shutil.disk_usage(runs).free
    if free < SPACE:
        return [Finding("advice", f"/{RUNS} has {free / 1e9:.1f} GB left", "checkpoints may not fit: make room")]
    return []


def _names(root: Path) -> list[Finding]:
    site = root / sysconfig.get_path("purelib").lstrip("/")
    hidden, winning = names.shared(root / HERE, site)
    findings = []
    if winning:
        said = f"{', '.join(winning)} in /{HERE} would be imported in place of the stack's"
        findings.append(Finding("stop", said, "rename it"))
    if hidden:
        said = f"{', '.join(hidden)} in /{HERE} will not be imported: the stack or Python has a module of that name"
        findings.append(Finding("advice", said, "rename it, if it is meant to be imported"))
    return findings


def _exposed(root: Path) -> list[Finding]:
    found = exposed.found(root / HERE)
    if not found:
        return []
    return [
        Finding(
            "stop",
            f"/{HERE} holds {', '.join(map(ascii, found))}, which everything that a run imports could read",
            "move the config to a folder of its own, and run there or set VETTED_WORK to that folder",
        )
    ]


if __name__ == "__main__":
    sys.exit(main())
