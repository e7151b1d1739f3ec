"""The machine: NVIDIA driver, GPUs, C compiler, CUDA compiler, Python's headers. No GPU is initialised."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from doctor.read import files, programs


@dataclass
class Machine:
    """None where it is not known."""

    driver: str | None = None
    gpus: int | None = None
    gpu_models: tuple[str, ...] = ()
    compiler: str | None = None
    nvcc: str | None = None
    headers: bool | None = None  # Python.h exists
    inspected: bool = False  # read from this machine; otherwise a report stated it


def inspect(include: Path | None, root: Path = Path("/"), avoid: Sequence[Path] = ()) -> Machine:
    """This machine. `root`: another file system in tests. `avoid`: folders whose programs are not run."""
    machine = Machine(inspected=True)
    version = files.text(root / "proc/driver/nvidia/version", 65536)
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", version)
    machine.driver = match[1] if match else None
    cards = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    models = [re.search(r"^Model:\s*(.+)$", files.text(card, 65536), re.MULTILINE) for card in cards]
    machine.gpu_models = tuple(dict.fromkeys(model[1].strip() for model in models if model))
    machine.gpus = len(cards) if cards else (0 if not machine.driver else None)
    if (machine.driver is None or not cards) and root == Path("/"):
        _ask_nvidia_smi(machine, avoid)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and machine.gpus:
        machine.gpus = min(machine.gpus, len([gpu for gpu in visible.split(",") if gpu.strip() not in ("", "-1")]))
    chosen = os.environ.get("CC", "").split()
    machine.compiler = next((path for path in map(shutil.which, [*chosen[:1], "cc", "gcc", "clang"]) if path), None)
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    nvcc = Path(home) / "bin" / "nvcc"
    machine.nvcc = shutil.which("nvcc") or (str(nvcc) if files.exists(nvcc) else None)
    machine.headers = files.is_file(include / "Python.h") if include else None
    return machine


def _ask_nvidia_smi(machine: Machine, avoid: Sequence[Path]) -> None:
    smi = _system_program("nvidia-smi", avoid)
    if smi is None:
        return
    try:
        output = programs.ask([smi, "--query-gpu=driver_version,name", "--format=csv,noheader"], 5, 65536)
    except programs.NoAnswerError:
        return
    lines = output.decode("utf-8", "replace").splitlines()
    rows = [line.split(",", 1) for line in lines if re.match(r"\d{3}\.\d[\d.]{0,20},", line)]
    if rows:
        machine.driver = machine.driver or rows[0][0].strip()
        machine.gpus = len(rows)
        machine.gpu_models = tuple(dict.fromkeys(row[1].strip() for row in rows))


def _system_program(name: str, avoid: Sequence[Path]) -> str | None:
    """A program on PATH that is the machine's own: not in a folder to avoid, nor in the current one."""
    barred = [os.path.realpath(folder) for folder in avoid]
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        program = shutil.which(name, path=folder) if os.path.isabs(folder) else None  # noqa: PTH117
        places = {os.path.dirname(os.path.realpath(path)) for path in (program, folder + "/.")} if program else ()  # noqa: PTH120
        if program and not any((place + os.sep).startswith(bar + os.sep) for place in places for bar in barred):
            return program
    return None
