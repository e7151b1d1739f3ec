"""The machine under an environment: NVIDIA driver, GPUs, C compiler, Python's headers. Read, never initialised."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from doctor.read import files, programs

# The newest CUDA that a driver's branch speaks, from NVIDIA's CUDA release notes (table of minimum driver versions).
# Within one major version an older driver of its first branch will do (minor version compatibility).
NEEDS_DRIVER = {11: 450, 12: 525, 13: 580}


@dataclass
class Machine:
    driver: str | None = None
    gpus: int | None = None
    gpu_models: tuple[str, ...] = ()
    compiler: str | None = None
    nvcc: str | None = None
    headers: bool | None = None  # Python.h is there
    looked_at: bool = False  # at this machine; else everything was told


def look(include: Path | None, root: Path = Path("/"), avoid: Sequence[Path] = ()) -> Machine:
    """This machine, without touching a GPU. No program is asked that lies in one of the folders to avoid."""
    found = Machine(looked_at=True)
    version = files.text(root / "proc/driver/nvidia/version", 65536)
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", version)
    found.driver = match[1] if match else None
    cards = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    models = [re.search(r"^Model:\s*(.+)$", files.text(card, 65536), re.MULTILINE) for card in cards]
    found.gpu_models = tuple(dict.fromkeys(model[1].strip() for model in models if model))
    found.gpus = len(cards) if cards else (0 if not found.driver else None)
    if (found.driver is None or not cards) and root == Path("/"):
        _ask_smi(found, avoid)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and found.gpus:
        found.gpus = min(found.gpus, len([one for one in visible.split(",") if one.strip() not in ("", "-1")]))
    named = os.environ.get("CC", "").split()
    found.compiler = next((path for path in map(shutil.which, [*named[:1], "cc", "gcc", "clang"]) if path), None)
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    nvcc = Path(home) / "bin" / "nvcc"
    found.nvcc = shutil.which("nvcc") or (str(nvcc) if files.exists(nvcc) else None)
    found.headers = files.is_file(include / "Python.h") if include else None
    return found


def _ask_smi(found: Machine, avoid: Sequence[Path]) -> None:
    smi = _system_program("nvidia-smi", avoid)
    if smi is None:
        return
    try:
        said = programs.ask([smi, "--query-gpu=driver_version,name", "--format=csv,noheader"], 5, 65536)
    except programs.NoAnswerError:
        return
    lines = said.decode("utf-8", "replace").splitlines()
    rows = [line.split(",", 1) for line in lines if re.match(r"\d{3}\.\d[\d.]{0,20},", line)]
    if rows:
        found.driver = found.driver or rows[0][0].strip()
        found.gpus = len(rows)
        found.gpu_models = tuple(dict.fromkeys(row[1].strip() for row in rows))


def _system_program(name: str, avoid: Sequence[Path]) -> str | None:
    """A program on PATH that is the machine's: not the environment's that is looked at, nor of the current folder."""
    barred = [os.path.realpath(one) for one in avoid]
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        program = shutil.which(name, path=folder) if os.path.isabs(folder) else None  # noqa: PTH117
        places = {os.path.dirname(os.path.realpath(one)) for one in (program, folder + "/.")} if program else ()  # noqa: PTH120
        if program and not any((one + os.sep).startswith(bar + os.sep) for one in places for bar in barred):
            return program
    return None


def newest_cuda(driver: str) -> int | None:
    """The newest major version of CUDA that a driver runs."""
    match = re.match(r"\d+", driver)
    branch = int(match.group()) if match else 0
    return max((major for major, least in NEEDS_DRIVER.items() if branch >= least), default=None)
