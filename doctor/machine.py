"""The machine under an environment: NVIDIA driver, GPUs, C compiler, Python's headers. Read, never initialised."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

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


def look(include: Path | None, root: Path = Path("/")) -> Machine:
    """This machine, without touching a GPU."""
    found = Machine(looked_at=True)
    version = _text(root / "proc/driver/nvidia/version")
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", version)
    found.driver = match[1] if match else None
    cards = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    models = [re.search(r"^Model:\s*(.+)$", _text(card), re.MULTILINE) for card in cards]
    found.gpu_models = tuple(dict.fromkeys(model[1].strip() for model in models if model))
    found.gpus = len(cards) if cards else (0 if not found.driver else None)
    if (found.driver is None or not cards) and root == Path("/"):
        _ask_smi(found)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and found.gpus:
        found.gpus = min(found.gpus, len([one for one in visible.split(",") if one.strip() not in ("", "-1")]))
    named = os.environ.get("CC", "").split()
    found.compiler = next((path for path in map(shutil.which, [*named[:1], "cc", "gcc", "clang"]) if path), None)
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found.nvcc = shutil.which("nvcc") or (str(Path(home) / "bin/nvcc") if (Path(home) / "bin/nvcc").exists() else None)
    found.headers = (include / "Python.h").is_file() if include else None
    return found


def _ask_smi(found: Machine) -> None:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return
    try:
        argv = [smi, "--query-gpu=driver_version,name", "--format=csv,noheader"]
        said = subprocess.run(argv, capture_output=True, timeout=5, check=False, text=True, errors="replace").stdout
    except (OSError, subprocess.SubprocessError):
        return
    rows = [line.split(",", 1) for line in said.splitlines() if re.match(r"\d{3}\.\d+[\d.]*,", line)]
    if rows:
        found.driver = found.driver or rows[0][0].strip()
        found.gpus = len(rows)
        found.gpu_models = tuple(dict.fromkeys(row[1].strip() for row in rows))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(65536).decode("utf-8", "replace")
    except OSError:
        return ""


def newest_cuda(driver: str) -> int | None:
    """The newest major version of CUDA that a driver runs."""
    match = re.match(r"\d+", driver)
    branch = int(match.group()) if match else 0
    return max((major for major, least in NEEDS_DRIVER.items() if branch >= least), default=None)
